"""In which order and how many at a time the hosts of a fleet rollout come, and when it stops. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from fleetctl.transport.fleet import AT_ONCE

T = TypeVar("T")


@dataclass(frozen=True)
class Pace:
    """``max_parallel`` hosts at once; ``canary`` hosts first, all of which must succeed; a ``pause_s`` in seconds
    between waves, in which what was done is watched; no host is begun once more than ``max_failures`` failed."""

    max_parallel: int = AT_ONCE
    canary: int = 0
    max_failures: int = 0
    pause_s: float = 0.0


@dataclass(frozen=True)
class Wave(Generic[T]):
    """Hosts that are begun without a pause; ``is_canary``: one failure among them ends the whole."""

    hosts: list[T]
    is_canary: bool = False


def waves(hosts: Sequence[T], pace: Pace) -> list[Wave[T]]:
    """The canaries, then the rest: at once, or where there is a pause in waves of ``max_parallel``."""
    first, rest = list(hosts[: pace.canary]), list(hosts[pace.canary :])
    size = pace.max_parallel if pace.pause_s else max(1, len(rest))
    later = [Wave(rest[at : at + size]) for at in range(0, len(rest), size)]
    return [*([Wave(first, is_canary=True)] if first else []), *later]


def must_stop(failures: int, wave: Wave[T], pace: Pace) -> str:
    """Why no further host may be begun, in words; empty where one may."""
    if wave.is_canary and failures:
        return f"{failures} of the canaries failed"
    if failures > pace.max_failures:
        return f"{failures} failed, and --max-failures is {pace.max_failures}"
    return ""
