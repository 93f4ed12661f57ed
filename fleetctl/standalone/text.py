"""From messages to prompt tokens, and from tokens to text as they come."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from fleetctl.standalone.errors import StartError


class TextCodec:
    """The tokenizer and the chat template of a model folder."""

    def __init__(self, folder: Path) -> None:
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise StartError(f"{path}: no such file")
        try:
            self.tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain Exception
            raise StartError(f"{path}: not a readable tokenizer ({error})") from error
        self._special = _special_tokens(folder / "tokenizer_config.json")
        self._template = _chat_template(folder / "chat_template.jinja")

    def encode(self, text: str) -> list[int]:
        """Tokens of a plain prompt, with the special tokens that the tokenizer itself adds."""
        ids: list[int] = self.tokenizer.encode(text).ids
        return ids

    def piece(self, token: int) -> str:
        """One token as text, special ones by name; a part of a character is the replacement character."""
        text: str = self.tokenizer.decode([token], skip_special_tokens=False)
        return text

    def encode_chat(self, messages: list[dict[str, str]]) -> list[int]:
        """Tokens of ``messages`` (role and content each) up to where the answer begins."""
        prompt = self._template.render(messages=messages, add_generation_prompt=True, **self._special)
        ids: list[int] = self.tokenizer.encode(prompt, add_special_tokens=False).ids
        return ids


class TextStream:
    """Text of one answer, token by token, ending before the first of the ``stops``.

    Text that may yet turn out to be the start of a stop string, or an unfinished character, is held back.
    """

    def __init__(self, tokenizer: Tokenizer, stops: list[str]) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._stops = stops
        self._tokens: list[int] = []
        self._decoded = 0
        self._held = ""
        self.stopped = False

    def push(self, token: int) -> str:
        """The text that is certain once ``token`` has come; sets ``stopped`` at a stop string."""
        self._tokens.append(token)
        piece = self._stream.step(self._tokenizer, token) or ""
        self._decoded += len(piece)
        self._held += piece
        found = [at for at in (self._held.find(stop) for stop in self._stops) if at >= 0]
        if found:
            self.stopped = True
            text, self._held = self._held[: min(found)], ""
            return text
        keep = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        cut = len(self._held) - keep
        text, self._held = self._held[:cut], self._held[cut:]
        return text

    def finish(self) -> str:
        """What was held back, when the answer ends otherwise than by a stop string."""
        tail: str = self._tokenizer.decode(self._tokens, skip_special_tokens=True)[self._decoded :]
        return self._held + tail


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that is a proper start of ``stop``."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)


def _special_tokens(path: Path) -> dict[str, str]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StartError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise StartError(f"{path}: not valid JSON ({error})") from error
    return {name: content[name] for name in ("bos_token", "eos_token") if isinstance(content.get(name), str)}


def _chat_template(path: Path) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    try:
        return environment.from_string(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StartError(f"{path}: {error.strerror}") from error
    except jinja2.TemplateError as error:
        raise StartError(f"{path}: not a valid template ({error})") from error
