"""``make demo``: two real hosts, one real model, the commands an operator types, and what each mode brings.

Every step is the ``fleetctl`` command it shows; nothing is done behind its back.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml
from rich.console import Console

from fleetctl.errors import Exit
from fleetctl.inventory.loader import Fleet, load_fleet

HOST = "ct200"
SERVICES = ("autoregressive", "dflash", "shadow", "ddtree")
MAX_TOKENS = 128
console = Console(highlight=False, soft_wrap=True)


def main() -> None:
    """Run the demo; a step that does not end as it must ends the demo with that step's exit code."""
    started = time.monotonic()
    fleet = load_fleet()
    _say("Two hosts: real systemd, journald and sshd, eight GPUs each on paper")
    _fleetctl("lab", "up")
    _fleetctl("hosts")

    _say("A model server in tree mode: plan, then environment, models, unit, start, probes")
    _fleetctl("deploy", HOST, "--mode", "tree", "--plan", expect=(Exit.PLAN_CHANGES, Exit.OK))
    _fleetctl("deploy", HOST, "--mode", "tree")
    _fleetctl("deploy", HOST, "--mode", "tree")
    _fleetctl("status", HOST)

    _say("Another mode in the same slot, behind the same probes")
    _fleetctl("swap", "ddtree", "dflash")

    _say("A broken deploy: it fails fast, and the old service is back and proven (exit 6)")
    with tempfile.TemporaryDirectory() as folder:
        broken = _inventory_with_broken_service(fleet, Path(folder))
        _fleetctl(
            "--inventory", str(broken), "deploy", HOST, "--service", "broken", expect=(Exit.ROLLED_BACK,)
        )
    _fleetctl("status", HOST)

    _say("And back to what was there before the swap")
    _fleetctl("rollback", HOST)

    _say("What each mode brings, measured now")
    _fleetctl("bench", HOST, *SERVICES, "--repeats", "1", "--max-tokens", str(MAX_TOKENS))
    _fleetctl("history", HOST)
    console.print(
        f"\nDone in {time.monotonic() - started:.0f} s. The lab is still up: see README, By hand; "
        "`make lab-down` removes it."
    )


def _say(words: str) -> None:
    console.print(f"\n[bold]== {words}[/bold]")


def _fleetctl(*words: str, expect: tuple[int, ...] = (Exit.OK,)) -> None:
    console.print(f"[bold]$ fleetctl {' '.join(words)}[/bold]")
    code = subprocess.run([sys.executable, "-m", "fleetctl", *words]).returncode
    if code not in expect:
        console.print(
            f"[bold red]exit {code}, where {' or '.join(str(int(c)) for c in expect)} was to come[/bold red]"
        )
        sys.exit(code or int(Exit.BUG))


def _inventory_with_broken_service(fleet: Fleet, folder: Path) -> Path:
    """A copy of the host's file with one more service, ``broken``, which dies at its start."""
    source = fleet.root / os.environ["FLEETCTL_INVENTORY"] / f"{HOST}.yaml"
    host = yaml.safe_load(source.read_text())
    ddtree = host["services"]["ddtree"]
    host["services"]["broken"] = {**ddtree, "args": {**ddtree.get("args", {}), "budget": 0}}
    (folder / source.name).write_text(yaml.safe_dump(host, sort_keys=False))
    return folder


if __name__ == "__main__":
    main()
