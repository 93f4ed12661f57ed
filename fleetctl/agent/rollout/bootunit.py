"""The unit that settles a rollout at the next boot, should the host go down in the middle of it.

It is there from before the rollout's start until its result is written. Where a supervisord is in charge, it is a
program that runs once, when that one starts.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any, Dict

from fleetctl.agent import files, paths
from fleetctl.agent.errors import AgentError
from fleetctl.agent.units import supervised, systemd

WANTS = systemd.UNITS / "multi-user.target.wants"
AGENT = "agent.pyz"
TEXT = """\
[Unit]
Description=fleetctl settles rollout {id}, which a boot cut short
ConditionPathExists={folder}/plan.json
ConditionPathExists=!{folder}/result.json
RequiresMountsFor={home}
After={units}

[Service]
Type=exec
ExecStart={python} -I -S {folder}/{agent} recover {folder}
SuccessExitStatus=4 5 6 7
Restart=on-abnormal
RestartSec=2
KillMode=mixed
TimeoutStopSec={bound:.0f}
OOMScoreAdjust=-900

[Install]
WantedBy=multi-user.target
"""


def path_of(rollout: str) -> Path:
    """The boot unit of a rollout."""
    return systemd.UNITS / f"fleetctl-settle-{rollout}.service"


def arm(folder: Path, plan: Dict[str, Any], bound: float) -> None:
    """From now on a boot settles the rollout in ``folder``; raises OSError where that cannot be written.

    The agent that runs here is kept beside the record: it outlives later agents and their pruning.
    """
    _keep(Path(sys.argv[0]).resolve(), folder / AGENT)
    if supervised.in_charge():
        command = [sys.executable, "-I", "-S", str(folder / AGENT), "recover", str(folder)]
        return supervised.once_at_start(path_of(folder.name).name, command)
    units = {str(target["unit"]) for target in (plan["new"], plan.get("old")) if target}
    text = TEXT.format(
        id=plan["id"],
        folder=folder,
        home=paths.ROOT,
        units=" ".join(sorted(filter(systemd.UNIT_NAME.fullmatch, units))),
        python=sys.executable,
        agent=AGENT,
        bound=bound,
    )
    path = path_of(folder.name)
    files.write(path, text)
    WANTS.mkdir(mode=0o755, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (WANTS / path.name).symlink_to(path)
    files.sync_folder(WANTS)
    return None


def _keep(program: Path, kept: Path) -> None:
    try:
        os.link(program, kept)
    except OSError:
        import shutil

        shutil.copyfile(program, kept)


def disarm(folder: Path) -> None:
    """The rollout in ``folder`` has its result, or was never started."""
    path = path_of(folder.name)
    if supervised.in_charge():
        with contextlib.suppress(AgentError, OSError):
            supervised.not_at_start(path.name)
    for place in (folder / AGENT, WANTS / path.name, path):
        with contextlib.suppress(OSError):
            place.unlink()
