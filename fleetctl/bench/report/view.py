"""What reports say besides charts: the rows of tables, findings, cautions. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from fleetctl.bench.naming import CONTEXT, part
from fleetctl.bench.pointsummary import PointSummary
from fleetctl.bench.report.series import asked_words, families, main_cell, styles
from fleetctl.bench.report.words import MODES, bounds, number, seconds, times, verdict
from fleetctl.bench.summary import CellSummary, Summary
from fleetctl.words import counted

MOST_NAMED = 8
METHOD = (
    "Each request is streamed and greedy. Tokens/s of one request are the answer's tokens by the whole time from "
    "sending the request to the end of its answer, reading the prompt included.",
    "The first token's time is that of the first event with text. “Each token after” is the time from the first event "
    "to the last by the tokens after the first event: drafting gives several tokens in one event, so pauses are "
    "between events.",
    "Accepted length: tokens that a verify pass commits, the model's own included; 1 without drafting.",
    "Tokens/s of all: tokens of a round's requests by the time from the first one's start to the last one's end.",
    "Intervals are bootstrap intervals of 95 %: prompts are drawn anew first, then each one's repeats. Comparisons are "
    "geometric means of ratios, each prompt and repeat against the same one of the other service. A difference is "
    "only called one where its interval excludes 1.",
    "A request that failed is counted as failed and is in no mean. Warm-up requests are in none either. Outliers stay "
    "in all means, and are named.",
)


@dataclass(frozen=True)
class Row:
    """A point in the table of results; texts as they are shown."""

    name: str
    style: int
    mode: str
    best: str
    outcome: str
    speed: str
    speed_bounds: str
    ratio: str
    ratio_bounds: str
    accepted: str
    accepted_bounds: str
    first: str
    between: str
    throughput: str
    counted: int
    failed: int


def rows(summary: Summary, cell: CellSummary) -> list[Row]:
    """The table of a cell, in the order of measuring."""
    style = styles(summary)
    return [_row(summary.points[name], cell, style) for name in cell.names]


def _row(one: PointSummary, cell: CellSummary, style: Mapping[str, int]) -> Row:
    outcomes = dict.fromkeys(end.outcome for end in one.ends if end.outcome != "done")
    return Row(
        name=one.label,
        style=style.get(one.called.family, 0),
        mode=f"{one.point.mode}: {MODES.get(one.point.mode, one.point.engine)}",
        best=_rank(cell, one.name),
        outcome=", ".join(outcomes),
        speed=number(one.speed.mean if one.speed else None),
        speed_bounds=bounds(one.speed),
        ratio=_ratio(cell, one.name),
        ratio_bounds=_ratio_bounds(cell, one.name),
        accepted=number(one.accepted.mean if one.accepted else None),
        accepted_bounds=bounds(one.accepted),
        first=_two(one.first.at(0.5), one.first.at(0.9)),
        between=_two(one.between.at(0.5), one.between.at(0.9)),
        throughput=number(one.throughput.mean if one.throughput else None),
        counted=one.counted,
        failed=one.failed,
    )


def _rank(cell: CellSummary, name: str) -> str:
    """``fastest`` of the one that surely is; ``highest mean`` where the second may be as fast; "" of the others."""
    if name != cell.best or len(cell.names) < 2:
        return ""
    return "fastest" if cell.lead is None or cell.lead.sure else "highest mean"


def _ratio_bounds(cell: CellSummary, name: str) -> str:
    ratio = cell.ratios.get(name)
    if ratio is None:
        return ""
    return bounds(ratio.ratio)


def _ratio(cell: CellSummary, name: str) -> str:
    ratio = cell.ratios.get(name)
    if ratio is None:
        return "1" if name == cell.base else "–"
    return f"{'' if ratio.sure else '≈ '}{number(ratio.ratio.mean)} ×"


def _two(half: float | None, most: float | None) -> str:
    return "–" if half is None else f"{seconds(half)} / {seconds(most)}"


def cell_title(summary: Summary, cell: CellSummary) -> str:
    """What the points of a cell have in common, unlike that of any other cell."""
    point = summary.points[cell.names[0]].point
    length = f", {part(point)}" if CONTEXT in point.varied else ""
    return f"{point.host}, {point.concurrency} at once{length}{asked_words(summary, cell)}"


def verdicts(summary: Summary) -> list[str]:
    """What the main cell says; how that is where most requests come at once, if it was measured."""
    first = main_cell(summary)
    said = verdict(summary, first)
    last = max(summary.cells, key=lambda cell: summary.points[cell.names[0]].point.concurrency)
    if last is not first and len(last.names) > 1 and summary.points[last.names[0]].point.concurrency > 1:
        sentence = verdict(summary, last)[0]
        said.append(
            f"With {cell_title(summary, last).split(', ', 1)[1]}: {sentence[0].lower()}{sentence[1:]}"
        )
    return said


def agreement(summary: Summary) -> str:
    """Whether the services gave the same words, and which answers were not compared; some sentences."""
    beside = [cell for cell in summary.cells if len(cell.names) > 1]
    cells = [cell for cell in beside if cell.answers]
    if not beside and len(families(summary)) < 2:
        return "Only one service was measured, so there is nothing to compare its answers with."
    if beside and not cells:
        return "Answers were not compared: the suite does not want it."
    compared = {prompt for cell in cells for prompt, count in _answered(summary, cell).items() if count > 1}
    if not compared:
        return "No answers were compared: no two services that were measured alike answered the same prompt."
    differing = {difference.prompt for cell in cells for difference in cell.differences}
    missing = _uncompared(summary)
    if differing:
        said = (
            f"The answers differ on {len(differing)} of {counted(len(compared), 'prompt')}: "
            f"{_listed(sorted(differing))}. Greedy decoding should give the same words however tokens are drafted; "
            "rounding can turn a tie."
        )
    else:
        which = f"{'all ' if len(compared) > 1 else 'the '}{counted(len(compared), 'prompt')}"
        which += " that two or more of them answered" if missing else ""
        said = f"{'The' if missing else 'All'} services gave the same answers, character for character, to {which}."
    return f"{said} Not compared: {_listed(missing)}." if missing else said


def _answered(summary: Summary, cell: CellSummary) -> Counter[str]:
    """How many of a cell's points have an answer, by prompt."""
    return Counter(prompt for name in cell.names for prompt in summary.points[name].prompts)


