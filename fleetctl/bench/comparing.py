"""Two runs of the same services: what became slower, by how much, and how surely. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from fleetctl.bench.agreement import difference
from fleetctl.bench.record import Point, Request
from fleetctl.bench.records import Recording
from fleetctl.bench.statistics import Interval, differs, paired_ratio
from fleetctl.errors import FleetError

Verdict = Literal["slower", "faster", "same", "unsure"]
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Change:
    """One point in two runs: ``ratio`` is how many times as fast it is now, over the prompts of both.

    ``slower``: by more than the tolerance, and its interval excludes none; ``faster``: its interval excludes none;
    ``unsure``: it would be one of them, but one run has a single round, which cannot tell that from drift.
    ``first``: where greedy answers are not the same any more, the first prompt and its character.
    """

    point: str
    verdict: Verdict
    ratio: Interval
    failed: tuple[int, int]
    first: tuple[str, int] | None

    def to_dict(self) -> dict[str, Any]:
        """One JSON object."""
        return asdict(self)


def compare(before: Recording, after: Recording, tolerance: float) -> list[Change]:
    """Each point of ``after`` against the same one of ``before``.

    FleetError (exit 2) where the models, the prompts or the answers' length differ, or no point is in both: such
    numbers say nothing about each other.
    """
    _require_alike(before, after)
    known = {_key(point): point for point in before.points if point.digest}
    pairs = [(known[_key(point)], point) for point in after.points if point.digest and _key(point) in known]
    if not pairs:
        raise FleetError(
            "no point was measured in both runs",
            f"{before.run.id} and {after.run.id}",
            "measure the same services with the same suite",
            [f"{one.run.id}: {', '.join(point.id for point in one.points)}" for one in (before, after)],
        )
    for old, new in pairs:
        _require_one_model(old, new)
    changes = []
    for old, new in pairs:
        one, other = before.of(old.id), after.of(new.id)
        values, now = _speeds(one), _speeds(other)
        if not values or not now:
            raise FleetError(
                f"{new.id} has no answer that counts in {(before if not values else after).run.id}",
                fix="fleetctl bench show says why; compare without it: measure the others alone",
            )
        ratio = paired_ratio(now, values)
        failed = (_failed(one), _failed(other))
        changes.append(
            Change(
                new.id,
                _verdict(ratio, tolerance, min(_rounds(one), _rounds(other))),
                ratio,
                failed,
                _first(one, other),
            )
        )
    return changes


def _verdict(ratio: Interval, tolerance: float, rounds: int) -> Verdict:
    slower = ratio.mean < 1 - tolerance
    if not differs(ratio) and not (slower and ratio.low is None):
        return "same"
    if not slower and ratio.mean <= 1:
        return "same"
    return "unsure" if rounds < 2 else "slower" if slower else "faster"


def _rounds(requests: Sequence[Request]) -> int:
    return len({one.round for one in requests if one.counts})


def _require_alike(before: Recording, after: Recording) -> None:
    where = f"{before.run.id} and {after.run.id}"
    fix = "compare runs of the same suite"
    if before.run.prompts_digest != after.run.prompts_digest:
        raise FleetError("the runs asked different prompts", where, fix)
    for name in ("max_tokens", "turns"):
        one, other = before.run.suite.get(name), after.run.suite.get(name)
        if one != other:
            raise FleetError(f"the runs have different {name}: {one} and {other}", where, fix)


def _require_one_model(old: Point, new: Point) -> None:
    """The same model, by its id and, where both are known, by its digest. Drafters and all else may differ."""
    ids = [str(point.model.get("id")) for point in (old, new)]
    digests = [str(point.model.get("digest") or "") for point in (old, new)]
    if ids[0] != ids[1]:
        raise _models(new, " and ".join(ids))
    if all(digests) and digests[0] != digests[1]:
        raise _models(new, " and ".join(digest[:12] for digest in digests))


def _models(point: Point, said: str) -> FleetError:
    return FleetError(
        f"{point.id} was measured with different models: {said}",
        fix="runs of different models are never compared; make a report of each alone",
    )


def _key(point: Point) -> Key:
    return (point.service, point.mode, tuple(sorted(point.varied.items(), key=str)), point.concurrency)


def _speeds(requests: Sequence[Request]) -> dict[tuple[str, int], float]:
    """Tokens a second of each request that counts, by prompt and repeat."""
    return {
        (one.prompt, one.repeat): one.tokens / one.end_s
        for one in requests
        if one.counts and one.tokens and one.end_s > 0
    }


def _failed(requests: Sequence[Request]) -> int:
    return sum(one.error is not None and not one.warmup for one in requests)


def _first(before: Sequence[Request], after: Sequence[Request]) -> tuple[str, int] | None:
    """The first prompt to which no repeat before gave the same answer, and the first character that differs."""
    texts: dict[str, list[str]] = {}
    for one in before:
        if one.counts:
            texts.setdefault(one.prompt, []).append(one.text)
    for one in after:
        known = texts.get(one.prompt, [])
        if one.counts and known and one.text not in known:
            parted = [difference(one.prompt, "", old, "", one.text) for old in known]
            return one.prompt, max(found.at for found in parted if found)
    return None
