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

Verdict = Literal["slower", "faster", "same", "unsure", "lost", "new"]
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Change:
    """One point in two runs: ``ratio`` is how many times as fast it is now, over the prompts of both.

    ``slower``: by more than the tolerance, and its interval excludes none; ``faster``: its interval excludes none;
    ``unsure``: it would be one of them, but one run has a single round, which cannot tell that from drift. ``lost``:
    the baseline has answers of it that the new run lacks, ``new``: the other way round; ``why`` says more.
    ``failed``: requests, in either run; ``broke``: those that failed now and did not in the baseline.
    ``first``: where greedy answers are not the same any more, the first prompt and its character.
    """

    point: str
    verdict: Verdict
    ratio: Interval | None
    failed: tuple[int, int]
    broke: list[str]
    first: tuple[str, int] | None
    why: str = ""

    @property
    def worse(self) -> bool:
        """Whether a check of the new run must fail."""
        return self.verdict in ("slower", "lost") or bool(self.broke)

    def to_dict(self) -> dict[str, Any]:
        """One JSON object."""
        return {**asdict(self), "worse": self.worse}


def compare(before: Recording, after: Recording, tolerance: float) -> list[Change]:
    """Each point of ``before`` against the same one of ``after``, then those that only ``after`` has.

    FleetError (exit 2) where the models, the prompts or the answers' length differ, the baseline has no answer, or
    ``after`` was of other points altogether: such numbers say nothing about each other.
    """
    _require_alike(before, after)
    known = {_key(point): point for point in before.points if _speeds(before.of(point.id))}
    found = {_key(point): point for point in after.points}
    if not known or (found and not known.keys() & found.keys()):
        raise FleetError(
            "no point was measured in both runs",
            f"{before.run.id} and {after.run.id}",
            "measure the same services with the same suite",
            [f"{one.run.id}: {', '.join(point.id for point in one.points)}" for one in (before, after)],
        )
    for key, new in found.items():
        if key in known and new.digest:
            _require_one_model(known[key], new)
    changes = [_change(before, old, after, found.get(key), tolerance) for key, old in known.items()]
    return changes + [_new(after, new) for key, new in found.items() if key not in known]


def hosts(recording: Recording) -> list[str]:
    """The hosts that a run measured on; points of two hosts are compared, and who reads that must know it."""
    return list(dict.fromkeys(point.host for point in recording.points))


def _change(before: Recording, old: Point, after: Recording, new: Point | None, tolerance: float) -> Change:
    one = before.of(old.id)
    if new is None:
        return Change(old.id, "lost", None, (_failed(one), 0), [], None, "it was not measured")
    other = after.of(new.id)
    values, now = _speeds(one), _speeds(other)
    ratio = paired_ratio(now, values) if now.keys() & values.keys() else None
    was, end = before.ends.get(old.id), after.ends.get(new.id)
    gave_up = end is not None and end.outcome == "failed" and (was is None or was.outcome != "failed")
    verdict: Verdict = "lost"
    if ratio is not None and not gave_up:
        verdict = _verdict(ratio, tolerance, min(_rounds(one), _rounds(other)))
    return Change(
        new.id,
        verdict,
        ratio,
        (_failed(one), _failed(other)),
        sorted(_failures(other) - _failures(one)),
        _first(one, other),
        ((end.why if end else "") or "it has no answer to the same prompts") if verdict == "lost" else "",
    )


def _new(after: Recording, point: Point) -> Change:
    requests = after.of(point.id)
    whose = "the baseline has no" if _speeds(requests) else "neither run has an"
    return Change(point.id, "new", None, (0, _failed(requests)), [], None, f"{whose} answer of it")


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


def _failures(requests: Sequence[Request]) -> set[str]:
    return {f"{one.prompt} #{one.repeat}" for one in requests if one.error is not None and not one.warmup}


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
