"""Deploy, swap, rollback and their bad days on a machine without systemd, under a real supervisord."""

from __future__ import annotations

import json

from tests.supervised.conftest import RentedSite
from tests.transport.sshd import wait_for


def test_deploy_swap_and_rollback(site: RentedSite) -> None:
    site.service("new")
    planned = site.run("deploy", "ct200", "--service", "good", "--plan", expect=10)
    assert f"write {site.slot}-good.service" in planned
    assert "serves" in site.run("deploy", "ct200", "--service", "good")
    assert site.active("good") == "RUNNING"
    assert site.generates()
    assert "nothing to do" in site.run("deploy", "ct200", "--service", "good")
    site.run("swap", "good", "new")
    assert (site.active("good"), site.active("new")) == ("STOPPED", "RUNNING")
    site.run("rollback", "ct200", "--slot", site.slot)
    assert (site.active("good"), site.active("new")) == ("RUNNING", "STOPPED")
    site.run("stop", "ct200")
    assert (site.active("good"), site.active("new")) == ("STOPPED", "STOPPED")
    assert "autostart=false" in (site.lab.folder / f"conf.d/{site.slot}-good.conf").read_text()
    site.run("rollback", "ct200", "--slot", site.slot)
    assert (site.active("good"), site.active("new")) == ("RUNNING", "STOPPED")
    (slot,) = json.loads(site.run("status", "ct200", "--json"))["hosts"][0]["slots"]
    assert slot["service"] == "good"
    logged = json.loads(site.run("logs", "ct200", "good", "--json"))["lines"]
    assert logged
    assert logged[0]["time"] is None
    assert logged[0]["line"] in site.run("logs", "ct200", "good")


def test_one_that_dies_is_told_at_once_with_its_words_and_the_old_one_is_back(site: RentedSite) -> None:
    site.run("deploy", "ct200")
    site.service("bad", die=0.3)
    said = site.run("swap", "good", "bad", expect=6)
    assert "journal: dead at" in said
    assert site.active("good") == "RUNNING"
    assert site.generates()


def test_one_that_dies_in_the_first_second_is_not_taken_for_starting(site: RentedSite) -> None:
    site.service("bad", die=0.01)
    said = site.run("deploy", "ct200", "--service", "bad", expect=6)
    assert "health" not in said.split("error:")[1].splitlines()[0], said
    assert site.active("bad") in ("STOPPED", "FATAL", "EXITED")


def rollout_pid(site: RentedSite, which: str) -> int:
    path = f"/run/fleetctl/fleetctl-rollout-{site.slot}.service.running"
    return int(json.loads(site.lab.run("", f"cat {path}").stdout)[which])


def test_a_killed_rollout_is_undone_by_its_keeper(site: RentedSite) -> None:
    site.run("deploy", "ct200")
    site.service("new", never=True)
    process = site.start("swap", "good", "new")
    site.until(process, "health")
    site.lab.run("", f"kill -9 {rollout_pid(site, 'pid')}")
    out, err = process.communicate(timeout=150)
    assert process.returncode == 6, out + err
    assert "KILL" in err
    assert (site.active("good"), site.active("new")) == ("RUNNING", "STOPPED")
    assert site.generates()


def test_with_its_keeper_killed_too_the_next_deploy_settles_it(site: RentedSite) -> None:
    site.run("deploy", "ct200")
    site.service("new", never=True)
    process = site.start("swap", "good", "new")
    site.until(process, "health")
    site.lab.run("", f"kill -9 {rollout_pid(site, 'keeper')} {rollout_pid(site, 'pid')}")
    out, err = process.communicate(timeout=150)
    assert process.returncode == 7, out + err
    said = site.run("deploy", "ct200", "--service", "good")
    assert "settle: rollout" in said
    assert "good.service serves again" in said
    assert site.active("good") == "RUNNING"
    assert site.generates()


def test_what_the_end_of_the_machine_cut_short_is_settled_when_supervisord_starts_again(
    site: RentedSite,
) -> None:
    site.run("deploy", "ct200")
    before = (site.lab.folder / f"disk/etc/systemd/system/{site.slot}-good.service").read_text()
    for name in ("new", "good"):  # another unit, and another text of the same one
        site.service(name, never=True)
        process = site.start("deploy", "ct200", "--service", name)
        site.until(process, "port")
        site.lab.stop()
        process.kill()
        process.communicate()
        site.lab.boot()
        records = site.lab.folder / "disk/var/lib/fleetctl/rollouts"
        last = max(records.glob(f"*-{site.slot}-*"))
        wait_for((last / "result.json").exists, 150)
        assert json.loads((last / "result.json").read_text())["outcome"] == "rolled-back"
        assert site.active("good") == "RUNNING"
        assert site.active("new") in ("STOPPED", "ERROR")
        assert site.generates()
        unit = site.lab.folder / f"disk/etc/systemd/system/{site.slot}-good.service"
        assert unit.read_text() == before
    assert "cut short" not in site.run("status", "ct200")
    site.service("good")
    site.service("new")
    site.run("swap", "good", "new")
    assert "fleetctl-settle" not in site.lab.supervisorctl("status")
    assert not list((site.lab.folder / "conf.d").glob("fleetctl-settle-*"))


