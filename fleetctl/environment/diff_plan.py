"""From differences to the steps that make B like A, each once, and to the commands that carry them out. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from fleetctl.environment.difference import Difference, Do, Step
from fleetctl.environment.stacks import is_toolkit

ORDER: tuple[Do, ...] = ("rebuild", "install", "reinstall", "overlay", "remove")
_DIGEST = re.compile(r"-[0-9a-f]{12}$")
_NOT_NAME = re.compile(r"[^a-z0-9._-]+")


@dataclass(frozen=True)
class Side:
    """Where an environment is, for commands: ``place`` as ``HOST:/path``, its ``host`` and ``path``; or a ``spec``."""

    host: str = ""
    path: str = ""
    spec: str = ""

    @property
    def place(self) -> str:
        """``ct129:/root/ml-env``"""
        return f"{self.host}:{self.path}" if self.host else self.path

    @property
    def name(self) -> str:
        """A name for what is derived from it: the folder's, without a digest."""
        name = _DIGEST.sub("", PurePosixPath(self.path).name.lower())
        return _NOT_NAME.sub("-", name).strip(".-_") or "derived"


def plan_steps(differences: Iterable[Difference]) -> list[Step]:
    """The steps of all differences, each kind once: overlays and removals together are one derived environment.

    A rebuild of everything leaves no other step. What an overlay brings is neither installed nor put back.
    """
    steps = [one.step for one in differences if one.step.do != "none"]
    whole = [step for step in steps if step.do == "rebuild" and not step.distributions]
    if whole:
        return whole[:1]
    merged = {do: _merged(do, [step for step in steps if step.do == do]) for do in ORDER}
    overlay = merged["overlay"]
    coming = {name for do in ("rebuild", "install", "overlay") for name in merged[do].distributions}
    removed = Step(
        "remove",
        tuple(name for name in merged["remove"].distributions if name not in coming),
        merged["remove"].why,
        paths=merged["remove"].paths,
    )
    merged["reinstall"] = _without(merged["reinstall"], coming)
    if overlay.distributions:
        gone = {*overlay.remove, *removed.distributions} - coming
        why = overlay.why
        merged["overlay"] = Step("overlay", overlay.distributions, why, tuple(sorted(gone)), removed.paths)
        removed = Step("remove")
    merged["remove"] = removed
    return [step for do in ORDER if (step := merged[do]).distributions or step.remove or step.paths]


def commands(steps: Sequence[Step], a: Side, b: Side) -> list[str]:
    """The commands of the steps, as they are typed; a comment where no command does it."""
    return [line for step in steps for line in _command(step, a, b)]


def to_dict(steps: Sequence[Step], a: Side, b: Side) -> dict[str, Any]:
    """Steps and their commands as one JSON object."""
    return {"steps": [step.to_dict() for step in steps], "commands": commands(steps, a, b)}


def _command(step: Step, a: Side, b: Side) -> list[str]:
    names = " ".join(step.distributions)
    if step.do == "rebuild" and not step.distributions:
        if a.spec:
            return [_words("fleetctl", "env", "build", b.host or "HOST", a.spec)]
        return [f"# {step.why}: nothing of {b.place} can stay", _clone(a, b)]
    if step.do == "rebuild":
        return [f"# build on {b.host or 'that host'}: {names} ({step.why})"]
    if step.do == "install" and a.spec:
        return [f"# {b.place} lacks {names}", _words("fleetctl", "env", "build", b.host or "HOST", a.spec)]
    if step.do in ("install", "reinstall"):
        return [f"# {'install' if step.do == 'install' else 'put back from its wheel'}: {names} ({step.why})"]
    return [_overlay(step, a, b)]


def _clone(a: Side, b: Side) -> str:
    return _words("fleetctl", "env", "clone", a.place, f"{b.host or 'HOST'}:{a.name}")


def _overlay(step: Step, a: Side, b: Side) -> str:
    """The toolkit's distributions that go with torch's are not named: ``env overlay`` knows them."""
    coming = step.distributions if step.do == "overlay" else ()
    going = [*step.remove, *step.paths, *(step.distributions if step.do == "remove" else ())]
    if "torch" in coming:
        going = [name for name in going if not is_toolkit(name)]
    words = ["fleetctl", "env", "overlay", b.place, b.name]
    if coming:
        words += ["--from", a.place]
    words += [word for name in coming for word in ("--dist", name)]
    words += [word for name in going for word in ("--remove", name)]
    return _words(*words)


def _merged(do: Do, steps: Sequence[Step]) -> Step:
    """Steps of one kind as one; the reason of the largest stands for all."""
    reason = max(steps, key=lambda step: len(step.distributions), default=Step(do)).why
    return Step(
        do,
        tuple(sorted({name for step in steps for name in step.distributions})),
        reason,
        tuple(sorted({name for step in steps for name in step.remove})),
        tuple(sorted({path for step in steps for path in step.paths})),
    )


def _without(step: Step, names: set[str]) -> Step:
    return Step(step.do, tuple(name for name in step.distributions if name not in names), step.why)


def _words(*words: str) -> str:
    return " ".join(shlex.quote(word) for word in words)
