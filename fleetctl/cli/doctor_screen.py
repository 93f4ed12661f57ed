"""Doctor's findings on a screen: a host's in one, the worst first, what passed only counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetctl.cli.output import Output, Part
from fleetctl.doctor.diagnosis import Diagnosis, Said
from fleetctl.doctor.words import headline, remedy_words, summary

MOST = 12
LINES = 3
WIDTH = 300
STYLES = {"error": "bold red", "warning": "bold yellow", "info": "cyan"}
SIGNS = {"error": "error", "warning": "warning", "info": "note"}


def show(output: Output, diagnosis: Diagnosis) -> None:
    """Print one host's findings."""
    for indent, parts in lines(diagnosis):
        output.styled(parts, indent)


def lines(diagnosis: Diagnosis) -> Iterator[tuple[int, list[Part]]]:
    """Each line with its indent, as parts with a style."""
    about = headline(diagnosis.facts)
    yield 0, [(diagnosis.name, "bold"), (f"  {' · '.join(about)}" if about else "", "dim")]
    looked = _listed(diagnosis.examined, 6)
    worst = next((one.finding.severity for one in diagnosis.said), None)
    style = STYLES[worst] if worst else "bold green"
    yield 2, [(summary(diagnosis), style), (f" ({looked})" if looked else "", "dim")]
    for said in diagnosis.said[:MOST]:
        yield from _finding(said)
    if (left := len(diagnosis.said) - MOST) > 0:
        yield 0, [(f"and {left} more, none worse: --json has them all", "dim")]


def _finding(said: Said) -> Iterator[tuple[int, list[Part]]]:
    finding = said.finding
    of = f" · {_listed(said.of, 4)}" if said.of else ""
    lead = (f"{SIGNS[finding.severity]}: ", STYLES[finding.severity])
    yield 0, [lead, (_short(finding.what), ""), (f"  {finding.rule}{of}", "dim")]
    if said.where:
        yield 2, [("at ", "dim"), (_short(_listed(said.where, LINES)), "dim")]
    for line in finding.evidence[:LINES]:
        yield 2, [("| ", "dim"), (_short(line), "dim")]
    if (left := len(finding.evidence) - LINES) > 0:
        yield 2, [(f"| and {left} more", "dim")]
    if finding.remedy.text:
        yield 2, [("fix: ", "bold green"), (finding.remedy.text, "")]
    for line in remedy_words(finding.remedy):
        yield 4, [(line, "green")]


def _listed(texts: Sequence[str], most: int) -> str:
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def _short(text: str) -> str:
    """One line of bounded length: a log's line may be a megabyte."""
    line = " ".join(text.split())
    return line if len(line) <= WIDTH else f"{line[:WIDTH]} …"
