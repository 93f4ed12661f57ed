"""Bring an environment to a host: what is missing is sent and built, what is there costs one question."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fleetctl.agent.paths import WHEELHOUSE
from fleetctl.environment.events import OnEvent, throttled
from fleetctl.environment.platform import HostPlatform
from fleetctl.environment.spec import EnvironmentSpec
from fleetctl.environment.wheelhouse import Wheel, Wheelhouse, resolve
from fleetctl.errors import Exit, FleetError
from fleetctl.transport.agent import Agent
from fleetctl.transport.bulk import Progress, push
from fleetctl.transport.settings import Host
from fleetctl.words import counted

HASHING_S = 600.0


@dataclass(frozen=True)
class EnvironmentPlan:
    """What making an environment on a host would do; nothing where ``is_there``. Sizes in bytes."""

    path: str
    digest: str
    is_there: bool
    send: tuple[Wheel, ...]
    needed: int
    free: int
    device: int

    @property
    def send_bytes(self) -> int:
        """Bytes to be sent to the host."""
        return sum(wheel.size for wheel in self.send)

    def to_dict(self) -> dict[str, Any]:
        """The plan as one JSON object (``--json``)."""
        return {
            "path": self.path,
            "digest": self.digest,
            "is_there": self.is_there,
            "send": [{"filename": wheel.filename, "bytes": wheel.size} for wheel in self.send],
            "send_bytes": self.send_bytes,
            "needed_bytes": self.needed,
            "free_bytes": self.free,
        }


@dataclass(frozen=True)
class EnvironmentOnHost:
    """An environment that is on the host; ``built``: it was made just now, in ``seconds`` by step."""

    path: str
    digest: str
    built: bool
    seconds: dict[str, float]


def plan_environment(status: Mapping[str, Any], house: Wheelhouse) -> EnvironmentPlan:
    """What is to be done, from the host's ``environment.status``."""
    if status["environment"] is not None:
        return EnvironmentPlan(
            status["path"], house.digest, True, (), 0, status["free_bytes"], status["device"]
        )
    missing = set(status["missing"])
    send = tuple(wheel for wheel in (*house.wheels, house.builder) if wheel.filename in missing)
    needed = house.unpacked + house.builder.unpacked + sum(wheel.size for wheel in send)
    return EnvironmentPlan(
        status["path"], house.digest, False, send, needed, status["free_bytes"], status["device"]
    )


def survey_environment(
    agent: Agent,
    spec: EnvironmentSpec,
    root: Path,
    on_event: OnEvent,
    facts: Mapping[str, Any] | None = None,
    *,
    whole: bool = False,
) -> tuple[Wheelhouse, EnvironmentPlan]:
    """The wheels for the host and what making the environment there would do; changes nothing on the host.

    ``root`` is the fleet folder; ``facts`` saves asking for them again. ``whole`` looks for each file of an
    environment that is there (a rollout's preflight does so anyway). :class:`FleetError` as :func:`resolve`; exit 5
    where the environment is damaged.
    """
    platform = HostPlatform.from_facts(facts if facts is not None else agent.call("facts", gpus=False))
    house = resolve(spec, platform, root, on_event)
    wheels = [asdict(wheel) for wheel in (*house.wheels, house.builder)]
    status = agent.call(
        "environment.status", timeout=HASHING_S, name=house.name, digest=house.digest, wheels=wheels
    )
    if whole and status["environment"] is not None:
        _require_undamaged(status["path"], agent.call("environment.damage", path=status["path"]))
    return house, plan_environment(status, house)


def _require_undamaged(path: str, lost: list[str]) -> None:
    if lost:
        raise FleetError(
            f"the environment is damaged: {len(lost)} of its files are gone, the first {lost[0]}",
            where=path,
            fix=f"`rm -rf {path}` there, then run it again: it is built anew; nothing was changed",
            evidence=lost[:10],
            exit=Exit.PREFLIGHT,
        )


def ensure_environment(
    agent: Agent,
    host: Host,
    spec: EnvironmentSpec,
    root: Path,
    on_event: OnEvent,
    facts: Mapping[str, Any] | None = None,
) -> EnvironmentOnHost:
    """Make the environment on the host unless one of the same digest is there.

    :class:`FleetError`: as :func:`resolve`; exit 3 when the link fails, 4 when another build of it goes on
    too long, 5 when the host cannot hold or run it: then no half environment is left there.
    """
    house, plan = survey_environment(agent, spec, root, on_event, facts)
    return apply_environment(agent, host, house, plan, on_event)


def apply_environment(
    agent: Agent, host: Host, house: Wheelhouse, plan: EnvironmentPlan, on_event: OnEvent
) -> EnvironmentOnHost:
    """Carry out a plan of :func:`survey_environment`; errors as :func:`ensure_environment`."""
    if plan.is_there:
        return EnvironmentOnHost(plan.path, plan.digest, False, {})
    require_room(host, house, plan)
    if plan.send:
        text = f"send {counted(len(plan.send), 'wheel')}, {plan.send_bytes / 1e6:.1f} MB"
        on_event({"step": "send", "state": "begin", "text": text})
        files = [house.folder / wheel.filename for wheel in plan.send]
        push(host, files, WHEELHOUSE, sending(on_event))
        on_event({"step": "send", "state": "ok", "text": text})
    result = agent.call(
        "environment.build",
        on_event=on_event,
        timeout=None,
        name=house.name,
        digest=house.digest,
        python=house.platform.tag,
        abi=house.abi,
        imports=list(house.imports),
        wheels=[asdict(wheel) for wheel in house.wheels],
        builder=asdict(house.builder),
    )
    return EnvironmentOnHost(result["path"], house.digest, result["built"], result["seconds"])


def require_room(host: Host, house: Wheelhouse, plan: EnvironmentPlan) -> None:
    """:class:`FleetError` (exit 5) where the host's disk does not hold the environment."""
    if plan.needed > plan.free:
        raise FleetError(
            f"the disk is too full for {house.name}: {plan.needed:,} bytes needed, {plan.free:,} free",
            where=f"{host.name}:{plan.path}",
            fix="free some space there (old environments, models, logs)",
            exit=Exit.PREFLIGHT,
        )


def sending(on_event: OnEvent, step: str = "send") -> Callable[[Progress], None]:
    """A listener to a transfer's progress that passes it on as events of ``step``."""
    say = throttled(on_event)

    def pass_on(progress: Progress) -> None:
        text = f"{progress.percent}% sent, {progress.bytes / 1e6:.1f} MB, {progress.rate / 1e6:.0f} MB/s"
        say({"step": step, "state": "wait", "text": text, "left_s": progress.left_s})

    return pass_on
