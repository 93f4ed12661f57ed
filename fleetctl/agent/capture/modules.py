"""Which modules a distribution has, by its RECORD: what another version of it may lack."""

from __future__ import annotations

from typing import Dict, Iterable, List, Set

TESTS = frozenset(["test", "tests", "testing"])


def modules(paths: Iterable[str]) -> Dict[str, List[str]]:
    """Package → names of its modules, sorted: ``{"sglang.srt": ["server_args"], "": ["six"]}``.

    ``paths`` as in a RECORD. Modules of tests, and what no ``import`` can name, are left out.
    """
    found: Dict[str, Set[str]] = {}
    for path in paths:
        if not path.endswith((".py", ".so")):
            continue
        *folders, file = path.split("/")
        name = file.partition(".")[0]
        if (
            not name.isidentifier()
            or not all(map(str.isidentifier, folders))
            or not TESTS.isdisjoint(folders)
        ):
            continue
        if name == "__init__":
            if not folders:
                continue
            *folders, name = folders
        found.setdefault(".".join(folders), set()).add(name)
    return {package: sorted(names) for package, names in sorted(found.items())}
