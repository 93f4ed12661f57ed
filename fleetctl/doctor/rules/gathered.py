"""What could not be looked at: a check that cannot be made says so, and why."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.doctor.known import at, mapping
from fleetctl.doctor.rule import Context, Found, rule

TOLD_ELSEWHERE = ("gpus", "cuda", "environments.")


@rule(
    "pkg-environment-unreadable",
    "error",
    reason="A service starts from its environment; where that is none, nothing of it runs.",
    source="bom.capture's refusal; seen on the first hosts: links to a system's Python and no packages",
    remedy="correct the environment's path in the inventory, or make it: `fleetctl env build`, `fleetctl env clone`",
)
def unreadable(context: Context) -> Iterator[Found]:
    for path, bom in mapping(context.facts.get("environments")).items():
        said = mapping(bom).get("error")
        if said and (context.service is None or context.service.environment == path):
            yield Found("the environment cannot be read", str(path), [str(said)])


@rule(
    "sys-not-seen",
    "info",
    reason="A part of the host that could not be looked at may hide what is wrong.",
    source="doctor.facts: errors",
    remedy="look at it by hand; as root, doctor sees more",
)
def not_seen(context: Context) -> Iterator[Found]:
    if context.service is not None or context.bom is not None:
        return
    parts = dict(mapping(context.facts.get("errors")))
    kernel = at(context.facts, "kernel_log", "error")
    if kernel and "kernel_log" not in parts:
        parts["kernel_log"] = kernel
    for part, why in parts.items():
        if not str(part).startswith(TOLD_ELSEWHERE):
            yield Found(f"{str(part).replace('_', ' ')}: could not be looked at", str(part), [str(why)])
