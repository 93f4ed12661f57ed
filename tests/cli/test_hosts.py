"""``fleetctl hosts`` and shell completion, on the repository's inventories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.terminal import piped

REPOSITORY = Path(__file__).parents[2]

PROGRAM = """
import os, sys
from pathlib import Path
from typing import Annotated
import typer
from fleetctl.cli import complete, hosts
from fleetctl.errors import FleetError

app = typer.Typer()

@app.callback()
def options(
    fleet: Annotated[Path | None, typer.Option()] = None,
    inventory: Annotated[str | None, typer.Option()] = None,
) -> None:
    for name, value in (("FLEETCTL_FLEET", fleet), ("FLEETCTL_INVENTORY", inventory)):
        if value:
            os.environ[name] = str(value)

app.command("hosts")(hosts.hosts)

@app.command()
def deploy(
    hosts: Annotated[list[str] | None, typer.Argument(autocompletion=complete.hosts)] = None,
    service: Annotated[str | None, typer.Option(autocompletion=complete.services)] = None,
    mode: Annotated[str | None, typer.Option(autocompletion=complete.modes)] = None,
    slot: Annotated[str | None, typer.Option(autocompletion=complete.slots)] = None,
) -> None: ...

try:
    app(prog_name="prog")
except FleetError as error:
    print(error)
    sys.exit(int(error.exit))
"""


def hosts(*arguments: str, inventory: str = "inventories/lab") -> str:
    said = piped(PROGRAM, "--fleet", str(REPOSITORY), "--inventory", inventory, "hosts", *arguments)
    assert (said.code, said.err) == (0, "")
    return said.out


def completed(line: str, fleet: Path = REPOSITORY) -> list[str]:
    """The candidates for the last word of a command line."""
    said = piped(
        PROGRAM,
        _PROG_COMPLETE="complete_bash",
        COMP_WORDS=f"prog --fleet {fleet} --inventory inventories/lab {line}",
        COMP_CWORD=str(4 + len(line.split(" "))),
    )
    assert said.err == "", "completion is silent"
    return said.out.split()


def test_hosts_lists_each_slot_with_its_services() -> None:
    rows = [line.split("  ") for line in hosts().splitlines()]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert cells[0] == ["HOST", "ADDRESS", "GPUS", "SLOT", "PORT", "SLOT'S GPUS", "SERVICES"]
    assert ["ct200", "198.18.0.11", "8 × sm120", "wrapper", "30000", "0", "wrapper (tree)"] in cells
    assert len(cells) == 4


def test_an_address_left_to_ssh_config_is_said_to_be() -> None:
    assert "ct129 (~/.ssh/config)" in hosts(inventory="inventories")


def test_hosts_as_json_has_all_of_the_inventory() -> None:
    found = {host["host"]: host for host in json.loads(hosts("--json"))["hosts"]}
    assert set(found) == {"ct129", "ct200"}
    assert found["ct200"]["file"] == "inventories/lab/ct200.yaml"
    assert found["ct200"]["slots"]["native"] == {"gpus": [1], "port": 30001, "spare": None}
    assert found["ct200"]["services"]["ddtree"]["unit"] == "fleetctl-ddtree.service"


def test_a_broken_inventory_is_exit_2(tmp_path: Path) -> None:
    (tmp_path / "inventories").mkdir()
    (tmp_path / "inventories" / "a.yaml").write_text("hots: a\n")
    said = piped(PROGRAM, "--fleet", str(tmp_path), "hosts")
    assert said.code == 2
    assert said.out.startswith("inventories/a.yaml:1: ")


@pytest.mark.parametrize(
    ("line", "candidates"),
    [
        ("deploy ", ["ct129", "ct200"]),
        ("deploy ct2", ["ct200"]),
        ("deploy ct200 --service d", ["dflash", "ddtree"]),
        ("deploy ct129 --service d", ["dflash"]),
        ("deploy --service sh", ["shadow"]),
        ("deploy ct129 --mode ", ["autoregressive", "linear"]),
        ("deploy --slot wr", ["wrapper"]),
        ("deploy ct129 --slot wr", []),
    ],
)
def test_completion_knows_the_inventory(line: str, candidates: list[str]) -> None:
    assert completed(line) == candidates


def test_completion_is_silent_where_the_inventory_is_broken(tmp_path: Path) -> None:
    (tmp_path / "inventories" / "lab").mkdir(parents=True)
    (tmp_path / "inventories" / "lab" / "a.yaml").write_text("host: [\n")
    assert completed("deploy ct", tmp_path) == []
    assert completed("deploy ct", tmp_path / "nowhere") == []
