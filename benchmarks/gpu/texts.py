"""The prompts: five kinds as deployments are compared with, and unseen ones by kind."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

UNSEEN = Path(__file__).parents[2] / "training" / "eval_prompts.json"
OWN = "unseen-prompts.json"
OWN_CHAT = "<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
"""A model trained by ``training.hybrid`` brings prompts that it has not seen, in this form."""
CHAT = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
)


@dataclass(frozen=True)
class Prompt:
    """``text`` as the server gets it, in the chat's form."""

    name: str
    kind: str
    form: str
    text: str


def prompts(model: Path) -> list[Prompt]:
    """The model's own unseen prompts, where its folder has some; else the five of the comparison first (form
    ``demo``), then the unseen ones."""
    own = model / OWN
    chat, source = (OWN_CHAT, own) if own.exists() else (CHAT, UNSEEN)
    entries = json.loads(source.read_text())["prompts"]
    for number, entry in enumerate(entries):
        entry.setdefault("form", "demo" if source == own and number < 5 else "known")
    made = [
        Prompt(
            entry.get("name", f"{entry['kind']}-{number}"),
            entry["kind"],
            entry["form"],
            chat.replace("{prompt}", entry["prompt"]),
        )
        for number, entry in enumerate(entries)
    ]
    return sorted(made, key=lambda prompt: prompt.form != "demo")
