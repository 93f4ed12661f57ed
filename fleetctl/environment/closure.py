"""Whether a set of pinned distributions is all that it needs, on the host's platform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

NOT_PINNED = ", which is not pinned"


@dataclass(frozen=True)
class Distribution:
    """A resolved distribution: where its wheel is, and what its metadata asks for."""

    name: str
    version: str
    url: str
    sha256: str
    requires: tuple[str, ...] = ()
    extras: frozenset[str] = field(default_factory=frozenset)


def unmet(found: Mapping[str, Distribution], markers: Mapping[str, str]) -> list[str]:
    """What the distributions ask for and do not have: ``"uvicorn needs h11>=0.8, which is not pinned"``.

    ``found`` by canonical name; ``markers`` are the host's values (PEP 508).
    """
    lines = []
    asked = [(name, extra) for name, one in found.items() for extra in ("", *sorted(one.extras))]
    for name, extra in asked:
        for text in found[name].requires:
            wanted = Requirement(text)
            if not _applies(wanted, extra, markers):
                continue
            there = found.get(canonicalize_name(wanted.name))
            if there is None:
                lines.append(f"{name} needs {_words(wanted)}{NOT_PINNED}")
            elif not wanted.specifier.contains(there.version, prereleases=True):
                lines.append(f"{name} needs {_words(wanted)}, pinned is {there.version}")
            else:
                more = ((canonicalize_name(wanted.name), extra) for extra in sorted(wanted.extras))
                asked.extend(pair for pair in more if pair not in asked)
    return list(dict.fromkeys(lines))


def _applies(wanted: Requirement, extra: str, markers: Mapping[str, str]) -> bool:
    """Whether the requirement is there for ``extra``; with none, for the distribution as such."""
    if wanted.marker is None:
        return not extra
    without = wanted.marker.evaluate({**markers, "extra": ""})
    return wanted.marker.evaluate({**markers, "extra": extra}) and (not extra or not without)


def _words(wanted: Requirement) -> str:
    extras = f"[{','.join(sorted(wanted.extras))}]" if wanted.extras else ""
    return f"{wanted.name}{extras}{wanted.specifier}"
