"""What was measured, on what, by which commands: facts of runs, machines and points in words. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from fleetctl.bench.pointsummary import PointSummary
from fleetctl.bench.report.words import seconds
from fleetctl.bench.summary import Summary
from fleetctl.words import counted


def run_facts(summary: Summary) -> list[tuple[str, str]]:
    """What a reader asks first: which model, when, how much."""
    good = sum(one.counted for one in summary.points.values())
    failed = sum(one.failed for one in summary.points.values())
    lengths = _each(summary, "max_tokens", "?")
    orders = _each(summary, "order", "in order")
    first, last = summary.runs[0].started, summary.runs[-1].started
    return [
        ("Model", summary.model),
        ("Measured", _moment(first) if first == last else f"{_moment(first)} to {_moment(last)}"),
        ("Requests", f"{good} counted, {failed} failed"),
        ("Answers", f"at most {' or '.join(lengths)} tokens, {' or '.join(orders)}"),
        ("Runs", ", ".join(run.id for run in summary.runs)),
        ("By", ", ".join(dict.fromkeys(run.operator for run in summary.runs))),
    ]


def description(summary: Summary) -> str:
    """What the suites are for, in the order of the runs."""
    return " · ".join(filter(None, _each(summary, "description", "")))


def _each(summary: Summary, name: str, absent: str) -> list[str]:
    """What the runs' suites say of one thing, each once."""
    return list(dict.fromkeys(str(run.suite.get(name, absent)) for run in summary.runs))


def machines(summary: Summary) -> list[tuple[str, list[tuple[str, str]]]]:
    """The hosts, and the machines that measured, each with its facts."""
    clients = {str(run.client.get("host")): run.client for run in summary.runs}
    hosts = [(host.host, _facts(host.facts)) for host in summary.hosts]
    return [*hosts, *((f"measured from {name}", _facts(client)) for name, client in clients.items())]


def _facts(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = {**facts, "memory": _memory(facts.get("memory"))}
    return [
        (name.replace("_", " "), _flat(value))
        for name, value in found.items()
        if value not in (None, [], {}, "")
    ]


def _memory(size: Any) -> Any:
    return f"{size / 2**30:.0f} GiB" if isinstance(size, int) and size > 2**20 else size


def point_facts(one: PointSummary) -> list[tuple[str, str]]:
    """What a service ran on, with the digests that tell it from another."""
    point = one.point
    swapped = sum(end.swap_s or 0 for end in one.ends)
    visits = sum(end.visits for end in one.ends)
    found = {
        "Environment": point.environment,
        "ABI": point.abi,
        "Patch sets": ", ".join(map(_flat, point.patches)),
        "Model": _flat(point.model),
        "Drafter": _flat(point.drafter) if point.drafter else "",
        "Place": f"{point.host}, slot {point.slot}",
        "Reached": "directly" if point.via == "direct" else f"by {point.via}, which adds latency",
        "Swaps to it": f"{seconds(swapped)} in {counted(visits, 'visit')}" if swapped else "",
        "Unit's sha256": point.unit_sha256,
        "Point's digest": point.digest,
    }
    return [(name, value) for name, value in found.items() if value]


def arguments(args: Mapping[str, Any]) -> str:
    """The engine's arguments as they stand on its command line."""
    words: list[str] = []
    for name, value in args.items():
        if value is False or value is None:
            continue
        words.append(f"--{name}")
        if value is not True:
            words += [shlex.quote(str(part)) for part in (value if isinstance(value, list) else [value])]
    return " ".join(words) or "(no arguments)"


def commands(summary: Summary) -> list[str]:
    """What was typed to measure, and what makes this report again."""
    runs = [run.id for run in summary.runs]
    return [*(shlex.join(run.command) for run in summary.runs), shlex.join(["fleetctl", "report", *runs])]


def prompt_text(summary: Summary, name: str) -> str:
    """What a prompt asks, where the records say it."""
    for run in summary.runs:
        prompts = run.suite.get("prompts")
        for prompt in prompts if isinstance(prompts, list) else []:
            if isinstance(prompt, dict) and prompt.get("name") in (name, name.rpartition("#")[0]):
                messages = prompt.get("messages") or []
                said = [
                    f"{one.get('role')}: {one.get('content')}" for one in messages if isinstance(one, dict)
                ]
                return str(prompt.get("text") or "\n".join(said))
    return ""


def _moment(iso: str) -> str:
    return iso[:16].replace("T", " ") + " UTC"


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{_flat(part)}" for part in value.values() if part not in (None, ""))
    if isinstance(value, list):
        flat = [_flat(part) for part in value]
        same = {text: flat.count(text) for text in flat}
        return "; ".join(f"{count} × {text}" if count > 1 else text for text, count in same.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)
