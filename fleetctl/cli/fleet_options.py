"""The options that ``deploy``, ``swap`` and ``rollback`` share where they are for many hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fleetctl.rollout.waves import Pace

HOSTS = "Hosts: names, globs (ct*), groups (@blackwell, @all), 'gpus>=4', 'arch=sm120', '!ct129'; a comma narrows."

MaxParallel = Annotated[int, typer.Option("--max-parallel", min=1, help="At most so many hosts at once.")]
Canary = Annotated[
    int, typer.Option("--canary", min=0, help="So many hosts first; the others only if all of these succeed.")
]
MaxFailures = Annotated[
    int,
    typer.Option("--max-failures", min=0, help="Begin no further host once more than so many have failed."),
]
Pause = Annotated[
    float,
    typer.Option(
        "--pause",
        min=0,
        metavar="SECONDS",
        help="Between waves; what was done is watched, a failure stops the rest.",
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Skip the hosts that the last such rollout has done already.")
]
PARALLEL = 32


def pace(max_parallel: int, canary: int, max_failures: int, pause: float) -> Pace:
    """The options as one value."""
    from fleetctl.rollout.waves import Pace

    return Pace(max_parallel, canary, max_failures, pause)
