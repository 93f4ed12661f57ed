"""How a rollout ended: the result's body, and the undo that a failure ends with."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, Set

from fleetctl.agent.rollout.signatures import Signature
from fleetctl.agent.rollout.steps import Work
from fleetctl.agent.rollout.undo import undo
from fleetctl.agent.units import systemd

Json = Dict[str, Any]

DONE = 0
ROLLED_BACK = 6
NOT_RESTORED = 7
SUPERSEDED = ROLLED_BACK


class LeftToBoot(Exception):
    """The host goes down, nothing can be started: what was begun is settled at the next boot."""


def conclude(work: Work, begun: Set[str], failed: Json) -> Json:
    """Undo, and write the result that says what came of it; of a host that goes down, the next boot's to do."""
    undone = undo(work, begun)
    if undone.problems and systemd.is_stopping():
        raise LeftToBoot
    if not undone.problems:
        return work.record.result({**failed, "left": undone.left})
    unit = work.old["unit"] if work.old else work.new["unit"]
    fix = (
        f"a person is needed: {undone.fix}"
        if undone.fix
        else (
            f"a person is needed: `systemctl status {unit}` and `journalctl -u {unit}` say why; "
            f"the units as they were are in {work.record.folder / 'before'}"
        )
    )
    reason = f"{failed['reason']}; and not restored: {undone.problems[0]}"
    evidence = [*failed["evidence"], *undone.evidence]
    whole = {**failed, "reason": reason, "fix": fix, "evidence": evidence, "left": undone.left}
    return work.record.result({**whole, "outcome": "not-restored", "exit": NOT_RESTORED})


def outcome(
    name: str,
    code: int,
    reason: str,
    fix: str = "",
    evidence: Sequence[str] = (),
    signature: Optional[Signature] = None,
    left: str = "",
) -> Json:
    """A result's body; the record adds the failed step and the seconds."""
    body: Json = {"outcome": name, "exit": code, "reason": reason, "fix": fix, "evidence": list(evidence)}
    body["left"] = left
    if signature:
        body["signature"] = shown(signature)
    return body


def shown(signature: Optional[Signature]) -> Optional[Json]:
    """A signature as results carry it."""
    return {key: signature.get(key) for key in ("id", "reason", "fix", "line")} if signature else None
