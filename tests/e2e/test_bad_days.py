"""Bad input and bad days through the command line: the right exit code, what and why, the old service serving."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import VENV, Site

pytestmark = pytest.mark.lab


def test_deploy_swap_rollback_and_nothing_to_do(site: Site) -> None:
    site.service("other")
    assert "serves" in site.run("deploy", "--service", "good")
    assert "nothing to do" in site.run("deploy", "--service", "good")
    assert "nothing to do" in site.run("deploy", "--service", "good", "--plan")
    planned = site.run("swap", "good", "other", "--plan", expect=10)
    assert f"stop {site.slot}-good.service" in planned
    assert site.active("good") == "active"
    site.run("swap", "good", "other")
    assert (site.active("good"), site.active("other")) == ("inactive", "active")
    assert "nothing to do" in site.run("swap", "good", "other")
    site.run("rollback")
    assert (site.active("good"), site.active("other")) == ("active", "inactive")
    site.run("rollback")
    assert site.active("other") == "active"
    history = json.loads(site.run("history", "--json"))
    kinds = [entry["kind"] for entry in history["rollouts"] if entry["slot"] == site.slot]
    assert kinds == ["rollback", "rollback", "swap", "deploy"]


def test_a_service_started_again_keeps_the_way_back(site: Site) -> None:
    site.service("other")
    site.run("deploy", "--service", "good")
    site.run("swap", "good", "other")
    site.lab.run("ct200", f"systemctl stop {site.slot}-other.service")
    site.run("deploy", "--service", "other")
    planned = site.run("rollback", "--plan", expect=10)
    assert f"stop {site.slot}-other.service" in planned
    assert "start" in planned
    state = site.lab.state("ct200") / "slots" / f"{site.slot}.json"
    content = json.loads(state.read_text())
    state.write_text(json.dumps({**content, "previous": {**content, "previous": None}}))
    assert "nothing to do" in site.run("rollback", "--plan")
    assert "nothing to do" in site.run("rollback")
    assert site.active("other") == "active"


def test_a_shorter_deadline_in_the_inventory_does_not_keep_the_old_one_from_coming_back(site: Site) -> None:
    site.service("good", load=3)
    site.run("deploy", "--service", "good")
    site.service("good", load=30)
    site.services["good"]["deadlines"]["ready"] = 1
    site.write()
    said = site.run("deploy", "--service", "good", expect=6)
    assert "not within 1 s" in said
    assert "`deadlines: {ready: …}` of good" in said
    assert (site.active("good"), site.generates()) == ("active", True)


def test_a_service_that_is_only_not_enabled_is_not_restarted(site: Site) -> None:
    unit, state = f"{site.slot}-good.service", site.lab.state("ct200") / "slots" / f"{site.slot}.json"
    site.run("deploy", "--service", "good")
    since = json.loads(state.read_text())["since"]
    pid = site.lab.run("ct200", f"systemctl disable -q {unit}; systemctl show -P MainPID {unit}").stdout
    assert "without a restart" in site.run("deploy", "--service", "good", "--plan", expect=10)
    assert f"not restarted; done: enable {unit} at boot" in site.run("deploy", "--service", "good")
    asked = f"systemctl show -P MainPID {unit}; systemctl is-enabled {unit}"
    assert site.lab.run("ct200", asked).stdout == f"{pid}enabled\n"
    assert json.loads(state.read_text())["since"] == since
    entry = json.loads(site.run("history", "--json"))["rollouts"][0]
    assert "not restarted" in entry["result"]["reason"]


def test_swap_of_what_is_not_there(site: Site) -> None:
    site.service("other")
    site.service("third")
    site.run("deploy", "--service", "third")
    said = site.run("swap", "good", "other", expect=5)
    assert "third" in said
    assert "fix: fleetctl swap third other" in said


@pytest.mark.parametrize(
    ("knobs", "limits", "says"),
    [
        ({"die": 0.2, "says": ["cannot open the weights"]}, {}, "cannot open the weights"),
        ({"tokens": 3}, {}, "3 of 8 tokens"),
        ({"hang": True}, {"generate": 3}, "generate"),
        ({"never": True}, {"ready": 10}, "503"),
    ],
    ids=["dies-at-start", "stops-after-3-tokens", "never-generates", "never-ready"],
)
def test_a_broken_service_is_rolled_back(
    site: Site, knobs: dict[str, object], limits: dict[str, int], says: str
) -> None:
    site.run("deploy", "--service", "good")
    site.service("bad", **knobs)
    site.services["bad"]["deadlines"] |= limits
    site.write()
    said = site.run("swap", "good", "bad", expect=6)
    assert says in said
    assert "good.service serves again" in said
    assert "fix:" in said
    assert site.active("good") == "active"
    assert site.generates()


def test_the_first_deploy_fails_and_the_slot_is_empty_again(site: Site) -> None:
    site.service("bad", die=0.1)
    assert "empty" in site.run("deploy", "--service", "bad", expect=6)
    assert site.active("bad") in ("inactive", "unknown")


def test_interrupted_once_it_undoes(site: Site) -> None:
    site.run("deploy", "--service", "good")
    site.service("slow", never=True)
    process = site.start("swap", "good", "slow")
    site.until(process, "port: process")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 130, out + err
    assert "good.service serves again" in err
    assert site.generates()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "interrupted before a rollout began; the slot was not touched"),
        (("--plan",), "interrupted; nothing was changed"),
    ],
)
def test_interrupted_before_a_rollout_began_it_says_so(
    site: Site, options: tuple[str, ...], said: str
) -> None:
    big = site.folder / "big/weights"
    big.parent.mkdir()
    with big.open("wb") as file:
        file.truncate(200 << 30)
    inventory = site.folder / "inventories/ct200.yaml"
    data = yaml.safe_load(inventory.read_text())
    data["models"]["m"] = {"path": "/var/lib/fleetctl/models/interrupted", "source": "big"}
    inventory.write_text(yaml.safe_dump(data))
    process = site.start("deploy", "--service", "good", *options)
    deadline = time.monotonic() + 200
    while not any(_opens(process.pid, big)):
        assert time.monotonic() < deadline and process.poll() is None, "it never came to hash the model"
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 130, out + err
    assert f"error: {said}" in err and "fix: run it again" in err
    assert json.loads(site.run("history", "--slot", site.slot, "--json"))["rollouts"] == []


def test_a_models_source_that_is_missing_is_named_with_its_line(site: Site) -> None:
    inventory = site.folder / "inventories/ct200.yaml"
    data = yaml.safe_load(inventory.read_text())
    data["models"]["m"] = {"path": "/var/lib/fleetctl/models/sourceless", "source": "nowhere"}
    inventory.write_text(yaml.safe_dump(data))
    line = 1 + inventory.read_text().splitlines().index("    source: nowhere")
    said = site.run("deploy", "--service", "good", expect=2)
    assert "error: the model's source is no folder (model m of ct200)" in said
    assert f"at inventories/ct200.yaml:{line}, {site.folder}/nowhere" in said


def _opens(pid: int, file: Path) -> Iterator[bool]:
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            yield entry.readlink() == file


@pytest.mark.parametrize("word", ["interrupt", "restore-stop"], ids=["at-once", "later"])
def test_interrupted_twice_the_host_goes_on_undoing(site: Site, word: str) -> None:
    site.service("good", shut=site.gate)
    site.run("deploy", "--service", "good")
    site.service("slow", never=True, deaf=True)
    process = site.start("swap", "good", "slow")
    site.until(process, "port: process")
    site.hold()
    process.send_signal(signal.SIGINT)
    site.until(process, word)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 130, out + err
    assert "left to the host, which goes on undoing it" in err
    site.release()
    _until_good_serves(site)
    assert site.active("slow") in ("inactive", "failed", "unknown")


def test_a_killed_controller_changes_nothing(site: Site) -> None:
    site.run("deploy", "--service", "good")
    site.service("slow", shut=site.gate)
    site.hold()
    process = site.start("swap", "good", "slow")
    site.until(process, "port: process")
    process.kill()
    process.communicate(timeout=60)
    site.release()
    deadline = time.monotonic() + 200
    while json.loads(site.run("history", "--json"))["rollouts"][0]["outcome"] != "done":
        assert time.monotonic() < deadline, "the rollout did not end by itself"
        time.sleep(0.5)
    assert site.active("slow") == "active"
    assert site.generates()


def test_a_slot_in_work_is_locked(site: Site) -> None:
    site.service("slow", never=True)
    process = site.start("deploy", "--service", "slow")
    site.until(process, "port: process")
    for words in (["deploy", "--service", "good"], ["deploy", "--service", "good", "--plan"]):
        said = site.run(*words, expect=4)
        assert "locked by rollout" in said
        assert "(deploy of slow)" in said
    (slot,) = json.loads(site.run("status", "--json"))["hosts"][0]["slots"]
    assert [note for note in slot["notes"] if "(deploy of slow)" in note] == slot["notes"]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=200)
    assert process.returncode == 130


def test_a_stranger_on_the_port(site: Site) -> None:
    site.lab.run(
        "ct200",
        f"nohup setsid /usr/bin/python3 -m http.server {site.port} >/dev/null 2>&1 & echo $! > /run/stranger",
    )
    try:
        site.until_on_host(f"curl -s -o /dev/null 127.0.0.1:{site.port}")
        said = site.run("deploy", "--service", "good", expect=5)
    finally:
        site.lab.run("ct200", "kill $(cat /run/stranger)")
    assert f"port {site.port}" in said
    assert "http.server" in said


def test_someone_elses_unit_is_adopted_and_comes_back(site: Site) -> None:
    knobs = json.dumps({"port": site.port, "model": "m"})
    text = f"[Service]\nExecStart=/usr/bin/python3 -I -S /var/lib/fleetctl/standin.py '{knobs}'\n"
    text += "[Install]\nWantedBy=multi-user.target\n"
    unit = f"{site.slot}-theirs.service"
    path = f"/etc/systemd/system/{unit}"
    site.lab.run("ct200", f"cat > {path} <<'X'\n{text}X\nsystemctl daemon-reload; systemctl start {unit}")
    site.until_on_host(f"curl -s -o /dev/null 127.0.0.1:{site.port}")
    site.service("theirs")
    site.services["theirs"] |= {"keep_unit": True}
    del site.services["theirs"]["template"]
    site.service("bad", die=0.1)
    pid = site.lab.run("ct200", f"systemctl show -P MainPID {unit}").stdout
    assert f"done: enable {unit} at boot" in site.run("deploy", "--service", "theirs")
    look = f"systemctl show -P MainPID {unit}; systemctl is-enabled {unit}"
    assert site.lab.run("ct200", look).stdout == f"{pid}enabled\n"
    (site.lab.state("ct200") / "slots" / f"{site.slot}.json").unlink()
    del site.services["theirs"]
    site.write()
    assert "adopted" in site.run("deploy", "--service", "good", "--plan", expect=10)
    site.run("deploy", "--service", "bad", expect=6)
    assert site.active("theirs") == "active"
    site.run("deploy", "--service", "good")
    assert (site.active("theirs"), site.active("good")) == ("inactive", "active")
    site.run("rollback")
    assert (site.active("theirs"), site.active("good")) == ("active", "inactive")
    assert site.lab.run("ct200", f"cat {path}").stdout == text


@pytest.mark.parametrize("filled", ["before", "meanwhile"])
def test_a_full_disk_under_the_slots(site: Site, filled: str) -> None:
    place = "/var/lib/fleetctl/slots"
    site.run("deploy", "--service", "good")
    site.service("other", shut=site.gate)
    kept = f"cp {place}/{site.slot}.json /run/kept; mount -t tmpfs -o size=8m tmpfs {place}"
    site.lab.run("ct200", f"{kept}; mv /run/kept {place}/{site.slot}.json")
    fill = f"cat /dev/zero > {place}/filler || true"
    try:
        if filled == "before":
            site.lab.run("ct200", fill)
            said = site.run("swap", "good", "other", expect=5)
        else:
            site.hold()
            process = site.start("swap", "good", "other")
            site.until(process, "port: process")
            site.lab.run("ct200", fill)
            site.release()
            out, said = process.communicate(timeout=200)
            assert process.returncode == 6, out + said
            assert f"No space left on device: '{place}/{site.slot}.json'" in said
            assert "good.service serves again" in said
    finally:
        site.lab.run("ct200", f"umount -l {place}")
    assert f"df -h {place}" in said
    assert site.active("good") == "active"
    assert site.generates()
    assert site.lab.run("ct200", f"systemctl is-enabled {site.slot}-good.service").stdout == "enabled\n"


def test_a_disk_without_room_for_the_model_is_said_by_the_plan(site: Site) -> None:
    site.run("deploy", "--service", "good")
    site.service("big")
    (site.folder / "models/big").mkdir(parents=True)
    (site.folder / "models/big/weights").write_bytes(b"w" * 8_000_000)
    path = site.folder / "inventories/ct200.yaml"
    text = path.read_text().replace("path: /etc/hostname", "path: /run/small/m\n    source: models/big")
    path.write_text(text)
    site.lab.run("ct200", "mkdir -p /run/small && mount -t tmpfs -o size=4m tmpfs /run/small")
    try:
        for words in (["--plan"], []):
            said = site.run("deploy", "--service", "big", *words, expect=5)
            assert "the disk is too full: 8,000,000 bytes needed" in said
            assert site.lab.run("ct200", "ls -A /run/small").stdout == ""
    finally:
        site.lab.run("ct200", "umount -l /run/small")
    assert site.active("good") == "active"


def test_a_damaged_and_a_lost_record(site: Site) -> None:
    path = site.lab.state("ct200") / "slots" / f"{site.slot}.json"
    on_host = f"/var/lib/fleetctl/slots/{site.slot}.json"
    site.service("other")
    site.run("deploy", "--service", "good")
    for text in ('{"unit": ', "[]"):
        path.write_text(text)
        said = site.run("deploy", "--service", "other", expect=5)
        assert f"{on_host} is damaged" in said
        assert f"rm {on_host}" in said
        (slot,) = json.loads(site.run("status", "--json"))["hosts"][0]["slots"]
        assert (slot["health"], len(slot["notes"])) == ("ready", 1)
    path.unlink()
    site.run("deploy", "--service", "other")
    site.run("rollback")
    assert (site.active("good"), site.active("other")) == ("active", "inactive")


def test_a_service_in_a_crash_loop_that_no_record_names(site: Site) -> None:
    unit = f"{site.slot}-good.service"
    site.run("deploy", "--service", "good")
    (site.lab.state("ct200") / "slots" / f"{site.slot}.json").unlink()
    loop = f"sed -i 's/^ExecStart=.*/ExecStart=false\\nRestart=always\\nRestartSec=300/' /etc/systemd/system/{unit}"
    site.lab.run("ct200", f"{loop}; systemctl daemon-reload; systemctl restart {unit}")
    site.until_on_host(f"test $(systemctl show -P SubState {unit}) = auto-restart")
    (slot,) = json.loads(site.run("status", "--json"))["hosts"][0]["slots"]
    assert (slot["unit"], slot["health"]) == (unit, "starting")
    assert f"stop {unit} as it is" in site.run("deploy", "--service", "good", "--plan", expect=10)
    site.run("deploy", "--service", "good")
    assert site.generates()


def test_status_shows_what_was_changed_by_hand(site: Site) -> None:
    unit, environment = f"/etc/systemd/system/{site.slot}-good.service", VENV
    site.run("deploy", "--service", "good")
    site.lab.run("ct200", f"echo '# by hand' >> {unit}; mv {environment} {environment}.away")
    try:
        (slot,) = json.loads(site.run("status", "--json"))["hosts"][0]["slots"]
    finally:
        site.lab.run("ct200", f"mv {environment}.away {environment}")
    changed, gone = slot["notes"]
    assert "was changed since it was deployed" in changed
    assert f"{environment} is not there" in gone


def test_a_template_with_an_undefined_variable(site: Site) -> None:
    template = site.folder / "templates/systemd/wrong.service.j2"
    template.write_text("[Service]\nExecStart={{ comand }}\n")
    site.service("wrong", template="wrong.service.j2")
    said = site.run("deploy", "--service", "wrong", expect=2)
    assert "wrong.service.j2:2" in said
    assert "command" in said


def test_a_unit_with_an_unknown_key(site: Site) -> None:
    source = (site.folder / "templates/systemd/standin.service.j2").read_text()
    template = site.folder / "templates/systemd/wrong.service.j2"
    template.write_text(source.replace("TimeoutStopSec", "TimeoutStoppSec"))
    site.service("wrong", template="wrong.service.j2")
    said = site.run("deploy", "--service", "wrong", expect=5)
    assert "TimeoutStoppSec" in said
    assert "nothing was changed" in said


def test_nothing_to_roll_back_to(site: Site) -> None:
    assert "nothing to roll back to" in site.run("rollback", expect=2)


def test_hosts_that_are_not_reached(site: Site) -> None:
    site.ssh["hostname"] = "198.18.0.250"
    site.write()
    said = site.run("deploy", "--service", "good", expect=3)
    assert "198.18.0.250" in said


def test_one_of_two_hosts_fails(site: Site) -> None:
    other = (site.folder / "inventories/ct200.yaml").read_text()
    other = other.replace("host: ct200", "host: gone").replace(site.ssh["hostname"], "198.18.0.250")
    (site.folder / "inventories/gone.yaml").write_text(other)
    said = site.run("deploy", "ct200", "gone", "--service", "good", expect=8)
    assert "198.18.0.250" in said
    assert site.active("good") == "active"


def test_json_is_one_event_a_line_and_the_outcome_last(site: Site) -> None:
    process = site.start("deploy", "--service", "good", "--json")
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines[-1]["outcome"]["verdict"] == "done"
    assert {"preflight", "start", "generate", "commit"} <= {line["step"] for line in lines[:-1]}
    site.service("bad", die=0.1)
    process = site.start("swap", "good", "bad", "--json")
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 6
    assert json.loads(out.splitlines()[-1])["error"]["exit"] == 6


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("deploy", "ct2OO", "--service", "good"), "ct200"),
        (("deploy", "--mode", "treee"), "tree"),
        (("deploy", "--mode", "tree"), "no host has a service with the mode tree"),
        (("swap", "good", "gud"), "good"),
    ],
)
def test_misspelt(site: Site, words: tuple[str, ...], says: str) -> None:
    assert says in site.run(*words, expect=2)


def test_an_inventory_with_an_error(site: Site) -> None:
    path: Path = site.folder / "inventories/ct200.yaml"
    path.write_text(path.read_text().replace("slots:", "slotts:"))
    said = site.run("status", expect=2)
    assert "inventories/ct200.yaml:" in said
    assert "slots" in said


def _until_good_serves(site: Site) -> None:
    deadline = time.monotonic() + 200
    while site.active("good") != "active" or not site.generates():
        assert time.monotonic() < deadline, "the old service does not come back"
        time.sleep(0.5)
