"""Bring a model's files to a host, once; an interrupted transfer goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetctl.environment.events import OnEvent
from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.models import ModelRef
from fleetctl.transport.agent import Agent
from fleetctl.transport.settings import Host

CACHE = ".fleetctl/digests"


@dataclass(frozen=True)
class ModelPlan:
    """What bringing a model would do; ``files`` are relative paths and bytes."""

    path: str
    source: Path | None
    digest: str
    is_there: bool
    files: dict[str, int]
    sent_before: int
    free: int
    device: int

    @property
    def send_bytes(self) -> int:
        """Bytes to be sent; 0 where it is there."""
        return 0 if self.is_there else max(0, sum(self.files.values()) - self.sent_before)

    def to_dict(self) -> dict[str, Any]:
        """The plan as one JSON object (``--json``)."""
        return {
            "path": self.path,
            "digest": self.digest,
            "is_there": self.is_there,
            "send_bytes": self.send_bytes,
            "free_bytes": self.free,
        }


@dataclass(frozen=True)
class ModelOnHost:
    """A model that is on the host; ``sent`` says whether it was sent just now."""

    path: str
    digest: str
    sent: bool


def survey_model(agent: Agent, ref: ModelRef, root: Path) -> ModelPlan:
    """What bringing the model would do; changes nothing on the host.

    ``root`` is the fleet folder. :class:`FleetError`: exit 2 where the source is no folder of files, exit 5
    where a model without a source is not on the host, or where its path holds another or a damaged one: a
    model, like an environment, is never changed once it is there.
    """
    there = agent.call("model.status", path=ref.path)
    if there["damaged"]:
        raise FleetError(
            f"the model on the host is damaged: {there['damaged'][0]}",
            where=ref.path,
            fix=f"`rm -rf {ref.path}` there, then deploy again: it is brought anew; nothing was changed",
            evidence=there["damaged"][:10],
            exit=Exit.PREFLIGHT,
        )
    if ref.source is None:
        if not there["exists"]:
            raise FleetError(
                "the model is not on the host, and the inventory names no source to send it from",
                where=ref.path,
                fix="put it there, or give the model a `source` folder on this machine",
                exit=Exit.PREFLIGHT,
            )
        return ModelPlan(
            ref.path, None, there["digest"] or "", True, {}, 0, there["free_bytes"], there["device"]
        )
    if there["exists"] and there["digest"] is None:
        raise FleetError(
            "the model's path holds something that fleetctl did not send",
            where=ref.path,
            fix="use it as it is (remove `source` from the model), or move it away",
            exit=Exit.PREFLIGHT,
        )
    source = root / ref.source
    digest, files = fingerprint(source, root / CACHE)
    is_there = there["digest"] == digest
    if there["exists"] and not is_there:
        raise FleetError(
            f"the model on the host is another one: {there['digest']} there, {digest} in {source}",
            where=ref.path,
            fix="give the changed model a path of its own in the inventory: what serves now may be started again",
            exit=Exit.PREFLIGHT,
        )
    sent = there["partial_bytes"]
    return ModelPlan(ref.path, source, digest, is_there, files, sent, there["free_bytes"], there["device"])


def ensure_model(agent: Agent, host: Host, ref: ModelRef, root: Path, on_event: OnEvent) -> ModelOnHost:
    """Send the model unless the same files are there.

    :class:`FleetError`: as :func:`survey_model`; exit 3 when the link fails, 5 when the host cannot hold it.
    """
    return apply_model(agent, host, survey_model(agent, ref, root), on_event)


def apply_model(agent: Agent, host: Host, plan: ModelPlan, on_event: OnEvent) -> ModelOnHost:
    """Carry out a plan of :func:`survey_model`; errors as :func:`ensure_model`."""
    path, source = plan.path, plan.source
    if plan.is_there or source is None:
        return ModelOnHost(path, plan.digest, False)
    if plan.send_bytes > plan.free:
        raise FleetError(
            f"the disk is too full for the model: {plan.send_bytes:,} bytes needed, {plan.free:,} free",
            where=f"{host.name}:{path}",
            fix="free some space there (old models, environments, logs)",
            exit=Exit.PREFLIGHT,
        )
    text = f"send the model {source.name}, {plan.send_bytes / 1e6:.1f} MB"
    on_event({"step": "send", "state": "begin", "text": text})
    from fleetctl.environment.ship import sending
    from fleetctl.transport.bulk import push

    push(host, sorted(source.iterdir()), f"{path}.partial", sending(on_event))
    agent.call("model.commit", timeout=None, path=path, digest=plan.digest, files=plan.files)
    on_event({"step": "send", "state": "ok", "text": text})
    return ModelOnHost(path, plan.digest, True)


def fingerprint(source: Path, cache: Path) -> tuple[str, dict[str, int]]:
    """The digest (12 hex) of a folder's files by relative path and content, and their sizes in bytes.

    A file's sha256 is read from ``cache`` while its size, times and inode are those of the last time.
    """
    if not source.is_dir():
        raise FleetError("the model's source is no folder", where=str(source), fix="correct `source`")
    from fleetctl.environment.wheelhouse import sha256

    memory = cache / f"{hashlib.sha256(str(source.resolve()).encode()).hexdigest()[:16]}.json"
    try:
        known: dict[str, Any] = json.loads(memory.read_text())
    except (OSError, ValueError):
        known = {}
    files, entries = {}, {}
    for path in sorted(source.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            continue
        if path.is_symlink() or not path.is_file():
            raise FleetError(
                "not a plain file, cannot be sent", where=str(path), fix="copy what it points to"
            )
        name, state = path.relative_to(source).as_posix(), path.stat()
        stamp = [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino]
        before = known.get(name, {})
        digest = before["sha256"] if before.get("stamp") == stamp else sha256(path)
        files[name] = state.st_size
        entries[name] = {"stamp": stamp, "sha256": digest}
    if not files:
        raise FleetError("the model's source is empty", where=str(source), fix="correct `source`")
    if entries != known:
        _keep(memory, entries)
    lines = [f"{name}\0{entry['sha256']}" for name, entry in entries.items()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12], files


def _keep(memory: Path, entries: dict[str, Any]) -> None:
    """Remember digests; where nothing can be written, they are only computed again the next time."""
    draft = memory.with_suffix(f".{os.getpid()}.new")
    try:
        memory.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(entries))
        draft.replace(memory)
    except OSError:
        with suppress(OSError):
            draft.unlink()
