"""``env capture``, ``show`` and ``verify`` on the lab's hosts, by the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.environment import bom as boms
from fleetctl.errors import Exit, FleetError
from fleetctl.transport.agent import open_agent
from tests.conftest import LAB_INVENTORY, Lab
from tests.environment.test_lab import Controller
from tests.environment.wheels import make_wheel

pytestmark = pytest.mark.lab

FLEET = str(LAB_INVENTORY.parents[1])
SKELETON = "/root/venv_skeleton"


def fleetctl(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [
        sys.executable,
        "-m",
        "fleetctl",
        "--fleet",
        FLEET,
        "--inventory",
        "inventories/lab",
        "env",
        *words,
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=280)
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture
def built(lab: Lab, tmp_path: Path, index: Path) -> Iterator[str]:
    """The path of an environment that fleetctl built on ct200."""
    controller = Controller(tmp_path / "fleet", index, lab)
    make_wheel(index, "alpha", requires=("beta",), blob=100_000)
    make_wheel(index, "beta")
    path: str = controller.ensure(controller.spec("alpha==1.0", "beta==1.0")).path
    yield path
    lab.run("ct200", f"rm -rf {path} {SKELETON}")


def sessions(lab: Lab, host: str) -> int:
    """How many SSH sessions the host has taken, this one too."""
    said = lab.run(host, "journalctl -q -u ssh -u sshd --no-pager | grep -c 'Accepted publickey' || true")
    return int(said.stdout)


def test_capture_show_and_verify_what_fleetctl_built(lab: Lab, built: str, tmp_path: Path) -> None:
    file = tmp_path / "ct200.json"
    before = sessions(lab, "ct200")
    captured = fleetctl("capture", f"ct200:{built}", "-o", str(file))
    assert sessions(lab, "ct200") - before - 1 == 1
    assert (captured.returncode, "2 distributions" in captured.stdout) == (Exit.OK, True)
    assert "compare files with their RECORD" in captured.stderr
    bom = boms.load_bom(file)
    assert (bom["hostname"], bom["path"], bom["kind"]) == ("ct200", built, "venv")
    assert [one["name"] for one in bom["distributions"]] == ["alpha", "beta"]
    assert (bom["unowned"]["count"], bom["problems"]) == (0, [])
    shown = fleetctl("show", str(file))
    assert (shown.returncode, bom["digest"] in shown.stdout, shown.stdout.count("\n") < 24) == (0, True, True)
    again = json.loads(fleetctl("show", f"ct200:{built}", "--json").stdout)
    assert again["digest"] == bom["digest"]
    verified = fleetctl("verify", f"ct200:{built}", "--json")
    result = json.loads(verified.stdout)
    assert (verified.returncode, result["ok"], result["findings"]) == (Exit.OK, True, [])


def test_verify_names_what_was_changed(lab: Lab, built: str) -> None:
    lab.run(
        "ct200",
        f"f=$(echo {built}/lib/python3*/site-packages/alpha/__init__.py); cp $f $f.x; mv $f.x $f; echo >> $f",
    )
    verified = fleetctl("verify", f"ct200:{built}")
    assert verified.returncode == Exit.PREFLIGHT
    assert "error: 1 file differs from what alpha 1.0 installed" in verified.stdout
    assert "| lib/python3" in verified.stdout and "fix: " in verified.stdout
    assert "drift       1 files: alpha (1)" in fleetctl("show", f"ct200:{built}").stdout


def test_a_skeleton_and_what_is_not_there(lab: Lab) -> None:
    lab.run(
        "ct200",
        f"python3 -m venv --without-pip {SKELETON} && ln -sfn /opt/gone/python3 {SKELETON}/bin/python3",
    )
    lab.run("ct200", f"ln -sfn /opt/gone/python3 {SKELETON}/bin/python")
    try:
        assert (
            "DOES NOT RUN: it is a link to /opt/gone/python3" in fleetctl("show", f"ct200:{SKELETON}").stdout
        )
        assert fleetctl("verify", f"ct200:{SKELETON}").returncode == Exit.PREFLIGHT
    finally:
        lab.run("ct200", f"rm -rf {SKELETON}")
    absent = fleetctl("capture", f"ct200:{SKELETON}")
    assert (absent.returncode, "there is no such environment" in absent.stderr) == (Exit.INPUT, True)


def test_the_system_python_of_a_host(lab: Lab) -> None:
    from fleetctl.inventory.loader import load_fleet

    host = load_fleet(Path(FLEET), "inventories/lab").hosts["ct129"]
    with open_agent(host) as agent:
        bom = boms.capture(agent, "/usr/bin/python3", native=False)
        assert (bom["kind"], bom["hostname"]) == ("system", "ct129")
        with pytest.raises(FleetError) as caught:
            boms.capture(agent, "/etc")
    assert (caught.value.exit, "ct129" in caught.value.where) == (Exit.INPUT, True)
