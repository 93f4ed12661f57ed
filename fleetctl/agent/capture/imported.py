"""Names that an engine's sources import of another package and that package's files do not have."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from fleetctl.agent.files import read_start

Json = Dict[str, Any]
Read = Callable[[str], str]

PAIRS = (("sglang", "flashinfer"), ("vllm", "flashinfer"), ("sglang", "sgl_kernel"), ("sglang", "xgrammar"))
LARGEST = 4 << 20
MOST = 200
LONGEST = 300
_ANY = re.compile(r"^from [\w.]+ import \*|^ *from [\w.]+ import \*|^def __getattr__\(|globals\(\)", re.M)
_HEADER = re.compile(r"([ \t]*)(try|if|elif|else|def|async|class|with|for|while|except|finally|match|case)\b")
_TESTS = re.compile(r"/tests?/|/test_\w+\.py$")


class Import(NamedTuple):
    """One name that is imported: ``when`` says what it takes: the module's ``start``, a ``condition`` (``under``: as
    the source has it), a ``call``, or ``optional`` where the source provides for its absence."""

    module: str
    name: str
    line: int
    when: str
    under: str


def unmet_imports(paths: Sequence[str], read: Read) -> List[Json]:
    """What the engines in ``paths`` (relative to one site-packages) import and do not find, the first of each name.

    ``read`` gives a file's text by such a path. Packages that are not there are passed over: that is another fault.
    ``[{"consumer", "provider", "module", "name", "where": "path:line", "when", "under"}]``; ``name`` is ``*``
    for a whole module.
    """
    known = set(paths)
    found: Dict[Tuple[str, str, str], Json] = {}
    for consumer in dict.fromkeys(consumer for consumer, _ in PAIRS):
        wanted = [provider for each, provider in PAIRS if each == consumer]
        given = [Given(one, known, read) for one in wanted if f"{one}/__init__.py" in known]
        if not given or f"{consumer}/__init__.py" not in known:
            continue
        for path in sorted(paths):
            if path.startswith(f"{consumer}/") and path.endswith(".py") and not _TESTS.search(path):
                for row in _unmet(consumer, path, read(path), given):
                    key = (consumer, row["module"], row["name"])
                    before = found.setdefault(key, row)
                    if before["when"] == "call" and row["when"] != "call":
                        found[key] = row
    return list(found.values())[:MOST]


def _unmet(consumer: str, path: str, text: str, given: Sequence["Given"]) -> Iterator[Json]:
    for package in given:
        for one in imports_of(text, package.package):
            name = "" if one.when == "optional" else package.lacks(one.module, one.name)
            if name:
                row = {"consumer": consumer, "provider": package.package, "module": one.module, "name": name}
                yield {**row, "where": f"{path}:{one.line}", "when": one.when, "under": one.under}


class Given:
    """What a package's files give by name; in doubt it gives it."""

    def __init__(self, package: str, paths: "set[str]", read: Read) -> None:
        self._paths = paths
        self._read = read
        self._texts: Dict[str, Optional[str]] = {}
        self.package = package

    def lacks(self, module: str, name: str) -> str:
        """The name that is not there; ``*`` where the module is not; ``""`` where all is well or cannot be told."""
        text = self._text(module)
        if text is None:
            return "" if self._is_there(module) else "*"
        if name == "*" or _ANY.search(text) or self._is_there(f"{module}.{name}"):
            return ""
        return "" if re.search(rf"\b{re.escape(name)}\b", text) else name

    def _text(self, module: str) -> Optional[str]:
        if module not in self._texts:
            stem = module.replace(".", "/")
            path = next((one for one in (f"{stem}/__init__.py", f"{stem}.py") if one in self._paths), None)
            self._texts[module] = self._read(path) if path else None
        return self._texts[module]

    def _is_there(self, module: str) -> bool:
        """A module, a compiled one, or a folder of that name."""
        stem = module.replace(".", "/")
        return f"{stem}.py" in self._paths or any(
            path.startswith((f"{stem}/", f"{stem}.")) for path in self._paths
        )


def imports_of(text: str, package: str) -> Iterator[Import]:
    """The ``from package… import …`` of a source, one a name; no syntax of any Python version is needed for it."""
    if package not in text:
        return
    pattern = rf"^([ \t]*)from ({re.escape(package)}(?:\.\w+)*) import (\([^)]*\)|(?:[^\n]*\\\n)*[^\n]*)"
    lines = text.split("\n")
    for match in re.finditer(pattern, text, re.M):
        number = text.count("\n", 0, match.start()) + 1
        when, under = _when(lines, number - 1, len(match[1].expandtabs()))
        names = re.sub(r"#[^\n]*|[()\\]", " ", match[3]).split(",")
        for each in filter(None, (name.split(" as ")[0].strip() for name in names)):
            if each == "*" or each.isidentifier():
                yield Import(match[2], each, number, when, under)


def _when(lines: Sequence[str], at: int, indent: int) -> Tuple[str, str]:
    """By the headers around the line: those with less and less indentation before it."""
    kinds, conditions = [], []
    for line in reversed(lines[:at]):
        if indent == 0:
            break
        header = _HEADER.match(line)
        if header and len(header[1].expandtabs()) < indent:
            indent = len(header[1].expandtabs())
            kinds.append(header[2])
            conditions.append(line.strip().rstrip(":"))
    under = "; ".join(conditions[::-1])[:LONGEST]
    if "try" in kinds or "except" in kinds:
        return "optional", under
    if "def" in kinds or "async" in kinds:
        return "call", under
    return ("condition", under) if kinds else ("start", "")


def reader(absolute: Callable[[str], str], site: str) -> Read:
    """Texts of files under ``site``; ``""`` for one that cannot be read."""

    def read(path: str) -> str:
        try:
            return read_start(absolute(f"{site}/{path}" if site else path), LARGEST).decode(
                "utf-8", "replace"
            )
        except OSError:
            return ""

    return read
