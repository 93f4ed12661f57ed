"""The lines of a benchmark's records, as types. docs/bench.md tells what each means."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import msgspec

SCHEMA = 1

Count = Annotated[int, msgspec.Meta(ge=0)]
Duration = Annotated[float, msgspec.Meta(ge=0)]
Outcome = Literal["done", "stopped", "interrupted", "failed"]
ErrorKind = Literal[
    "http",
    "refused",
    "cut",
    "timeout",
    "empty",
    "broken-sse",
    "usage",
    "repeats",
    "early",
    "context",
    "disturbed",
]


@dataclass(frozen=True)
class Run:
    """The first line: what was asked for, by whom, from where. ``seed`` is the suite's; ``started`` ISO 8601, UTC."""

    kind: ClassVar[str] = "run"
    id: str
    started: str
    suite: dict[str, Any]
    prompts_digest: str
    command: list[str]
    fleetctl: str
    operator: str
    seed: int
    client: dict[str, Any]
    schema: int = SCHEMA


@dataclass(frozen=True)
class HostFacts:
    """One host of the run: ``facts`` has hostname, os, kernel, cpus, memory, gpus (name, driver, memory)."""

    kind: ClassVar[str] = "host"
    host: str
    facts: dict[str, Any]


@dataclass(frozen=True)
class Point:
    """One service as it was measured. Requests of points with different ``digest`` are never averaged together.

    ``varied``: what the suite varied here, in engine-neutral names; ``args``: the engine's arguments as run; ``via``:
    ``direct``, or ``ssh`` where requests went through a forward, which adds latency.
    """

    kind: ClassVar[str] = "point"
    id: str
    host: str
    slot: str
    service: str
    mode: str
    engine: str
    args: dict[str, Any]
    varied: dict[str, Any]
    environment: str | None
    abi: str | None
    patches: list[Any]
    model: dict[str, Any]
    drafter: dict[str, Any] | None
    concurrency: Annotated[int, msgspec.Meta(ge=1)]
    suite_part: str
    digest: str
    unit_sha256: str
    started: str
    via: str = "direct"


@dataclass(frozen=True)
class Failure:
    """Why a request does not count; ``status``: HTTP's, where there was an answer."""

    kind: ErrorKind
    status: int | None = None
    what: str = ""


@dataclass(frozen=True)
class Accepted:
    """Verify passes of an answer, and the draft tokens that they accepted."""

    passes: Count
    tokens: Count

    @property
    def length(self) -> float:
        """Tokens a pass committed, the target's own included; 1 without drafting."""
        return 1 + self.tokens / self.passes if self.passes else 1.0


@dataclass(frozen=True)
class Tree:
    """The drafted tree of one step: ``parents`` by index, -1 for the root; ``accepted``: nodes in order, without it.

    ``next``: the token that the target itself put after them.
    """

    step: int
    tokens: list[str]
    parents: list[int]
    probs: list[float] | None
    accepted: list[int]
    next: str | None = None


@dataclass(frozen=True)
class Request:
    """One request as the client saw it.

    ``started_s``: since the run began; ``ttft_s``, ``end_s`` and the times in ``events``: since the request was
    sent. ``events``: ``(seconds, tokens in this event)``, empty ones left out. ``by``: the load generator that
    measured it, None for fleetctl's own client.
    """

    kind: ClassVar[str] = "request"
    point: str
    prompt: str
    prompt_kind: str
    repeat: int
    round: int
    warmup: bool
    started_s: float
    ttft_s: Duration | None
    end_s: Duration
    events: list[tuple[float, int]]
    tokens: Count
    tokens_from: Literal["usage", "events", "text"]
    prompt_tokens: Count | None
    text: str
    finish: str | None
    usage: dict[str, Any] | None = None
    accepted: Accepted | None = None
    trees: list[Tree] | None = None
    error: Failure | None = None
    warnings: list[str] = field(default_factory=list)
    by: str | None = None

    @property
    def counts(self) -> bool:
        """Whether statistics take it: measured, and without an error."""
        return not self.warmup and self.error is None


@dataclass(frozen=True)
class PointEnd:
    """How a point ended. ``metrics``: the server's counters ``before`` and ``after``, summed over the point's visits,
    so that their difference is what the point brought; ``swap_s``: seconds of all swaps to it, None without one.
    ``clock_jump_s``: how far the wall clock went beside the monotonic one. ``disturbed``: rounds during which the
    service was changed or restarted: their requests do not count.
    """

    kind: ClassVar[str] = "point-end"
    point: str
    outcome: Outcome
    why: str = ""
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    swap_s: float | None = None
    wall_s: float = 0.0
    client_cpu_s: float = 0.0
    clock_jump_s: float = 0.0
    visits: int = 1
    disturbed: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class End:
    """The last line; where it is missing the run was killed."""

    kind: ClassVar[str] = "end"
    outcome: Outcome
    why: str
    ended: str


Record = Run | HostFacts | Point | Request | PointEnd | End


_ENCODER = msgspec.json.Encoder()


def encode(record: Record) -> bytes:
    """A record as its line, without the line's end; fields that are absent by default are left out.

    Halves of surrogate pairs, which JSON can bring and UTF-8 cannot hold, become U+FFFD.
    """
    data = {"kind": record.kind, **msgspec.to_builtins(record)}
    for absent in ("trees", "by"):
        if data.get(absent, 0) is None:
            del data[absent]
    try:
        return _ENCODER.encode(data)
    except UnicodeEncodeError:
        return _ENCODER.encode(_whole(data))


def _whole(value: Any) -> Any:
    """The same with texts that UTF-8 can hold; two halves that stand together are one character again."""
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            return {_whole(key): _whole(entry) for key, entry in value.items()}
        case list() | tuple():
            return [_whole(entry) for entry in value]
        case _:
            return value
