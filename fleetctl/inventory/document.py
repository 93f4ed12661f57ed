"""A YAML file as plain data that remembers the line of every key.

Scalars follow YAML 1.2's core schema: ``on``, ``yes``, ``010`` and ``12:30`` are not booleans or odd numbers.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

Key = tuple[str | int, ...]
GROUP_FILES = ("groups.yaml", "groups.yml")
"""The files of an inventory's folder that describe no host."""


@dataclass(frozen=True)
class Problem:
    """Something wrong with a file: the key (or, where there is none, the line), what, and how to go on."""

    key: Key
    what: str
    fix: str = ""
    line: int | None = None


@dataclass
class Document:
    """A file's data, the line (from 1) of each key in it, and what is wrong with its YAML."""

    data: Any = None
    lines: dict[Key, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line(self, key: Key) -> int:
        """The line of ``key``, or of the nearest key around it that the file has."""
        while key and key not in self.lines:
            key = key[:-1]
        return self.lines.get(key, 1)


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {}  # noqa: RUF012 (PyYAML's own name; emptied so that YAML 1.1's rules are gone)


_SCALARS = {
    "null": (re.compile(r"~|null|Null|NULL|"), ["~", "n", "N", ""]),
    "bool": (re.compile(r"true|True|TRUE|false|False|FALSE"), list("tTfF")),
    "int": (re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"), list("-+0123456789")),
    "float": (
        re.compile(
            r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
        ),
        list("-+0123456789."),
    ),
}
for _tag, (_pattern, _first) in _SCALARS.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern.pattern})$"), _first)


def read(path: Path) -> Document:
    """Read a file; whatever is wrong with its YAML stands in ``problems``."""
    document = Document()
    raw, text = b"", ""
    try:
        raw = path.read_bytes()
        text = raw.decode()
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(part for part in (error.problem, error.context) if part)
        document.problems.append(
            Problem((), f"not YAML: {said}", _syntax_fix(text, said), (mark.line + 1) if mark else None)
        )
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        document.problems.append(Problem((), "not UTF-8 text", "save the file as UTF-8", line))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        document.problems.append(
            Problem((), f"the character U+{error.character:04X} cannot stand in YAML", "take it out", line)
        )
    except (ValueError, OverflowError):  # of chr(), in PyYAML's scanner
        escape = re.search(r"\\U(?!0010|000)[0-9A-Fa-f]{8}", text)
        place = text.count("\n", 0, escape.start()) + 1 if escape else None
        words = f"{escape[0]} is no character" if escape else "an escape is no character"
        document.problems.append(Problem((), words, "Unicode ends at \\U0010FFFF; correct the number", place))
    except OSError as error:
        document.problems.append(
            Problem((), f"cannot be read: {error.strerror}", "correct the file's rights")
        )
    else:
        if node is not None:
            document.data = _plain(document, node, (), ())
    return document


def _syntax_fix(text: str, said: str) -> str:
    if "'\\t'" in said:
        return "indent with spaces, not tabs"
    if "mapping values are not allowed" in said:
        return "quote a value that contains ': '"
    return "correct the line's indentation, quotes or brackets"


def _plain(document: Document, node: yaml.Node, key: Key, around: tuple[yaml.Node, ...]) -> Any:
    line = node.start_mark.line + 1
    document.lines.setdefault(key, line)
    if node in around:
        document.problems.append(Problem(key, "an alias inside of what it names", "take the alias out", line))
        return None
    around = (*around, node)
    if isinstance(node, yaml.MappingNode):
        return _mapping(document, node, key, around)
    if isinstance(node, yaml.SequenceNode):
        return [_plain(document, item, (*key, index), around) for index, item in enumerate(node.value)]
    try:
        return _scalar(node)
    except ValueError as error:
        document.problems.append(Problem(key, str(error), "write the value as it is", line))
        return None


def _mapping(
    document: Document, node: yaml.MappingNode, key: Key, around: tuple[yaml.Node, ...]
) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key_node, value_node in _merged(document, node, key, around):
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            document.problems.append(Problem(key, "a key that is no plain text", "", line))
            continue
        name = str(key_node.value)
        inner = (*key, name)
        if name in data:
            document.problems.append(
                Problem(
                    inner,
                    f"{dotted(inner)} stands twice (first on line {document.lines[inner]})",
                    "keep one of them",
                    line,
                )
            )
            continue
        document.lines[inner] = line
        data[name] = _plain(document, value_node, inner, around)
    return data


def _merged(
    document: Document, node: yaml.MappingNode, key: Key, around: tuple[yaml.Node, ...]
) -> list[tuple[yaml.Node, yaml.Node]]:
    """A mapping's pairs, those of the mappings that its ``<<`` names among them; its own win, then the first named."""
    own = [pair for pair in node.value if not _is_merge(pair[0])]
    said = {one.value for one, _ in own if isinstance(one, yaml.ScalarNode)}
    more: list[tuple[yaml.Node, yaml.Node]] = []
    for merge, value in (pair for pair in node.value if _is_merge(pair[0])):
        for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
            line = merge.start_mark.line + 1
            if not isinstance(source, yaml.MappingNode) or source in around:
                fix = "write <<: *NAME, where &NAME stands before a mapping"
                document.problems.append(Problem(key, "<< names no mapping to take over", fix, line))
                continue
            for pair in _merged(document, source, key, (*around, source)):
                if isinstance(pair[0], yaml.ScalarNode) and pair[0].value not in said:
                    said.add(pair[0].value)
                    more.append(pair)
    return [*more, *own]


def _is_merge(key: yaml.Node) -> bool:
    return isinstance(key, yaml.ScalarNode) and key.value == "<<" and key.style is None


def _scalar(node: yaml.Node) -> Any:
    text = str(node.value)
    match node.tag.rpartition(":")[2]:
        case "str":
            return text
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            base = {"0o": 8, "0x": 16}.get(text[:2], 10)
            return int(text, base)
        case "float":
            return _float(text)
        case _:
            raise ValueError(f"tags such as {node.tag} are not used in inventories")


def _float(text: str) -> float:
    folded = text.lower()
    if folded.endswith(".inf"):
        return -math.inf if folded.startswith("-") else math.inf
    return math.nan if folded == ".nan" else float(text)


def dotted(key: Key) -> str:
    """A key as operators write it: ``services.ddtree.args``, ``slots.native.gpus[0]``."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
