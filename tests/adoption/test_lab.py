"""``fleetctl adopt`` of a lab host that was set up by hand: what it writes deploys with nothing to do."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.environment.bom import load_bom
from fleetctl.inventory.loader import load_fleet
from fleetctl.lab import gpus, keys
from tests import warm
from tests.conftest import LAB_INVENTORY, Lab

pytestmark = pytest.mark.lab
STANDIN = Path(__file__).parents[1] / "rollout_host" / "standin.py"
TEMPLATES = LAB_INVENTORY.parents[1] / "templates"
PORTS = itertools.count(28001)
HAND = "/opt/hand"
LAUNCH = """import argparse, json, sys
parser = argparse.ArgumentParser(allow_abbrev=False)
for name in ("--model-path", "--served-model-name", "--port"):
    parser.add_argument(name)
known, _ = parser.parse_known_args()
knobs = {"port": int(known.port or 30000), "model": known.served_model_name or known.model_path}
sys.argv = ["standin", json.dumps(knobs)]
exec(open("/var/lib/fleetctl/standin.py").read())
"""
UNIT = """# set up by hand, with a comment that { and {% raw %} stay in: %n
[Unit]
Description=DFlash {{smoke}} test

[Service]
Environment=CUDA_VISIBLE_DEVICES=1 CUDA_DEVICE_ORDER=PCI_BUS_ID "SGLANG_NOTE=a b"
@environment@ExecStart=/opt/hand/venv/bin/python -m sglang.launch_server --model-path /opt/hand/model \\
    --served-model-name tiny --port @port@ --mem-fraction-static 0.30 --speculative-algorithm DFLASH \\
    --speculative-draft-model-path /opt/hand/drafter --disable-cuda-graph
TimeoutStopSec=4

[Install]
WantedBy=multi-user.target
"""


class Hand:
    """A host that somebody set up by hand, and an empty fleet folder."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.folder = folder
        self.port = next(PORTS)
        (folder / "inventories").mkdir()
        (folder / "templates/systemd").mkdir(parents=True)
        for path in (TEMPLATES / "systemd").glob("*.j2"):
            (folder / "templates/systemd" / path.name).write_text(path.read_text())
        config = folder / "ssh_config"
        config.write_text(
            f"Host ct200\n HostName {lab.address('ct200')}\nHost *\n User root\n IdentityFile {lab.identity}\n"
            f" UserKnownHostsFile {lab.known_hosts}\n"
        )
        program = folder / "bin/ssh"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {config} "$@"\n')
        program.chmod(0o755)

    def unit(self, name: str, environment: str = "", start: bool = True) -> str:
        """Install a unit as somebody would; its name."""
        unit = f"hand{self.port}-{name}.service"
        text = UNIT.replace("@port@", str(self.port)).replace("@environment@", environment)
        self.install(unit, text, "enable --now" if start else "daemon-reload")
        return unit

    def install(self, unit: str, text: str, verb: str) -> None:
        """Write a unit's file and do what is to be done with it."""
        self.lab.run(
            "ct200",
            f"cat > /etc/systemd/system/{unit} <<'XX'\n{text}XX\nsystemctl daemon-reload; "
            f"systemctl -q {verb} {unit if verb != 'daemon-reload' else ''}",
        )

    def until_serves(self) -> None:
        """Wait until the port answers."""
        ask = f"until curl -s -m 10 127.0.0.1:{self.port}/v1/models; do sleep 0.1; done"
        self.lab.run("ct200", f"timeout 50 sh -c '{ask}'")

    def run(self, *words: str, expect: int = 0) -> str:
        """Run ``fleetctl``; its output, both streams, after checking its exit code."""
        env = {**os.environ, "FLEETCTL_FLEET": str(self.folder), "FLEETCTL_INVENTORY": "inventories"}
        env["PATH"] = f"{self.folder}/bin:{env['PATH']}"
        done = warm.run(words, env, 200)
        assert done.returncode == expect, f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    def active(self, unit: str) -> str:
        """systemd's word on a unit."""
        return self.lab.run("ct200", f"systemctl is-active {unit}", check=False).stdout.strip()

    def slot(self) -> Any:
        """What ``fleetctl status`` says of the only slot, once its service answers as soon as status wants it."""
        end = time.monotonic() + 60
        while True:
            (slot,) = json.loads(self.run("status", "ct200", "--json"))["hosts"][0]["slots"]
            if slot["health"] != "no answer" or time.monotonic() > end:
                return slot

    @property
    def file(self) -> Path:
        """The inventory file."""
        return self.folder / "inventories/ct200.yaml"


