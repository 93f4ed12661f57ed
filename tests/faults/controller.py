"""A controller of its own process: ``python -m tests.faults.controller FOLDER HOST`` carries out FOLDER/plans.json.

Each plan by its own connection. It prints a line of JSON for each that has ended: its slot, and how.
"""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fleetctl.errors import FleetError
from fleetctl.inventory.loader import load_fleet
from fleetctl.transport.agent import open_agent
from tests.faults import agent


def main(folder: Path, name: str) -> None:
    """Start and follow all plans at once."""
    agent.use()
    host = load_fleet(folder, "inventories").hosts[name]
    plans = json.loads((folder / "plans.json").read_text())

    def carry_out(plan: dict[str, Any]) -> None:
        try:
            with open_agent(host) as session:
                session.call("rollout.start", plan=plan, timeout=120)
                result = session.call("rollout.follow", id=plan["id"], timeout=600)
            ended = result["outcome"]
        except FleetError as error:
            ended = int(error.exit)
        said = json.dumps({"slot": plan["slot"], "ended": ended}) + "\n"
        os.write(sys.stdout.fileno(), said.encode())

    with ThreadPoolExecutor(len(plans)) as pool:
        list(pool.map(carry_out, plans))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
