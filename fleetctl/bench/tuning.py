"""What a tuning decides: which prompts it may look at, whom it checks its choice against, what it then says. Pure."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import yaml

from fleetctl.bench.points import Planned
from fleetctl.bench.prompts import Prompt
from fleetctl.bench.race import FEWEST_PROMPTS, Elimination, Race
from fleetctl.bench.statistics import CONFIDENCE, Interval, Values, differs, log_ratios, paired_ratio
from fleetctl.errors import FleetError
from fleetctl.inventory.models import Argument, Host, default_unit

Verdict = Literal["confirmed", "not significant", "contradicted"]


@dataclass(frozen=True)
class Check:
    """The choice beside ``other`` on prompts that nothing was chosen by."""

    other: str
    ratio: Interval
    verdict: Verdict


@dataclass(frozen=True)
class Tuning:
    """What came of it. ``choice``: quickest of those left; ``advice``: what to run, which may be what runs now.

    ``apart``: candidates that could not be told from the choice; ``confidence``: that the best is among these and the
    choice, and, anew, of all ``checks`` together.
    """

    run: str
    path: Path
    choice: str
    advice: str
    incumbent: str | None
    apart: list[str]
    out: list[Elimination]
    failed: dict[str, str]
    checks: list[Check]
    prompts: tuple[int, int]
    why: str
    entry: str
    confidence: float = CONFIDENCE

    def to_dict(self) -> dict[str, Any]:
        """The tuning as one JSON object (``--json``)."""
        return {
            "run": self.run,
            "records": str(self.path),
            "choice": self.choice,
            "advice": self.advice,
            "incumbent": self.incumbent,
            "why": self.why,
            "not_told_apart": self.apart,
            "beaten": [vars(one) for one in self.out],
            "failed": self.failed,
            "checks": [
                {"other": one.other, "verdict": one.verdict, "ratio": vars(one.ratio)} for one in self.checks
            ],
            "prompts": {"chosen_with": self.prompts[0], "held_out": self.prompts[1]},
            "confidence": self.confidence,
            "entry": yaml.safe_load(self.entry),
        }


@dataclass(frozen=True)
class Split:
    """Prompts to choose with, and those held out to check the choice with."""

    chosen_with: list[Prompt]
    held_out: list[Prompt]


def split(prompts: Sequence[Prompt], share: float, seed: int) -> Split:
    """Hold out ``share`` of each kind of prompts, drawn by ``seed``; the rest in a mixed order.

    FleetError (exit 2) where there are too few.
    """
    draw = random.Random(seed)
    kinds: defaultdict[str, list[Prompt]] = defaultdict(list)
    for prompt in prompts:
        kinds[prompt.kind].append(prompt)
    held: list[Prompt] = []
    rest: list[Prompt] = []
    owed = 0.0
    for members in kinds.values():
        draw.shuffle(members)
        owed += share * len(members)
        count = min(round(owed), len(members))
        owed -= count
        held += members[:count]
        rest += members[count:]
    draw.shuffle(rest)
    if min(len(held), len(rest)) < FEWEST_PROMPTS:
        raise FleetError(
            f"{len(prompts)} prompts are {len(rest)} to choose with and {len(held)} to check the choice with: each "
            f"needs {FEWEST_PROMPTS}",
            fix="give a workload of more prompts: --workload FILE; ten or more tell small differences apart",
        )
    return Split(rest, held)


def rivals(race: Race, choice: str, incumbent: str | None, points: Mapping[str, Planned]) -> list[str]:
    """Whom the choice is checked against: what runs now, and the quickest candidate of another service."""
    found = [incumbent] if incumbent not in (None, choice) else []
    others = [name for name in race.names if points[name].service != points[choice].service]
    measured = {name: race.ratio(name, choice) for name in others if name not in race.dropped}
    known = {name: ratio for name, ratio in measured.items() if ratio is not None}
    if known:
        best = max(known, key=lambda name: known[name])
        found += [best] if best not in found else []
    return [name for name in found if name is not None]


def check(choice: Values, others: Mapping[str, Values], seed: int, copies: int = 1) -> list[Check]:
    """The choice beside each of ``others``, all together with the usual confidence (Bonferroni).

    A difference must show in each round (``copies`` repeats) too: a busy stretch of the machine lasts for one.
    """
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(others))
    found = []
    for name, speeds in others.items():
        ratio = paired_ratio(choice, speeds, seed=seed, confidence=confidence)
        verdict: Verdict = "not significant"
        if differs(ratio) and _same_way_each_round(choice, speeds, copies):
            verdict = "confirmed" if ratio.mean > 1 else "contradicted"
        found.append(Check(name, ratio, verdict))
    return found


def _same_way_each_round(choice: Values, other: Values, copies: int) -> bool:
    rounds: defaultdict[int, list[float]] = defaultdict(list)
    for (_, repeat), log in log_ratios(choice, other).items():
        rounds[(repeat - 1) // copies].append(log)
    return len({fmean(logs) > 0 for logs in rounds.values()}) == 1


def advise(choice: str, incumbent: str | None, checks: Sequence[Check]) -> tuple[str, str]:
    """What to run, and why: the choice, unless what runs now is not surely slower."""
    worse = next((one for one in checks if one.verdict == "contradicted"), None)
    if worse is not None:
        return (
            worse.other,
            f"on prompts it was not chosen with, {worse.other} is quicker: the choice does not hold",
        )
    if incumbent is None:
        return choice, "nothing of these ran before"
    if choice == incumbent and all(one.verdict == "confirmed" for one in checks):
        return choice, "what runs now is the quickest; nothing is to be changed"
    beside = next((one for one in checks if one.other == incumbent), None)
    if beside is not None and beside.verdict == "confirmed":
        return (
            choice,
            f"{beside.ratio.mean:.2f} times as fast as what runs now, on prompts it was not chosen with",
        )
    best = "the best of another service" if choice == incumbent else "the quickest of the race"
    return incumbent, (
        f"no significant difference between what runs now and {best} was found: leave things as they are"
    )


def entry(host: Host, service: str, overrides: Mapping[str, Argument]) -> str:
    """The service as it is to stand in the inventory, as YAML."""
    found = host.services[service]
    data = found.model_dump(exclude_defaults=True)
    data["args"] = {**found.args, **overrides}
    standard = {
        "unit": default_unit(service),
        "model_id": found.model,
        "template": f"{found.engine}.service.j2",
    }
    kept = {
        name: value
        for name, value in data.items()
        if value != standard.get(name) and (name != "args" or value)
    }
    text: str = yaml.safe_dump({service: _plain(kept)}, sort_keys=False, allow_unicode=True)
    return text


def _plain(value: Any) -> Any:
    """Whole numbers without a fraction, as people write them."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value
