"""Whether an environment still is what its patch sets made of it, and does what they promise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fleetctl.environment.events import OnEvent
from fleetctl.patches.environment import Environment
from fleetctl.patches.patchset import PatchSet
from fleetctl.patches.state import FileState, PatchState, State

PROVING_S = 3600.0


@dataclass(frozen=True)
class Proof:
    """What was found, in words, and how much was looked at; no findings: proven."""

    names: tuple[str, ...]
    findings: tuple[str, ...]
    evidence: tuple[str, ...] = ()
    ran: int = 0
    seconds: float = 0.0
    states: tuple[dict[str, Any], ...] = field(default=(), repr=False)

    def to_dict(self) -> dict[str, Any]:
        """As one JSON object (``--json``)."""
        return {
            "ok": not self.findings,
            "patch_sets": list(self.names),
            "findings": list(self.findings),
            "evidence": list(self.evidence),
            "ran": self.ran,
            "seconds": self.seconds,
            "states": list(self.states),
        }


def prove(
    environment: Environment, sets: Sequence[PatchSet], known: Sequence[PatchSet], on_event: OnEvent
) -> Proof:
    """Look at files and byte code of ``sets`` there, then run their imports and checks in its Python."""
    states = environment.states(sets, known)
    findings = [finding for state in states if state.state != State.PATCHED for finding in _state(state)]
    recorded = {entry["name"]: entry["sha256"] for entry in environment.patched()}
    for entry in sets:
        if recorded.get(entry.name, entry.digest) != entry.digest:
            findings.append(
                f"{entry.name} has changed since the environment was made: apply it to its base anew"
            )
    names = tuple(entry.name for entry in sets)
    shown = tuple(state.to_dict() for state in states)
    if findings:
        return Proof(names, tuple(findings), states=shown)
    sources = sorted({change.path for entry in sets for change in entry.changes})
    answer = environment.agent.call(
        "environment.prove",
        timeout=PROVING_S,
        on_event=on_event,
        path=environment.path,
        sources=sources,
        imports=sorted({name for entry in sets for name in entry.manifest.imports}),
        checks=[
            {"what": f"{entry.name}: {check.what}", "argv": check.command(), "seconds": check.seconds}
            for entry in sets
            for check in entry.manifest.checks
        ],
    )
    findings = [f"{entry['path']}: {entry['why']}" for entry in answer["stale"]]
    findings += [f"{entry['what']} fails (exit status {entry['status']})" for entry in answer["failed"]]
    evidence = tuple(line for entry in answer["failed"] for line in entry["lines"])
    return Proof(names, tuple(findings), evidence, answer["ran"], answer["seconds"], shown)


def _state(state: PatchState) -> list[str]:
    odd = [f"{path} ({kind.value})" for path, kind in state.files.items() if kind != FileState.AFTER]
    listed = f": {', '.join(odd)}" if odd else ""
    return [f"{state.patch_set.name} is {state.state.value}{listed}"]
