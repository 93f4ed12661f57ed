"""Between text and tokens: the tokenizer, the chat template, and text that grows token by token."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from fleetctl.standalone.weights import ModelError

_INCOMPLETE = "\ufffd"


class Text:
    """The tokenizer and chat template of the model folder ``path``; ModelError where one is missing or broken."""

    def __init__(self, path: Path) -> None:
        file = path / "tokenizer.json"
        try:
            # The file's own errors come as bare Exception from the library.
            self.tokenizer = Tokenizer.from_str(file.read_text())
        except FileNotFoundError:
            raise ModelError(f"{file}: no such file") from None
        except Exception as error:
            raise ModelError(f"{file}: {error}") from None
        template = path / "chat_template.jinja"
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        try:
            self._template = environment.from_string(template.read_text())
        except (OSError, TemplateError) as error:
            raise ModelError(f"{template}: {error}") from None
        self.end_tokens = _end_tokens(path)

    def encode(self, text: str) -> list[int]:
        """Token ids, special tokens recognised, none added."""
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: list[int]) -> str:
        """Text without special tokens."""
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))

    def chat(self, messages: list[dict[str, str]]) -> str:
        """The prompt that asks for the assistant's next turn; TemplateError where the template refuses."""
        return self._template.render(messages=messages, add_generation_prompt=True)


def _end_tokens(path: Path) -> frozenset[int]:
    file = path / "generation_config.json"
    try:
        config: dict[str, Any] = json.loads(file.read_text())
        ends = config["eos_token_id"]
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"{file}: no end token can be read: {error!r}") from None
    return frozenset(ends if isinstance(ends, list) else [ends])


@dataclass
class TextStream:
    """An answer's text as its tokens come.

    Text is given out once it cannot change any more: whole characters, and nothing that may be the beginning of a
    ``stop`` string. ``stopped`` turns true when a stop string was found; the text ends before it.
    """

    text: Text
    stop: list[str]
    stopped: bool = False

    def __post_init__(self) -> None:
        self._tokens: list[int] = []
        self._done = 0
        self._held = ""

    def push(self, token: int) -> str:
        """Add a token; the text that became certain."""
        self._tokens.append(token)
        # Two tokens of the text given out stay in front, since a token's text may depend on the one before it.
        context = self._tokens[max(0, self._done - 2) : self._done]
        before = self.text.decode(context)
        after = self.text.decode(context + self._tokens[self._done :])
        if after.endswith(_INCOMPLETE):
            return ""
        self._done = len(self._tokens)
        return self._release(after[len(before) :])

    def finish(self) -> str:
        """The rest, when no token follows."""
        context = self._tokens[max(0, self._done - 2) : self._done]
        tail = self.text.decode(context + self._tokens[self._done :])[len(self.text.decode(context)) :]
        self._done = len(self._tokens)
        out = self._release(tail)
        out, self._held = out + self._held, ""
        return out

    def _release(self, new: str) -> str:
        if self.stopped:
            return ""
        text = self._held + new
        found = [at for stop in self.stop if (at := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        keep = max((_overlap(text, stop) for stop in self.stop), default=0)
        cut = len(text) - keep
        self._held = text[cut:]
        return text[:cut]


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that begins ``stop``."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