@pytest.fixture
def hand(lab: Lab, tmp_path: Path) -> Iterator[Hand]:
    """ct200 with a venv that has a stand-in for SGLang; what the test started is stopped at the end."""
    site = f"{HAND}/venv/lib/python3*/site-packages"
    lab.run(
        "ct200",
        f"mkdir -p {HAND}/model {HAND}/drafter; test -e {HAND}/venv || /usr/bin/python3 -m venv --without-pip "
        f"{HAND}/venv; cd {site} && mkdir -p sglang && touch sglang/__init__.py && for made in sglang-0.5.11 "
        "soundfile-0.13.1; do mkdir -p $made.dist-info && printf 'Metadata-Version: 2.1\nName: %s\nVersion: %s\n' "
        "${made%-*} ${made#*-} > $made.dist-info/METADATA; done; "
        f"cat > sglang/launch_server.py <<'XX'\n{LAUNCH}XX\n",
    )
    (lab.state("ct200") / "standin.py").write_text(STANDIN.read_text())
    hand = Hand(lab, tmp_path)
    yield hand
    gpus.reset("ct200")
    lab.run(
        "ct200",
        "systemctl stop 'hand*.service' 'fleetctl-sglang-33*.service';"
        "rm -f /etc/systemd/system/{,multi-user.target.wants/}{hand,fleetctl-sglang-33}*.service;"
        "systemctl daemon-reload; systemctl reset-failed;"
        "test -e /run/bare && kill $(cat /run/bare); rm -f /run/bare; "
        "rm -rf /var/lib/fleetctl/slots/gpu*.json /var/lib/fleetctl/slots/port-*.json",
        check=False,
    )


def test_a_unit_made_by_hand_is_adopted_with_nothing_to_do(hand: Hand) -> None:
    unit = hand.unit("dflash")
    hand.until_serves()
    before = _state(hand)
    said = hand.run("adopt", "ct200")
    assert _state(hand) == before
    name = unit.removesuffix(".service")
    row = next(line for line in said.splitlines() if line.startswith(unit))
    for word in ("sglang", "linear", str(hand.port), "/opt/hand/venv", "/opt/hand/model", name):
        assert word in row.split()
    host = load_fleet(hand.folder, "inventories").hosts["ct200"]
    service = host.services[name]
    assert (service.engine, service.mode, service.unit, service.model_id) == (
        "sglang",
        "linear",
        unit,
        "tiny",
    )
    assert host.slots[service.slot].gpus == [1]
    assert host.gpus.count == 8
    assert service.args == {
        "mem-fraction-static": "0.30",
        "disable-cuda-graph": True,
        "host": False,
        "enable-metrics": False,
    }
    assert service.env == {"SGLANG_NOTE": "a b"}
    assert "nothing to do" in hand.run("deploy", "ct200", "--service", name, "--plan")
    slot = hand.slot()
    assert (slot["service"], slot["mode"], slot["health"], slot["unit"]) == (name, "linear", "ready", unit)
    assert "says just that already" in hand.run("adopt", "ct200")
    bom = load_bom(hand.folder / "inventories/captures/ct200-venv.json")
    assert (bom["kind"], bom["path"]) == ("venv", "/opt/hand/venv")
    assert bom["unowned"]["count"] >= 2


