"""A diagnosis to paste into a public issue: what a maintainer needs, and nothing of whose it is. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from fleetctl import __version__
from fleetctl.doctor.diagnosis import Diagnosis, Said
from fleetctl.doctor.redact import cut, host_names, known_names, redact, versions_in
from fleetctl.doctor.words import headline, remedy_words, summary

PACKAGES = (
    *("torch", "sglang", "sglang-kernel", "sgl-kernel", "vllm", "flashinfer-python", "flashinfer-cubin"),
    *("triton", "xgrammar", "transformers"),
)
LINES = 20
WIDTH = 600
Clean = Callable[[str], str]


def markdown(diagnoses: Iterable[Diagnosis], hosts: Iterable[str] = (), users: Iterable[str] = ()) -> str:
    """All hosts' findings. ``hosts`` and ``users``: names and addresses of the inventory and of this machine."""
    found = list(diagnoses)
    private, people = [*hosts, *(one.name for one in found)], list(users)
    names: dict[str, str] = {}
    versions: set[str] = set()
    for one in found:
        names |= known_names([one.facts, [_texts(said) for said in one.said]], people)
        versions |= versions_in(one.facts)
        private.append(str(one.facts.get("hostname") or ""))
    names |= host_names(private)

    def clean(text: str) -> str:
        return redact(text, names, versions)

    made = [line for n, one in enumerate(found, 1) for line in _host(one, n if len(found) > 1 else 0, clean)]
    return "\n".join([*made, f"*fleetctl {__version__} doctor*"])


def _texts(said: Said) -> list[str]:
    remedy = said.finding.remedy
    return [
        said.finding.what,
        *said.where,
        *said.of,
        *said.finding.evidence,
        remedy.text,
        *remedy_words(remedy),
    ]


def _host(diagnosis: Diagnosis, number: int, clean: Clean) -> Iterator[str]:
    yield "### fleetctl doctor" + (f", host {number}" if number else "")
    yield ""
    yield from (
        f"- {_line(line, clean)}" for line in [*headline(diagnosis.facts), *_versions(diagnosis.facts)]
    )
    yield f"- {summary(diagnosis)}"
    yield ""
    for said in diagnosis.said:
        yield from _finding(said, clean)


def _finding(said: Said, clean: Clean) -> Iterator[str]:
    finding = said.finding
    severity = "note" if finding.severity == "info" else finding.severity
    yield f"**{severity}: {_line(finding.what, clean)}** (`{finding.rule}`)"
    yield from _block([*(f"at {one}" for one in said.where), *finding.evidence], clean)
    if finding.remedy.text:
        yield from ["", f"Remedy: {_line(finding.remedy.text, clean)}"]
    yield from _block(remedy_words(finding.remedy), clean)
    yield ""


def _block(texts: Iterable[str], clean: Clean) -> Iterator[str]:
    """A block of code; cleaned as a whole, since a key may stand in several lines, and then cut."""
    whole = "\n".join(cut(text, WIDTH) for text in list(texts)[:LINES])
    lines = [line for line in clean(whole).splitlines() if line.strip()][:LINES]
    if lines:
        fence = _fence(lines)
        yield from ["", fence, *lines, fence]


def _versions(facts: Mapping[str, Any]) -> Iterator[str]:
    """Each environment's ABI tag and the versions that decide, without its path."""
    environments = facts.get("environments")
    boms = environments.values() if isinstance(environments, Mapping) else ()
    said: list[str] = []
    for bom in boms:
        if not isinstance(bom, Mapping):
            continue
        listed = bom.get("distributions")
        held = {
            str(one.get("name")): str(one.get("version"))
            for one in (listed if isinstance(listed, list) else [])
            if isinstance(one, Mapping)
        }
        versions = [f"{name} {held[name]}" for name in PACKAGES if name in held]
        abi = bom.get("abi")
        tag = abi.get("tag") if isinstance(abi, Mapping) else None
        said.append(", ".join([*([f"`{tag}`"] if tag else []), *versions]))
    yield from (line for line in dict.fromkeys(said) if line)


def _line(text: str, clean: Clean) -> str:
    return " ".join(clean(cut(text, WIDTH)).split())


def _fence(texts: Iterable[str]) -> str:
    longest = max((len(run) for text in texts for run in re.findall(r"`+", text)), default=0)
    return "`" * max(3, longest + 1)
