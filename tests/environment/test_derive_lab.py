"""Clones on real hosts: made by command, served from, pruned, and cut off in the middle."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.environment.ship import ensure_environment
from fleetctl.environment.spec import EnvironmentSpec
from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.loader import load_fleet
from fleetctl.transport.agent import open_agent
from tests.conftest import Lab
from tests.environment.wheels import make_wheel

pytestmark = pytest.mark.lab

REPOSITORY = Path(__file__).parents[2]
STATE = "/var/lib/fleetctl"
HAND = "/root/by-hand"
FLAG = "/run/fleetctl-test-slow"
SLOW = f"import os, time\nwhile os.path.exists({FLAG!r}):\n    time.sleep(0.02)\n"
DIGEST = "00000000000a"


class Host:
    """ct200 of the lab, and a fleet folder of its own."""

    def __init__(self, root: Path, lab: Lab) -> None:
        self.root = root
        self.lab = lab
        self.host = load_fleet(REPOSITORY, "inventories/lab").hosts["ct200"]
        self.events: list[dict[str, Any]] = []
        shutil.copytree(REPOSITORY / "inventories" / "lab", root / "inventories")

    def on(self, command: str) -> str:
        return self.lab.run("ct200", command).stdout.strip()

    def envs(self) -> list[str]:
        return self.on(f"ls -A {STATE}/envs 2>/dev/null | grep ^test- || true").split()

    def build(self, index: Path, *names: str) -> str:
        for name in names:
            make_wheel(index, name, code=SLOW if name == "slow" else "")
        fields = {"name": "test-base", "python": ">=3.9", "requirements": [f"{name}==1.0" for name in names]}
        with open_agent(self.host) as agent:
            spec = EnvironmentSpec.model_validate(fields)
            return ensure_environment(agent, self.host, spec, self.root, self.events.append).path

    def derive(self, base: str, name: str = "test-copy", **more: Any) -> Any:
        with open_agent(self.host) as agent:
            args = {"base": base, "name": name, "digest": DIGEST, **more}
            return agent.call("environment.derive", on_event=self.events.append, timeout=280, **args)

    def refused(self, base: str, **more: Any) -> FleetError:
        with pytest.raises(FleetError) as caught:
            self.derive(base, **more)
        assert caught.value.exit == Exit.PREFLIGHT
        return caught.value

    def fleetctl(self, *words: str) -> tuple[int, str]:
        argv = [sys.executable, "-m", "fleetctl", "--fleet", str(self.root), "env", *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout + done.stderr

    def wait_for(self, step: str) -> None:
        deadline = time.monotonic() + 200
        while not any(event["step"] == step for event in self.events):
            assert time.monotonic() < deadline, self.events
            time.sleep(0.02)


@pytest.fixture
def host(lab: Lab, tmp_path: Path, index: Path) -> Iterator[Host]:
    host = Host(tmp_path / "fleet", lab)
    clean = (
        f"rm -f {FLAG}; systemctl stop test-served; umount -l {STATE}/envs; rm -rf {STATE}/envs/test-* {HAND}"
    )
    host.on(f"{{ {clean}; }} 2>/dev/null; true")
    yield host
    host.on(f"{{ {clean}; }} 2>/dev/null; true")


def test_cloned_served_from_and_pruned_by_command(host: Host, index: Path) -> None:
    base = host.build(index, "alpha")
    digest = base[-12:]
    code, said = host.fleetctl("clone", "ct200:test-base", "test-twin", "--plan", "--json")
    assert code == Exit.PLAN_CHANGES and host.envs() == [f"test-base-{digest}"]
    assert json.loads(said.splitlines()[-1])["method"] == "hardlink"
    code, said = host.fleetctl("clone", "ct200:test-base", "ct200:test-twin")
    twin = f"{STATE}/envs/test-twin-{digest}"
    assert (code, f"cloned {base} to {twin} (hardlink)" in said) == (Exit.OK, True)
    code, said = host.fleetctl("clone", "ct200:test-base", "test-twin")
    assert (code, "nothing to do" in said) == (Exit.OK, True)
    serve = f"{twin}/bin/python -m http.server 18099 --bind 127.0.0.1 --directory {twin}"
    host.on(f"systemd-run -q --unit test-served {serve}")
    asked = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:18099/pyvenv.cfg').status)"
    wait = "for i in $(seq 1200); do ss -ltn | grep -q :18099 && break; sleep 0.1; done"
    assert host.on(f'{wait}; {twin}/bin/python -c "{asked}"') == "200"
    code, said = host.fleetctl("prune", "ct200", "test-twin")
    assert code == Exit.PREFLIGHT and "unit /run/systemd/transient" in said and "process" in said
    code, said = host.fleetctl("prune", "ct200", "test-base", "--plan")
    assert (code, f"would remove {base}" in said) == (Exit.PLAN_CHANGES, True)
    assert host.fleetctl("prune", "ct200", "test-base")[0] == Exit.OK
    assert host.envs() == [f"test-twin-{digest}"]
    assert host.on(f"{twin}/bin/alpha-cmd; echo $?") == "0"
    assert "test-twin" in host.fleetctl("list", "ct200")[1]


def test_a_killed_agent_leaves_nothing_under_the_name(host: Host, index: Path) -> None:
    base = host.build(index, "slow")
    before = host.on(f"cd {base} && find . -type f | sort | xargs sha256sum | sha256sum")
    host.on(f"touch {FLAG}")
    errors = in_background(lambda: host.derive(base, imports=["slow"]))
    host.wait_for("derive-check")
    host.on("pkill -KILL -f '[.]pyz serve'")
    assert [error.exit for error in errors()] == [Exit.UNREACHABLE]
    host.on(
        f"for i in $(seq 1200); do pgrep -f '{STATE}/envs/[t]est-copy' || exit 0; sleep 0.1; done; exit 1"
    )
    assert host.envs() == [f"test-base-{base[-12:]}"]
    host.on(f"rm {FLAG}")
    assert host.derive(base, imports=["slow"])["built"]
    assert host.envs() == [f"test-base-{base[-12:]}", f"test-copy-{DIGEST}"]
    assert host.on(f"cd {base} && find . -type f | sort | xargs sha256sum | sha256sum") == before


def test_an_interrupt_says_so_and_leaves_nothing(host: Host, index: Path) -> None:
    base = host.build(index, "slow")
    host.on(f"touch {FLAG}")
    (host.root / "envs").mkdir()
    spec = f'name: test-copy\npython: ">=3.9"\nbase: {{path: {base}}}\npatches: [tree]\n'
    (host.root / "envs" / "test-copy.yaml").write_text(spec)
    tree = b"TREE = 1\n"
    patch = {
        "name": "tree",
        "distribution": "slow",
        "versions": ["1.0"],
        "why": "to see it interrupted",
        "upstream": None,
        "files": [{"path": "slow/tree.py", "source": "tree.py", "sha256": hashlib.sha256(tree).hexdigest()}],
        "imports": ["slow.tree"],
    }
    folder = host.root / "runtime_patches" / "tree"
    folder.mkdir(parents=True)
    (folder / "tree.py").write_bytes(tree)
    (folder / "manifest.yaml").write_text(json.dumps(patch))
    argv = [sys.executable, "-m", "fleetctl", "--fleet", str(host.root), "env", "build", "ct200", "test-copy"]
    building = subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )
    host.on(
        f"for i in $(seq 1200); do pgrep -f '{STATE}/envs/[t]est-copy.*python' && exit 0; sleep 0.1; done; exit 1"
    )
    building.send_signal(signal.SIGINT)
    said, errors = building.communicate(timeout=200)
    assert building.returncode == Exit.INTERRUPTED, (said, errors)
    assert "error: interrupted; nothing unfinished was named" in errors
    host.on(
        f"for i in $(seq 1200); do pgrep -f '{STATE}/envs/[t]est-copy' || exit 0; sleep 0.1; done; exit 1"
    )
    assert host.envs() == [f"test-base-{base[-12:]}"]


def test_a_venv_made_by_hand_and_a_disk_that_refuses(host: Host) -> None:
    host.on(f"python3 -m venv --without-pip {HAND}")
    host.on(f"mkdir -p {STATE}/envs && mount -t tmpfs -o size=64m,nr_inodes=12 tmpfs {STATE}/envs")
    error = host.refused(HAND)
    assert "no space left" in error.what and "inodes free" in error.what
    assert host.envs() == []
    host.on(f"umount {STATE}/envs; head -c 20000000 /dev/zero >{HAND}/bin/big")
    host.on(f"mount -t tmpfs -o size=8m tmpfs {STATE}/envs")
    assert "no space left" in host.refused(HAND).what
    assert host.envs() == []
    host.on(f"umount {STATE}/envs")
    made = host.derive(HAND)
    assert made["method"] in ("copy", "reflink")
    assert host.on(f"grep -rl {HAND} {made['path']} | grep -v fleetctl-env.json || true") == ""


def in_background(work: Callable[[], Any]) -> Callable[[], list[FleetError]]:
    """Start ``work``; what is returned waits for it and gives the error it ended with."""
    errors: list[FleetError] = []

    def run() -> None:
        try:
            work()
        except FleetError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def wait() -> list[FleetError]:
        thread.join(280)
        return errors

    return wait
