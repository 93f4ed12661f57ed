"""The faults: each takes a batch of rollouts that are held at their points, strikes, and lets them go on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from fleetctl.lab import hosts as lab_hosts
from fleetctl.lab import machine, record
from tests.faults.site import ORDERS, Site, Slot
from tests.transport.sshd import wait_for

Strike = Callable[[Site], None]


@dataclass(frozen=True)
class Fault:
    """``by_controller``: the rollouts are a controller's of its own process, and its link is what the fault is about.

    ``ends``: how that may see them end, if not by their outcome; None where it sees nothing any more.
    """

    name: str
    strike: Strike
    by_controller: bool = False
    clock: float = 0.0
    ends: tuple[int | None, ...] = ()
    crashes: bool = False
    """The rollouts are left without a result: the next deploy settles them."""


def rollout_unit(slot: Slot) -> str:
    """The transient unit of a slot's rollout."""
    return f"fleetctl-rollout-{slot.name}.service"


def kill_rollouts(site: Site) -> None:
    """SIGKILL to each rollout's process; its ``ExecStopPost`` comes next."""
    units = " ".join(rollout_unit(slot) for slot in site.slots)
    site.run(f"systemctl kill -s KILL --kill-who=main {units}", check=False)
    site.release()


def kill_rollouts_and_recovery(site: Site) -> None:
    """SIGKILL to each rollout's process and to what would recover it, before it could: nobody is at work."""
    place = site.inside / ORDERS
    for slot in site.slots:
        order = place / f"{slot.name}.json"
        order.write_text(json.dumps({"step": "recover", "at": "begin"}))
        script = f"""
systemctl kill -s KILL --kill-who=main {rollout_unit(slot)}
until systemctl show -P SubState {rollout_unit(slot)} | grep -qE '^(stop-post|failed|dead)$'; do sleep 0.02; done
systemctl kill -s KILL --kill-who=all {rollout_unit(slot)}
until systemctl is-failed -q {rollout_unit(slot)} || ! systemctl is-active -q {rollout_unit(slot)}; do sleep 0.02; done
"""
        site.run(script, check=False)
        order.unlink()


def cut_power(site: Site) -> None:
    """All processes of the host end at once; then it boots."""
    lab_hosts.kill(site.place)
    site.boot()


def shut_down(site: Site) -> None:
    """An orderly shutdown in the middle of it, then a boot."""
    site.run("systemctl poweroff --no-block", check=False)
    with suppress(OSError):
        site.release()
    found = record.host_record(site.name)
    assert found is not None
    wait_for(lambda: not machine.populated(found), 120)
    machine.end(found)
    site.boot()


def kill_services(site: Site) -> None:
    """SIGKILL to every process of what runs in each slot, as the kernel's OOM killer does; no restart by systemd."""
    units = " ".join(f"'{slot.name}-*.service'" for slot in site.slots)
    gone = f"while systemctl list-units -q --plain --no-legend --state=active {units} | grep -q .; do sleep 0.05; done"
    site.run(f'systemctl kill -s KILL --kill-who=all {units}; timeout 60 sh -c "{gone}"', check=False)
    site.release()


def jump(site: Site) -> None:
    """The hook has the clock jump as each rollout goes on."""
    site.release()


def refuse_reloads(site: Site, seconds: float = 8.0) -> None:
    """systemd takes no daemon-reload for a while."""
    flag = f"/{ORDERS}/no-reload"
    wrapper = f"""#!/bin/sh
[ -e {flag} ] && for word; do [ "$word" = daemon-reload ] && {{ echo refused >&2; exit 1; }}; done
exec /usr/bin/systemctl "$@"
"""
    path = site.inside / "usr/local/bin/systemctl"
    path.write_text(wrapper)
    path.chmod(0o755)
    (site.inside / flag.lstrip("/")).touch()
    site.release()
    time.sleep(seconds)
    (site.inside / flag.lstrip("/")).unlink()
    site.wait_results()
    path.unlink()
    site.run("systemctl daemon-reload")  # what systemd says of enablement is of its last one


PLACES = ("/var/lib/fleetctl", "/etc/systemd/system")


def small_disks(site: Site) -> None:
    """Put what rollouts write to on file systems that can be filled."""
    for number, place in enumerate(PLACES):
        small = f"/run/small{number}"
        site.run(
            f"mkdir -p {small} && mount -t tmpfs -o size=96m tmpfs {small} && cp -a {place}/. {small} "
            f"&& mount --bind {small} {place} || {{ umount -l {small}; false; }}"
        )


def usual_disks(site: Site) -> None:
    """Take them away again."""
    for number, place in enumerate(PLACES):
        small = f"/run/small{number}"
        site.run(f"mountpoint -q {small} && umount -l {place}; umount -l {small}", check=False)


def fill_disks(site: Site) -> None:
    """Fill them, let the rollouts go on and end, and make room again."""
    fill = "; ".join(f"cat /dev/zero > {place}/filler 2>/dev/null" for place in PLACES)
    site.run(f"{fill}; true")
    site.release()
    site.wait_results()
    site.run("; ".join(f"rm {place}/filler" for place in PLACES))


def nothing(site: Site) -> None:
    """No fault at all: what the others are compared with."""
    site.release()


def restart_sshd(site: Site) -> None:
    """sshd starts anew; sessions go on."""
    site.run("systemctl restart ssh")
    site.release()


def kill_agents(site: Site) -> None:
    """SIGKILL to every agent session."""
    site.run("pkill -KILL -f '[0-9a-f]{12}.pyz serve$'", check=False)
    site.release()


def cut_network_for_a_while(site: Site) -> None:
    """The cable is out for 5 s."""
    lab_hosts.link_down(site.place)
    site.release()
    time.sleep(5)
    lab_hosts.link_up(site.place)


def cut_network(site: Site) -> None:
    """The cable stays out until the rollouts have their results and the controllers have given up."""
    lab_hosts.link_down(site.place)
    site.release()
    site.wait_results()
    assert site.controller is not None
    wait_for(lambda: site.controller is not None and site.controller.poll() is not None, 120)
    lab_hosts.link_up(site.place)


def kill_controllers(site: Site) -> None:
    """SIGKILL to the controller."""
    assert site.controller is not None
    site.controller.kill()
    site.release()


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("none", nothing),
        Fault("rollout-killed", kill_rollouts),
        Fault("rollout-and-recovery-killed", kill_rollouts_and_recovery, crashes=True),
        Fault("power-cut", cut_power),
        Fault("shutdown", shut_down),
        Fault("service-killed", kill_services),
        Fault("clock-forward", jump, clock=86_400.0),
        Fault("clock-back", jump, clock=-86_400.0),
        Fault("reload-refused", refuse_reloads),
        Fault("disk-full", fill_disks),
        Fault("controller-killed", kill_controllers, by_controller=True, ends=(None,)),
        Fault("agent-killed", kill_agents, by_controller=True, ends=(3,)),
        Fault("network-cut-5s", cut_network_for_a_while, by_controller=True),
        Fault("network-cut", cut_network, by_controller=True, ends=(3,)),
        Fault("sshd-restarted", restart_sshd, by_controller=True),
    )
}
