"""Prompts to measure with: from a playbook, from ShareGPT conversations, or from a text of one's own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from fleetctl.errors import FleetError
from fleetctl.inventory.document import Document, read
from fleetctl.inventory.models import Model, Text
from fleetctl.inventory.nearest import hint
from fleetctl.inventory.problems import in_words, together

PLAYBOOK = "the prompts"
SPEAKERS = {
    "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "chatgpt": "assistant",
    "model": "assistant", "bing": "assistant", "bard": "assistant", "system": "system", "tool": "user",
    "function_response": "user", "observation": "user",
}  # fmt: skip
RULER = "---"
SUFFIXES = (".yaml", ".yml", ".jsonl", ".json", ".txt")
CONVERSATION = '{"conversations": [{"from": "human", "value": "…"}, …]}'
FORMS = {
    ".jsonl": f"write one conversation a line: {CONVERSATION}",
    ".json": f"write a list of conversations: [{CONVERSATION}, …]",
}


class Message(Model):
    """One message of a conversation. An ``assistant``'s stands in the place of the answer that a service gave."""

    role: Literal["system", "user", "assistant"]
    content: Text


class Prompt(Model):
    """What is asked: its name in tables, the kind of text it asks for, and either one ``text`` or ``messages``."""

    name: Text
    kind: Text = "text"
    text: str = Field(default="", pattern=r"^[^\x00]*$")
    messages: list[Message] = Field(default_factory=list)

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        if not self.text and not self.messages and "text" in self.model_fields_set:
            raise ValueError("has an empty text: write what is asked")
        if bool(self.text) == bool(self.messages):
            raise ValueError("needs exactly one of text and messages")
        if self.messages and all(message.role != "user" for message in self.messages):
            raise ValueError("has messages, but none of a user")
        return self

    def conversation(self) -> list[Message]:
        """The messages; of a plain text one user's."""
        return self.messages or [Message(role="user", content=self.text)]


class _Playbook(Model):
    prompts: list[Prompt] = Field(min_length=1)


def load_prompts(path: Path) -> list[Prompt]:
    """The prompts of a YAML file with ``prompts:``, of JSONL in ShareGPT's form, or of a text file.

    A text file has one prompt a line; where some line is ``---``, prompts are what stands between such lines.
    FleetError (exit 2, with the line) where the file is missing or says something else.
    """
    with suppress(PermissionError):  # reading it says what
        if not path.exists():
            raise missing(path.name, [path.parent], "the prompts")
    if path.suffix in (".yaml", ".yml"):
        document = read(path)
        if document.problems:
            raise together(document, str(path), document.problems, PLAYBOOK)
        given = document.data.get("prompts") if isinstance(document.data, dict) else None
        return check_prompts(document, str(path), given)
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise FleetError(f"{error.strerror}", str(path), "name a file with prompts") from None
    except UnicodeDecodeError:
        raise FleetError("not UTF-8 text", str(path), "save the file as UTF-8") from None
    if "\0" in text:
        raise FleetError("no text: it holds a byte of value 0", str(path), "name a file of text")
    found = _sharegpt(path, text) if path.suffix in (".jsonl", ".json") else _plain(path, text)
    if not found:
        raise FleetError(
            "no prompt in the file", str(path), FORMS.get(path.suffix, "write one prompt a line")
        )
    return found


def missing(name: str, folders: Sequence[Path], whose: str) -> FleetError:
    """No file ``name`` in any of ``folders``: where it was looked for, and what is there that is called like it."""
    near = {path.name for folder in folders for path in folder.glob("*") if path.suffix in SUFFIXES}
    return FleetError(
        f"No such file: {name}, {whose}; looked for in {', '.join(map(str, folders))}",
        fix=hint(Path(name).name, near, "files there"),
    )


def check_prompts(document: Document, shown: str, given: Any) -> list[Prompt]:
    """``given``, the value of a file's ``prompts:``, as prompts; FleetError names each wrong line."""
    if not isinstance(given, list):
        raise FleetError(
            "prompts: no list",
            f"{shown}:{document.line(('prompts',))}",
            "each prompt has name, kind and text",
        )
    try:
        prompts = _Playbook.model_validate({"prompts": given}).prompts
    except ValidationError as error:
        raise together(document, shown, in_words(error, {"prompts": given}, _Playbook), PLAYBOOK) from None
    names: set[str] = set()
    for index, prompt in enumerate(prompts):
        if prompt.name in names:
            line = document.line(("prompts", index, "name"))
            raise FleetError(f"two prompts are called {prompt.name}", f"{shown}:{line}", "give each its name")
        names.add(prompt.name)
    return prompts


def digest(prompts: list[Prompt]) -> str:
    """What the prompts are, as 16 hexadecimal digits: names, kinds and words, in their order."""
    said = [prompt.model_dump() for prompt in prompts]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


def _plain(path: Path, text: str) -> list[Prompt]:
    lines = text.splitlines()
    if RULER in (line.strip() for line in lines):
        parts: list[str] = [""]
        for line in lines:
            if line.strip() == RULER:
                parts.append("")
            else:
                parts[-1] += line + "\n"
    else:
        parts = lines
    said = [part.strip() for part in parts if part.strip()]
    return [Prompt(name=f"{path.stem}-{number}", text=part) for number, part in enumerate(said, 1)]


def _sharegpt(path: Path, text: str) -> list[Prompt]:
    """Conversations up to the last message that somebody must answer; without any such, the line is refused."""
    whole = text.lstrip().startswith("[")
    pieces = [(1, text)] if whole else list(enumerate(text.splitlines(), 1))
    found: list[Prompt] = []
    for number, piece in pieces:
        if not piece.strip():
            continue
        try:
            data = json.loads(piece)
        except ValueError as error:
            raise FleetError(f"not JSON: {error}", f"{path}:{number}", "one conversation a line") from None
        for entry in data if whole else [data]:
            found.append(_conversation(f"{path}:{number}", f"{path.stem}-{len(found) + 1}", entry))
    return found


def _conversation(where: str, name: str, entry: Any) -> Prompt:
    said = None
    if isinstance(entry, dict):
        said = entry.get("conversations") or entry.get("conversation") or entry.get("messages")
    messages = [_message(where, one) for one in said] if isinstance(said, list) else []
    while messages and messages[-1].role != "user":
        messages.pop()
    if not messages:
        raise FleetError(
            "no conversation with a user's message",
            where,
            f"each line is {CONVERSATION}",
        )
    identity = str(entry["id"]) if isinstance(entry.get("id"), str | int) else ""
    named = identity if identity and "\0" not in identity else name
    return Prompt(name=named, kind="chat", messages=messages)


def _message(where: str, one: Any) -> Message:
    speaker, words = None, None
    if isinstance(one, dict):
        speaker = one.get("from") or one.get("role")
        words = one.get("value") if one.get("value") is not None else one.get("content")
    if not isinstance(words, str) or not words or "\0" in words or SPEAKERS.get(str(speaker)) is None:
        raise FleetError(
            f"a message that says nothing, or of an unknown speaker {speaker!r}",
            where,
            f"from: one of {', '.join(sorted(SPEAKERS))}; value: the words",
        )
    return Message.model_validate({"role": SPEAKERS[str(speaker)], "content": words})