def _uncompared(summary: Summary) -> list[str]:
    """Points without an answer that others of their cell have, and those beside which nothing was measured."""
    found = []
    for cell in (cell for cell in summary.cells if len(cell.names) > 1 and cell.answers):
        for name in cell.names:
            having = summary.points[name].prompts
            lacking = [prompt for prompt in _answered(summary, cell) if prompt not in having]
            if not having:
                found.append(f"{name} (no answer)")
            elif lacking:
                found.append(f"{name} (no answer to {_listed(lacking)})")
    alone = [cell.names[0] for cell in summary.cells if len(cell.names) == 1]
    return found + [f"{name} (nothing was measured like it)" for name in alone]


def care(summary: Summary) -> list[str]:
    """Failures, warnings, outliers, contradictions and answers that were not steady, each a sentence."""
    lines: list[str] = []
    for one in summary.points.values():
        if one.failed:
            lines.append(
                f"{one.name}: {one.failed} of {one.failed + one.counted} requests failed: {_kinds(one)}."
            )
        for end in one.ends:
            if end.why.startswith("measured before"):
                lines.append(f"{one.name}: {end.why}.")
            elif end.outcome != "done":
                ended = "failed" if end.outcome == "failed" else f"was {end.outcome}"
                lines.append(f"{one.name} {ended}: {end.why or 'no reason was recorded'}.")
            if abs(end.clock_jump_s) > 0.5:
                jump = f"the clock of the measuring machine jumped by {number(end.clock_jump_s)} s"
                lines.append(f"{one.name}: {jump}; times are of a clock that does not.")
        lines += [f"{one.name}: {count} × {word}." for word, count in one.warnings.items()]
        unsteady = [prompt.name for prompt in one.prompts.values() if prompt.unsteady]
        if unsteady:
            lines.append(f"{one.name}: repeats of one prompt gave different answers: {_listed(unsteady)}.")
        if one.outliers:
            what = "outlier, kept" if len(one.outliers) == 1 else "outliers, kept"
            lines.append(f"{one.name}: {len(one.outliers)} {what}: {_listed(one.outliers)}.")
    for cell in summary.cells:
        for comparison in cell.ratios.values():
            if comparison.sure and comparison.against:
                lines.append(
                    f"{comparison.one} against {comparison.other}: {times(comparison)}, but the other way on "
                    f"{_listed(comparison.against)}."
                )
    lines += [f"Records: {problem}." for problem in summary.problems]
    if summary.points and not any(one.failed for one in summary.points.values()):
        lines.insert(0, "No request failed.")
    return lines


def _kinds(one: PointSummary) -> str:
    """``http 500 (HTTP 500: no)``; of several kinds ``2 refused (no connection), 5 cut (…)``."""
    several = len(one.errors) > 1
    return ", ".join(
        (f"{count} " if several else "") + kind + (f" ({words[:200]})" if words else "")
        for kind, (count, words) in one.errors.items()
    )


def notices(summary: Summary) -> list[tuple[str, str]]:
    """What a reader must know before the numbers: runs that did not end well."""
    found = [
        (f"{'Interrupted' if outcome == 'interrupted' else outcome.capitalize()}.", f"{run}: {why}")
        for run, (outcome, why) in summary.outcomes.items()
        if outcome != "done"
    ]
    failed = sum(one.failed for one in summary.points.values())
    good = sum(one.counted for one in summary.points.values())
    if failed and failed * 20 > good:
        found.append((f"{failed} of {failed + good} requests failed.", "They are in no mean."))
    if not good:
        found.append(("No request brought an answer.", "There is nothing to measure by."))
    return found


def _listed(names: list[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
