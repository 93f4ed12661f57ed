"""The prompts: forms filled with topics, the target's own, and those kept apart for measuring."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
"""The default system prompt of the target's chat template."""
USER_TURN = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n"
SHARED_WORDS = 6


class ChatTokenizer:
    """The target's tokenizer file, special tokens included."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        self.tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def encode_ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode_ids(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False))


@dataclass(frozen=True)
class EvalPrompt:
    """One measured prompt; `form` is known, new or demo, `name` is set for the demo prompts."""

    kind: str
    form: str
    prompt: str
    name: str = ""


def chat(prompt: str) -> str:
    """The prompt as the target's chat template puts it, up to where the answer starts."""
    return f"{USER_TURN}{prompt}<|im_end|>\n<|im_start|>assistant\n"


def eval_prompts() -> list[EvalPrompt]:
    """The prompts that measure a drafter."""
    data = json.loads((HERE / "eval_prompts.json").read_text())
    return [EvalPrompt(**item) for item in data["prompts"]]


def validation_prompts() -> list[str]:
    """Prompts of forms that are neither trained nor measured; they choose the checkpoint."""
    return [str(item["prompt"]) for item in _data()["validation"]]


def template_prompts(seed: int) -> list[str]:
    """Every form with every one of its topics, and as many sums with random numbers, in random order."""
    data, rng = _data(), random.Random(seed)
    filled: set[str] = set()
    for form in data["forms"]:
        topics: list[str] = data["topics"][form["topics"]]
        for template in form["templates"]:
            if form["kind"] == "math":
                filled.update(_sums(template, topics, data["topics"], rng))
            else:
                filled.update(template.replace("{}", topic) for topic in topics)
    kept = sorted(without_measured(filled))
    rng.shuffle(kept)
    return kept


def _sums(template: str, topics: Sequence[str], all_topics: Any, rng: random.Random) -> Iterable[str]:
    for _ in range(80):
        text = template
        while "{n}" in text:
            text = text.replace("{n}", rng.choice(all_topics["smallnumbers"]), 1)
        while "{}" in text:
            text = text.replace("{}", rng.choice(topics), 1)
        yield text


def words(text: str) -> list[str]:
    """Lower-case words and numbers of a text."""
    return re.findall(r"[a-z0-9]+", text.lower())


def without_measured(prompts: Iterable[str]) -> list[str]:
    """Drop prompts that come near a measured or validation one, or name a subject of the demo prompts.

    Near: the same words, or what makes a measured prompt its own, its last six words in a row (all of them
    when there are fewer).
    """
    banned: list[str] = _data()["banned"]
    measured = [words(text) for text in [*(p.prompt for p in eval_prompts()), *validation_prompts()]]
    tails = {" ".join(text[-SHARED_WORDS:]) for text in measured}
    sizes = sorted({len(tail.split()) for tail in tails})
    return [
        prompt
        for prompt in prompts
        if not any(subject in prompt.lower() for subject in banned)
        and not _holds(words(prompt), tails, sizes)
    ]


def _holds(text: list[str], tails: set[str], sizes: Sequence[int]) -> bool:
    runs = itertools.chain.from_iterable(
        (" ".join(text[start : start + size]) for start in range(len(text) - size + 1)) for size in sizes
    )
    return any(run in tails for run in runs)


def usable_own_prompt(text: str) -> bool:
    """Whether a user turn that the target invented is worth answering."""
    return 8 <= len(text) <= 400 and "<|" not in text and len(set(words(text))) >= 3


def _data() -> Any:
    return json.loads((HERE / "train_prompts.json").read_text())
