"""What each tool is told to do: the unit's file as wanted, read by systemd, enabled and running."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fleet.site import SERVICE, UNIT, Door, Site
from fleetctl.lab.paths import IDENTITY

SCRIPT = f"""
f=/etc/systemd/system/{UNIT}
cat > $f.new
if cmp -s $f.new $f && systemctl is-active -q {UNIT} && systemctl is-enabled -q {UNIT}; then rm $f.new; exit; fi
chmod 644 $f.new && mv $f.new $f && systemctl daemon-reload && systemctl enable --now -q {UNIT}
"""


@dataclass(frozen=True)
class Tool:
    """A command, the folder it runs in, and what its environment has more."""

    name: str
    command: list[str]
    folder: Path
    environment: dict[str, str]


def tools(site: Site, doors: Sequence[Door], where: str, peers: Path | None, unit: str) -> list[Tool]:
    """The script's floor, fleetctl, and the peers whose environment is there; all know the hosts by ``where``."""
    folder = site.folder / f"peers-{where}"
    folder.mkdir(exist_ok=True)
    (folder / UNIT).write_text(unit)
    known = site.folder / where / "known_hosts"
    found = [_script(folder, doors, known), _fleetctl(site, where)]
    if peers:
        found += [_pyinfra(peers, folder, doors, known)]
        found += [_ansible(peers, folder, doors, known, mitogen) for mitogen in _mitogen(peers)]
    return found


def _fleetctl(site: Site, where: str) -> Tool:
    command = [sys.executable, "-m", "fleetctl", "deploy", "@all", "--service", SERVICE]
    environment = {"FLEETCTL_FLEET": str(site.folder), "FLEETCTL_INVENTORY": where}
    return Tool("fleetctl", command, Path.cwd(), environment)


def _script(folder: Path, doors: Sequence[Door], known: Path) -> Tool:
    """One OpenSSH session a host, all at once."""
    (folder / "remote.sh").write_text(SCRIPT)
    lines = [
        f"ssh -F none -o BatchMode=yes -o UserKnownHostsFile={known} -i {IDENTITY} -p {door.port} "
        f'root@{door.address} "$(cat remote.sh)" < {UNIT} & pids="$pids $!"'
        for door in doors
    ]
    waits = "for pid in $pids; do wait $pid || exit 1; done"
    (folder / "all.sh").write_text("\n".join([*lines, waits]) + "\n")
    return Tool("openssh", ["sh", "all.sh"], folder, {})


def _pyinfra(peers: Path, folder: Path, doors: Sequence[Door], known: Path) -> Tool:
    rows = [
        (
            door.name,
            {
                "ssh_hostname": door.address,
                "ssh_port": door.port,
                "ssh_user": "root",
                "ssh_key": str(IDENTITY),
                "ssh_known_hosts_file": str(known),
            },
        )
        for door in doors
    ]
    (folder / "hosts.py").write_text(f"hosts = {rows!r}\n")
    (folder / "deploy.py").write_text(
        "from pyinfra.operations import files, systemd\n"
        f"unit = files.put(src={UNIT!r}, dest='/etc/systemd/system/{UNIT}', mode='644')\n"
        f"systemd.service(service={UNIT!r}, running=True, enabled=True, daemon_reload=True, "
        "_if=unit.did_change)\n"
        f"systemd.service(service={UNIT!r}, running=True, enabled=True)\n"
    )
    return Tool("pyinfra", [str(peers / "bin/pyinfra"), "-y", "hosts.py", "deploy.py"], folder, {})


def _mitogen(peers: Path) -> list[Path | None]:
    found: list[Path | None] = [None]
    return [*found, *peers.glob("lib/python3.*/site-packages/ansible_mitogen/plugins/strategy")]


def _ansible(peers: Path, folder: Path, doors: Sequence[Door], known: Path, mitogen: Path | None) -> Tool:
    lines = [
        f"{door.name} ansible_host={door.address} ansible_port={door.port} ansible_user=root "
        f"ansible_ssh_private_key_file={IDENTITY} ansible_python_interpreter=/usr/bin/python3 "
        f"ansible_ssh_common_args='-o UserKnownHostsFile={known}'"
        for door in doors
    ]
    name = "ansible-mitogen" if mitogen else "ansible"
    own = folder / name
    own.mkdir(exist_ok=True)
    (own / "hosts.ini").write_text("[all]\n" + "\n".join(lines) + "\n")
    copy = {"src": str(folder / UNIT), "dest": f"/etc/systemd/system/{UNIT}", "mode": "0644"}
    service = {"name": UNIT, "state": "started", "enabled": True}
    reload = "{{ unit.changed }}"
    tasks = [
        {"ansible.builtin.copy": copy, "register": "unit"},
        {"ansible.builtin.systemd_service": {**service, "daemon_reload": reload}},
    ]
    (own / "play.yml").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    strategy = f"strategy = mitogen_linear\nstrategy_plugins = {mitogen}\n" if mitogen else ""
    # its own control sockets: those of a run before would spare this one the handshakes
    ssh = "[ssh_connection]\npipelining = True\nssh_args = -o ControlMaster=auto -o ControlPersist=5s\n"
    (own / "ansible.cfg").write_text(f"[defaults]\nforks = {len(doors)}\ntimeout = 60\n{strategy}{ssh}")
    return Tool(name, [str(peers / "bin/ansible-playbook"), "-i", "hosts.ini", "play.yml"], own, {})
