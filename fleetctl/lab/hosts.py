"""The lab as a whole: up, down, status, and single hosts for tests of bad days."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from fleetctl.errors import Exit, FleetError
from fleetctl.lab import keys, machine, network, record, root, system
from fleetctl.lab.inventory import LabHost
from fleetctl.lab.paths import LAB_RECORD, HostPaths
from fleetctl.lab.record import HostRecord, LabRecord

Say = Callable[[str], None]
_PROBE_S = 20.0


def _silent(line: str) -> None:
    del line


@dataclass(frozen=True)
class HostStatus:
    """What ``lab status`` says of one host."""

    host: str
    address: str
    state: str
    pid: int | None = None
    uptime_s: float | None = None
    units_running: int | None = None
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The status as one JSON object."""
        return asdict(self)


def up(hosts: list[LabHost], say: Say = _silent) -> list[str]:
    """Boot the hosts that are not up; return the names of those that were booted."""
    system.require()
    with record.locked(say):
        down_now = [state for state in _statuses(hosts) if state.state != "up"]
        wanted = {state.host: state for state in down_now}
        names = {host.name for host in hosts}
        for left in record.host_records():
            if left.host not in names:
                say(f"{left.host}: in no inventory any more, taken away")
                _remove_host(left)
            elif left.host in wanted:
                say(f"{left.host}: broken ({wanted[left.host].reason}), made afresh")
                _remove_host(left)
        starting = [host for host in hosts if host.name in wanted]
        if starting:
            _make_shared(hosts, starting)
            records = {host.name: _claim(host) for host in starting}
            for host in starting:
                say(f"{host.name}: boots, at most {machine.READY_S:.0f} s")
                network.connect(records[host.name])
            with ThreadPoolExecutor(len(starting)) as pool:
                _all(pool.map(lambda host: _attempt(host, hosts, records[host.name], say), starting))
        return [host.name for host in starting]


def down(say: Say = _silent) -> list[str]:
    """End every host and take away everything the lab made but its keys; return the hosts' names."""
    system.require()
    with record.locked(say):
        records = record.host_records()
        with ThreadPoolExecutor(max(1, len(records))) as pool:
            list(pool.map(machine.end, records))
        for left in records:
            _remove_host(left)
            say(f"{left.host}: down")
        shared = record.lab_record()
        if shared:
            network.remove_bridge(shared.netns_mount)
            root.unmount_ram()
            LAB_RECORD.unlink()
        return [left.host for left in records]


def status(hosts: list[LabHost]) -> list[HostStatus]:
    """The state of each host: ``up``, ``down`` (nothing of it is here) or ``broken`` (with the reason)."""
    return _statuses(hosts)


def kill(host: LabHost) -> None:
    """Cut a host's power: all its processes end at once, its disk and its cable stay."""
    machine.end(_recorded(host))


def boot(host: LabHost, say: Say = _silent) -> None:
    """Switch a host on again that was killed, with the disk it had."""
    machine.boot(host, _recorded(host), say)


def link_down(host: LabHost) -> None:
    """Pull a host's network cable."""
    network.set_link(_recorded(host), "down")


def link_up(host: LabHost) -> None:
    """Plug a host's network cable in again."""
    network.set_link(_recorded(host), "up")


def run(host: LabHost, command: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a command on a host by ssh and return its status and output."""
    return subprocess.run(
        keys.ssh_command(host, command),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def _recorded(host: LabHost) -> HostRecord:
    found = record.host_record(host.name)
    if found is None:
        raise FleetError(
            "the lab host is down", where=host.name, fix="fleetctl lab up", exit=Exit.UNREACHABLE
        )
    return found


def _make_shared(hosts: list[LabHost], starting: list[LabHost]) -> None:
    shared = record.lab_record()
    network.refuse_strangers(
        bridge_is_ours=shared is not None,
        names=[(host.name, network.link_name(host.name)) for host in starting],
    )
    if shared is None:
        LabRecord(netns_mount=not network.netns_is_mounted()).save()
    keys.ensure(hosts)
    root.mount_ram()
    network.ensure_bridge()


def _claim(host: LabHost) -> HostRecord:
    claimed = HostRecord(
        host=host.name,
        address=host.address,
        machine=f"fleetctl-{host.name}-{secrets.token_hex(4)}",
        netns=host.name,
        link=network.link_name(host.name),
    )
    claimed.save()
    return claimed


def _attempt(host: LabHost, hosts: list[LabHost], claimed: HostRecord, say: Say) -> FleetError | None:
    try:
        root.mount(host, hosts)
        machine.boot(host, claimed, say)
    except FleetError as error:
        return error
    return None


def _all(outcomes: Any) -> None:
    errors = [error for error in outcomes if error is not None]
    if errors:
        first: FleetError = errors[0]
        for other in errors[1:]:
            first.evidence += [str(other), *other.evidence]
        raise first


def _remove_host(left: HostRecord) -> None:
    machine.end(left)
    network.disconnect(left)
    root.remove(HostPaths(left.host))


def _statuses(hosts: list[LabHost]) -> list[HostStatus]:
    with ThreadPoolExecutor(max(1, len(hosts))) as pool:
        return list(pool.map(_status, hosts))


def _status(host: LabHost) -> HostStatus:
    found = record.host_record(host.name)
    if found is None:
        return HostStatus(host.name, host.address, "down")
    if not found.ready:
        return HostStatus(host.name, host.address, "broken", reason="its boot was cut short")
    if not machine.alive(found):
        return HostStatus(host.name, host.address, "broken", reason="its systemd is gone")
    uptime = time.clock_gettime(time.CLOCK_BOOTTIME) - found.pid_start / os.sysconf("SC_CLK_TCK")
    known = HostStatus(host.name, host.address, "broken", found.pid, round(uptime, 1))
    try:
        answer = run(host, "systemctl list-units --type=service --state=running --no-legend", _PROBE_S)
    except subprocess.TimeoutExpired:
        return HostStatus(**{**asdict(known), "reason": f"no answer by ssh after {_PROBE_S:.0f} s"})
    if answer.returncode:
        return HostStatus(**{**asdict(known), "reason": answer.stderr.strip() or "ssh failed"})
    return HostStatus(**{**asdict(known), "state": "up", "units_running": len(answer.stdout.splitlines())})