def test_aborted_by_the_operator(site: RentedSite) -> None:
    site.run("deploy", "ct200")
    site.service("new", never=True)
    process = site.start("swap", "good", "new")
    site.until(process, "health")
    process.send_signal(2)
    out, err = process.communicate(timeout=150)
    assert process.returncode == 130, out + err
    assert site.active("good") == "RUNNING"


def test_a_killed_controller_leaves_the_rollout_to_the_machine(site: RentedSite) -> None:
    site.run("deploy", "ct200")
    site.service("new", load=2)
    process = site.start("swap", "good", "new")
    site.until(process, "stop")
    process.kill()
    process.communicate()
    wait_for(lambda: site.active("new") == "RUNNING" and site.generates(), 150)
    wait_for(lambda: site.active("good") == "STOPPED", 150)


def test_what_is_committed_starts_with_supervisord_and_nothing_else_does(site: RentedSite) -> None:
    site.service("new")
    site.run("deploy", "ct200", "--service", "good")
    site.run("swap", "good", "new")
    programs = {
        name: (site.lab.folder / f"conf.d/{site.slot}-{name}.conf").read_text() for name in ("good", "new")
    }
    assert "autostart=false" in programs["good"]
    assert "autostart=true" in programs["new"]
    pid = site.lab.supervisorctl(f"pid {site.slot}-new").strip()
    site.lab.run("", f"kill -9 {pid}")
    wait_for(lambda: site.lab.supervisorctl(f"pid {site.slot}-new").strip() not in (pid, "0"), 60)


def test_a_user_secrets_limits_and_processes_that_left_their_parent(site: RentedSite) -> None:
    folder = site.folder / "templates/systemd"
    text = (folder / "standin.service.j2").read_text()
    orphan = (
        "import os,time,runpy,sys\\n"
        "if not os.fork():\\n os.setsid()\\n if not os.fork(): time.sleep(600)\\n os._exit(0)"
    )
    start = (
        f'ExecStart=/usr/bin/python3 -I -S -c "{orphan}\\n'
        "sys.argv = sys.argv[1:]\\nrunpy.run_path(sys.argv[0], run_name='__main__')\" "
    )
    unit = text.replace("ExecStart=/usr/bin/python3 -I -S ", start).replace(
        "TimeoutStopSec=4\n",
        "TimeoutStopSec=4\nUser={{ user }}\nEnvironmentFile={{ secrets_file | value }}\n"
        'Environment="SAID=a b\'c 100%% $x"\nLimitNOFILE=4321\nStateDirectory=fleetctl-{{ service }}\n',
    )
    (folder / "standin.service.j2").write_text(unit)
    (site.folder / "key").write_text('s"e$c`r\\et')
    site.services["good"] |= {"user": "daemon", "secrets": {"KEY": "file:key"}}
    site.write()
    site.run("deploy", "ct200", "--service", "good")
    pid = site.lab.supervisorctl(f"pid {site.slot}-good").strip()
    found = dict(
        line.split("=", 1)
        for line in site.lab.run("", f"tr '\\0' '\\n' </proc/{pid}/environ").stdout.splitlines()
    )
    assert found["SPT_NOENV"] == "1", "a renamed process keeps the variable that tells whose it is"
    assert (found["KEY"], found["SAID"]) == ('s"e$c`r\\et', "a b'c 100% $x")
    said = site.lab.run("", f"stat -c %U /proc/{pid}; grep 'open files' /proc/{pid}/limits").stdout.split()
    assert (said[0], said[4]) == ("daemon", "4321")
    assert site.lab.run("", "stat -c %U /var/lib/fleetctl-good").stdout.strip() == "daemon"
    mine = f"grep -lz 'SUPERVISOR_PROCESS_NAME={site.slot}-good' /proc/[0-9]*/environ 2>/dev/null | wc -l"
    # The server, and one that left it; the process in between may take a moment to end.
    wait_for(lambda: int(site.lab.run("", mine).stdout) == 2, 60)
    for path in ("/var/lib/fleetctl/supervised", f"{site.lab.folder}/conf.d"):
        assert 's"e$c' not in site.lab.run("", f"cat {path}/{site.slot}-good.*").stdout
    site.service("new")
    site.services["new"] |= {"user": "daemon", "secrets": {"KEY": "file:key"}}
    site.write()
    site.run("swap", "good", "new")
    assert int(site.lab.run("", mine, check=False).stdout) == 0
