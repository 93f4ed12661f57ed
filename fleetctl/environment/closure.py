"""Whether a set of pinned distributions is all that it needs, on the host's platform."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

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


@dataclass(frozen=True)
class Unmet:
    """A requirement that does not hold: ``who`` ``asks`` for what is not there, or is ``there`` in another version."""

    who: str
    wants: str
    asks: str
    there: str | None


def unmet(found: Mapping[str, Distribution], markers: Mapping[str, str]) -> list[str]:
    """What the distributions ask for and do not have: ``"uvicorn needs h11>=0.8, which is not pinned"``.

    ``found`` by canonical name; ``markers`` are the host's values (PEP 508).
    """
    return [
        f"{one.who} needs {one.asks}" + (NOT_PINNED if one.there is None else f", pinned is {one.there}")
        for one in unmet_requirements(found, markers)
    ]


def unmet_requirements(found: Mapping[str, Distribution], markers: Mapping[str, str]) -> list[Unmet]:
    """The requirements of the distributions that do not hold, each once."""
    lines = []
    for name, wanted in requirements(found, markers):
        wants = canonicalize_name(wanted.name)
        there = found[wants].version if wants in found else None
        if there is None or not holds(wanted, there):
            lines.append(Unmet(name, wants, in_words(wanted), there))
    return list(dict.fromkeys(lines))


def requirements(
    found: Mapping[str, Distribution], markers: Mapping[str, str]
) -> Iterator[tuple[str, Requirement]]:
    """Who asks for what, by markers and by the extras that are asked for; what cannot be read is left out."""
    asked = [(name, extra) for name, one in found.items() for extra in ("", *sorted(one.extras))]
    for name, extra in asked:
        for text in found[name].requires:
            try:
                wanted = Requirement(text)
                if not _applies(wanted, extra, markers):
                    continue
            except (InvalidRequirement, UndefinedComparison, UndefinedEnvironmentName):
                continue
            yield name, wanted
            there = canonicalize_name(wanted.name)
            if there in found and holds(wanted, found[there].version):
                more = ((there, extra) for extra in sorted(wanted.extras))
                asked.extend(pair for pair in more if pair not in asked)


def holds(wanted: Requirement, version: str) -> bool:
    """Whether a version, even one that is no version, is one that the requirement allows."""
    try:
        return wanted.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return not wanted.specifier


def _applies(wanted: Requirement, extra: str, markers: Mapping[str, str]) -> bool:
    """Whether the requirement is there for ``extra``; with none, for the distribution as such."""
    if wanted.marker is None:
        return not extra
    without = wanted.marker.evaluate({**markers, "extra": ""})
    return wanted.marker.evaluate({**markers, "extra": extra}) and (not extra or not without)


def in_words(wanted: Requirement) -> str:
    """A requirement without its marker: ``uvicorn[standard]>=0.30``."""
    extras = f"[{','.join(sorted(wanted.extras))}]" if wanted.extras else ""
    return f"{wanted.name}{extras}{wanted.specifier}"