def test_it_is_swapped_and_comes_back(hand: Hand) -> None:
    unit, other = hand.unit("dflash"), hand.unit("other", start=False)
    hand.until_serves()
    hand.run("adopt", "ct200", "--no-capture")
    assert not (hand.folder / "inventories/captures").exists()
    old, new = (one.removesuffix(".service") for one in (unit, other))
    text = hand.lab.run("ct200", f"cat /etc/systemd/system/{unit}").stdout
    hand.run("swap", old, new)
    assert (hand.active(unit), hand.active(other)) == ("inactive", "active")
    hand.run("rollback", "ct200")
    assert (hand.active(unit), hand.active(other)) == ("active", "inactive")
    assert hand.lab.run("ct200", f"cat /etc/systemd/system/{unit}").stdout == text
    assert "nothing to do" in hand.run("deploy", "ct200", "--service", old, "--plan")


def test_secrets_stay_on_the_host_and_the_unit_is_kept(hand: Hand) -> None:
    unit = hand.unit("secret", "Environment=HF_TOKEN=hf_thisisnotforyou OPENAI_API_KEY=xyz-hidden\n")
    hand.until_serves()
    said = hand.run("adopt", "ct200", "--json")
    assert "thisisnotforyou" not in said
    assert "xyz-hidden" not in said
    for path in hand.folder.rglob("*"):
        if path.is_file():
            assert "thisisnotforyou" not in path.read_text()
    text = hand.file.read_text()
    assert "HF_TOKEN" in text
    assert "keep_unit: true" in text
    name = unit.removesuffix(".service")
    assert "nothing to do" in hand.run("deploy", "ct200", "--service", name, "--plan")


def test_a_bare_process_and_the_gpus_of_its_children(hand: Hand) -> None:
    start = (
        f"cd {HAND}; HF_TOKEN=hf_thisisnotforyou SGLANG_X=1 nohup setsid venv/bin/python -u -m sglang.launch_server "
        f"--model-path model --port {hand.port} --tp 2 --enable-metrics >/dev/null 2>&1 & echo $! >/run/bare"
    )
    hand.lab.run("ct200", start)
    hand.until_serves()
    pid = int(hand.lab.run("ct200", "cat /run/bare").stdout)
    for gpu in (4, 5):
        gpus.occupy("ct200", gpu, 1000, pid)
    said = hand.run("adopt", "ct200")
    assert f"pid {pid}" in said
    host = load_fleet(hand.folder, "inventories").hosts["ct200"]
    name = f"sglang-{hand.port}"
    service = host.services[name]
    assert host.slots[service.slot].gpus == [4, 5]
    assert host.environments[service.environment].path == f"{HAND}/venv"
    assert host.models[service.model].path == f"{HAND}/model"
    assert {"tp-size", "model-path"}.isdisjoint(service.args)
    assert service.env == {"SGLANG_X": "1"}
    text = hand.file.read_text()
    assert f"no unit starts pid {pid}" in text
    assert "HF_TOKEN" in text
    assert "thisisnotforyou" not in text
    assert "which no service unit owns" in hand.run("deploy", "ct200", "--service", name, "--plan", expect=5)
    hand.lab.run("ct200", f"kill {pid}; rm /run/bare; while test -e /proc/{pid}; do sleep 0.1; done")
    gpus.reset("ct200")
    assert f"write fleetctl-{name}.service" in hand.run(
        "deploy", "ct200", "--service", name, "--plan", expect=10
    )


def test_an_instance_of_a_template_and_another_kind_of_server(hand: Hand) -> None:
    knobs = json.dumps({"port": hand.port, "model": "m"})
    line = f"/usr/bin/python3 -I -S /var/lib/fleetctl/standin.py '{knobs}'"
    instance = f"hand{hand.port}@1.service"
    text = f"[Service]\nExecStart={line}\nExecStartPre=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
    hand.install(f"hand{hand.port}@.service", text, "daemon-reload")
    hand.lab.run("ct200", f"systemctl -q enable --now {instance}")
    hand.until_serves()
    hand.run("adopt", "ct200")
    host = load_fleet(hand.folder, "inventories").hosts["ct200"]
    (service,) = host.services.values()
    assert (service.engine, service.unit, service.model) == ("other", instance, "m")
    assert "no engine of fleetctl" in hand.file.read_text()
    assert "nothing to do" in hand.run("deploy", "ct200", "--service", service.name, "--plan")


