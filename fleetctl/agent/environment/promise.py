"""Whether an environment holds what the digest says by which the controller planned: proved, or refused.

An environment of fleetctl that nobody edited is proved by its marker's stamp, and anything else by reading the
copy that was made of it, which nobody writes to any more.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

from fleetctl.agent.capture.bom import Capture
from fleetctl.agent.capture.foldertree import CACHE, listed, shown
from fleetctl.agent.capture.verify import bom_findings, path_findings
from fleetctl.agent.environment.base import Base
from fleetctl.agent.errors import PREFLIGHT, AgentError
from fleetctl.agent.paths import MARKER

Emit = Callable[[Dict[str, Any]], None]
Json = Dict[str, Any]


class Promise:
    """What ``base`` is meant to hold: ``digest`` is its marker's or its bill of materials'; None: whatever it holds."""

    def __init__(self, base: Base, digest: Optional[str], root: Path, host: str = "") -> None:
        self.base = base
        self.digest = digest
        self.host = host
        content = base.proof.content or {}
        ours = os.path.realpath(base.path).startswith(os.path.realpath(root) + "/envs/")
        self._known = {content.get("digest"), content.get("content")} if ours else set()

    @property
    def is_kept(self) -> bool:
        """Whether the marker proves it, or nothing was promised."""
        return self.digest is None or (self.base.proof.holds and self.digest in self._known)

    def require_unedited(self) -> None:
        """Refuse an environment of fleetctl that is meant as its marker says, and was edited since. Exit 5."""
        if self.is_kept or self.digest not in self._known:
            return
        bom = _captured(self.base.path, lambda event: None, (), native=False).run()
        found = edited(self.base, bom)
        if bom["digest"] == self.digest or (not found and self._has_no_stamp()):
            return
        place = f"{self.host}:{self.base.path}" if self.host else self.base.path
        raise AgentError(
            f"{shown(self.base.path)} was edited in place since fleetctl made it: {listed(found) or 'files are gone'}",
            where=shown(self.base.path),
            fix=f"see `fleetctl env verify {place}`, and make it anew (`fleetctl env prune`, then build it again); "
            f"or `fleetctl env clone {place} NAME` names what is in it now, to go on from",
            evidence=[shown(path) for path in found[:20]],
            exit=PREFLIGHT,
        )

    def require_content(self, copy: str, emit: Emit) -> None:
        """Refuse where the copy of the base's files at ``copy`` is not of the promised digest. Exit 5."""
        now = _captured(copy, emit, self.base.trust.old, native=False).run()["digest"]
        if self.digest == now or (self.digest in self._known and self._has_no_stamp()):
            return
        raise AgentError(
            f"{shown(self.base.path)} changed while it was copied: what came is {now}, planned was {self.digest}",
            where=shown(self.base.path),
            fix="wait until who changes it (pip, a build, an editor) has ended, then run it again",
            exit=PREFLIGHT,
        )

    def _has_no_stamp(self) -> bool:
        return "stamp" not in (self.base.proof.content or {})


def edited(base: Base, bom: Json) -> List[str]:
    """Files of an environment of fleetctl that are not as they were made, as far as that can be told."""
    differ = [path for one in bom["distributions"] for key in ("changed", "missing") for path in one[key]]
    made = base.tree.files[MARKER].st_mtime_ns
    newer = [
        path
        for path, stat in base.tree.files.items()
        if stat.st_mtime_ns > made and CACHE not in path and path != MARKER
    ]
    return sorted({*differ, *newer})


def require_verified(
    copy: str, final: str, origin: Json, abi: str, places: Sequence[str], emit: Emit
) -> Json:
    """The bill of materials of a derived environment at ``copy`` that is to be called ``final``.

    Refuses (exit 5) what ``environment.verify`` would find an error in, and an ABI tag that lacks a part of ``abi``.
    """
    captured = _captured(copy, emit, [*places, final], native=True)
    bom: Json = captured.run()
    findings = [*bom_findings(bom), *path_findings(captured.tree, {"origin": origin}, final)]
    wrong = [one for one in findings if one["severity"] == "error"]
    if wrong:
        raise AgentError(
            f"it would not be what it should be: {wrong[0]['what']}".replace(copy, final),
            where=str(wrong[0]["where"] or final).replace(copy, final),
            fix=f"{wrong[0]['fix'] or 'mend what it is made from'}; nothing was left behind",
            evidence=[f"{one['what']} {one['where']}".strip().replace(copy, final) for one in wrong],
            exit=PREFLIGHT,
        )
    lacking = sorted(set(abi.split("-")) - {"", *(bom["abi"]["tag"] or "").split("-")})
    if lacking:
        raise AgentError(
            f"it would have the ABI tag {bom['abi']['tag']}; it must have {abi}",
            where=final,
            fix=f"take what brings {', '.join(lacking)}, or correct `abi:` in the specification",
            exit=PREFLIGHT,
        )
    return bom


def _captured(path: str, emit: Emit, places: Sequence[str], native: bool) -> Capture:
    def waits(event: Json) -> None:
        if event["state"] == "wait":
            emit(event)

    return Capture(path, waits, True, native, places)
