"""The unit that settles a rollout at the next boot, should the host go down in the middle of it.

It is there from before the first change until the result is written, one for each slot.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path
from typing import Any, Dict

from fleetctl.agent import files, paths, systemd

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
Restart=on-abnormal
RestartSec=2
KillMode=mixed
TimeoutStopSec={bound:.0f}
OOMScoreAdjust=-900

[Install]
WantedBy=multi-user.target
"""


def name_of(slot: str) -> str:
    """The boot unit of a slot."""
    return f"fleetctl-settle-{slot}.service"


def keep_agent(folder: Path) -> Path:
    """The agent that runs here, kept in the rollout's folder: it outlives later agents and their pruning."""
    kept, program = folder / AGENT, Path(sys.argv[0]).resolve()
    try:
        os.link(program, kept)
    except FileExistsError:
        return kept
    except OSError:
        shutil.copyfile(program, kept)
    return kept


def arm(folder: Path, plan: Dict[str, Any], bound: float) -> None:
    """From now on a boot settles the rollout in ``folder``; raises OSError where that cannot be written."""
    slot = plan["slot"]
    units = {target["unit"] for target in (plan["new"], plan.get("old")) if target}
    text = TEXT.format(
        id=plan["id"],
        folder=folder,
        home=paths.ROOT,
        units=" ".join(sorted(units)),
        python=sys.executable,
        agent=AGENT,
        bound=bound,
    )
    path = systemd.UNITS / name_of(slot)
    files.write(path, text)
    WANTS.mkdir(mode=0o755, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (WANTS / path.name).symlink_to(path)
    files.sync_folder(WANTS)


def disarm(folder: Path, slot: str) -> None:
    """The rollout in ``folder`` has its result; the unit of a later one stays."""
    path = systemd.UNITS / name_of(slot)
    with contextlib.suppress(OSError):
        (folder / AGENT).unlink()
    with contextlib.suppress(OSError):
        if f"!{folder}/result.json\n" in path.read_text(encoding="utf-8"):
            (WANTS / path.name).unlink()
            path.unlink()