def test_a_file_that_is_there_is_never_overwritten(hand: Hand) -> None:
    hand.unit("dflash")
    hand.until_serves()
    hand.run("adopt", "ct200", "--no-capture")
    mine = hand.file.read_text().replace("tiny", "mine")
    hand.file.write_text(mine)
    said = hand.run("adopt", "ct200", expect=2)
    assert "-    model_id: mine" in said
    assert "+    model_id: tiny" in said
    assert hand.file.read_text() == mine
    assert "model_id: tiny" in hand.run("adopt", "ct200", "--stdout")
    hand.run("adopt", "ct200", "--no-capture", "-o", str(hand.folder / "elsewhere.yaml"))
    assert "model_id: tiny" in (hand.folder / "elsewhere.yaml").read_text()
    assert hand.file.read_text() == mine


def test_an_empty_host_by_its_address(hand: Hand) -> None:
    said = hand.run("adopt", "fresh", "--ssh", f"root@{hand.lab.address('ct129')}:22")
    assert "nothing that serves models" in said
    host = load_fleet(hand.folder, "inventories").hosts["fresh"]
    assert (host.ssh.hostname, host.ssh.user, host.ssh.port) == (hand.lab.address("ct129"), "root", 22)
    assert host.slots == {}
    assert host.gpus.count > 0
    hand.run("status", "fresh")


@pytest.mark.parametrize(
    ("words", "expect", "says"),
    [
        (("adopt", "gone", "--ssh", "root@198.18.0.12:9"), 3, "198.18.0.12:9"),
        (("adopt", "CT200"), 2, "lower case"),
        (("adopt", "ct200", "--ssh", "a b"), 2, "no destination"),
    ],
)
def test_what_cannot_be_adopted(hand: Hand, words: tuple[str, ...], expect: int, says: str) -> None:
    assert says in hand.run(*words, expect=expect)
    assert list((hand.folder / "inventories").iterdir()) == []


def test_a_host_that_another_file_describes(hand: Hand) -> None:
    other = hand.folder / "inventories/box.yaml"
    other.write_text("host: ct200\ngpus: {count: 8}\nslots: {}\nservices: {}\n")
    assert "stands in box.yaml already" in hand.run("adopt", "ct200", expect=2)


def _state(hand: Hand) -> Any:
    """What adopting must leave as it is: units, processes' ports, fleetctl's folder but for its agent."""
    places = "/etc/systemd /opt/hand /var/lib/fleetctl"
    files = f"find {places} -path '*/agent*' -prune -o -type f -printf '%p %s %T@\\n' | sort"
    return hand.lab.run(
        "ct200", f"{files}; ss -ltnH | sort; systemctl list-units 'hand*' --all --no-legend"
    ).stdout


def test_what_another_user_may_not_see_is_said(hand: Hand) -> None:
    hand.unit("dflash")
    hand.until_serves()
    hand.run("adopt", "ct200", "--stdout")  # brings the agent
    call = json.dumps({"id": 1, "call": "servers.find", "args": {}})
    agent = "$(ls -t /var/lib/fleetctl/agent/*.pyz | head -1)"
    user = "setpriv --reuid=65534 --regid=65534 --clear-groups"
    serve = keys.ssh_command(hand.lab.hosts["ct200"], f"{user} /usr/bin/python3 -I -S {agent} serve")
    with subprocess.Popen(serve, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as session:
        assert session.stdin and session.stdout
        print(call, file=session.stdin, flush=True)
        found = [session.stdout.readline() for _ in range(2)]
        session.stdin.close()
    result = json.loads(found[1])["result"]
    assert result["uid"] == 65534
    (server,) = result["servers"]
    assert (server["engine"], server["port"], server["seen"]) == ("sglang", hand.port, False)
    assert any("asked as uid 65534" in line for line in result["unseen"])
    assert any(str(hand.port) in line for line in result["unseen"])
