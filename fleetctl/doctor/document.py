"""``docs/doctor.md``, and what ``doctor explain`` says: written from the rules and signatures themselves.

python -m fleetctl.doctor.document docs/doctor.md
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import fleetctl.doctor.rules  # noqa: F401  registers the rules
from fleetctl.doctor.finding import FAMILIES, Remedy
from fleetctl.doctor.rule import RULES, Rule
from fleetctl.doctor.signatures import SIGNATURES, Signature
from fleetctl.doctor.words import remedy_words

ABOUT: Mapping[str, str] = {
    "ABI": "what compiled libraries need of each other: symbols, CUDA major, C++ ABI, glibc",
    "ARCH": "machine code against the cards that shall run it",
    "PKG": "distributions: missing, of the wrong version, damaged, twice",
    "DRV": "the driver against the CUDA that an environment brings",
    "GPU": "the cards: dead, in use, without a way to each other, out of memory",
    "MODEL": "a model's files and configuration",
    "SYS": "the host: memory, disks, limits, system libraries",
    "NET": "ports and their owners",
    "SVC": "units, and how a service starts and ends",
    "CFG": "arguments that contradict each other, the model or the card",
}
HEAD = """# What doctor knows

Made from the rules themselves: `make docs`. `fleetctl doctor explain RULE` says the same of one, with an example.

A *rule* reads facts of a host (cards, driver, environments, models, units), imports nothing and runs no kernel; it
works before a deploy. A *signature* finds a cause in a log. Where both have the same id, the log's claim is checked by
the facts when these are known. `error`: it will not work; exit 5. `warning`: it may not, or not well. `note`: to know.
"""
FOOT = """
## Harmless lines
Lines that healthy servers log, and that no wait or diagnosis stops at:
"""


def document() -> str:
    """The whole page."""
    parts = [HEAD]
    for family in FAMILIES:
        rules = [rule for rule in RULES.values() if rule.family == family]
        signatures = [one for one in SIGNATURES if one.family == family and one.verdict != "harmless"]
        if rules or signatures:
            parts.append("\n".join(_family(family, rules, signatures)))
    harmless = [f"- `{one.pattern}`: {one.reason}" for one in SIGNATURES if one.verdict == "harmless"]
    return "\n".join([*parts, FOOT.strip("\n"), *harmless]) + "\n"


def _family(family: str, rules: Iterable[Rule], signatures: Iterable[Signature]) -> Iterator[str]:
    yield f"## {family}: {ABOUT[family]}"
    for rule in rules:
        yield ""
        yield f"### {rule.id}"
        yield f"- {'note' if rule.severity == 'info' else rule.severity}: {_ended(rule.reason)}"
        remedy = remedy_line(rule.remedy)
        if remedy:
            yield f"- Remedy: {remedy}"
        yield f"- Source: {rule.source}"
    logged = [f"| {one.id} | {_cell(one.reason)} | {_cell(one.fix)} |" for one in signatures]
    if logged:
        yield from ["", "| in logs | says | way on |", "|---|---|---|", *logged]
    yield ""


def remedy_line(remedy: Remedy) -> str:
    """A remedy in a line: its text and its data."""
    words = [f"`{line}`" for line in remedy_words(remedy)]
    return " ".join(part for part in (_ended(remedy.text) if remedy.text else "", ", ".join(words)) if part)


def _ended(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def examples(rule: str) -> list[Path]:
    """The rule's cases, where fleetctl runs from its checkout: faults first."""
    folder = Path(__file__).resolve().parents[2] / "tests" / "doctor" / "cases" / rule
    return sorted(folder.glob("*.yaml"), key=lambda path: (_is_healthy(path), path.stem))


def _is_healthy(case: Path) -> bool:
    return re.search(r"^expect: *no", case.read_text(encoding="utf-8"), re.MULTILINE) is not None


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(document(), encoding="utf-8")
