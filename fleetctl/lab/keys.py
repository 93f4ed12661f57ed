"""The lab's ssh keys: the operator's, one a host, and the known_hosts that binds them to addresses.

They outlive ``lab down``: a lab that is booted again is the same lab to every ssh client.
"""

from __future__ import annotations

from pathlib import Path

from fleetctl.lab import system
from fleetctl.lab.inventory import LabHost
from fleetctl.lab.paths import IDENTITY, KNOWN_HOSTS, LAB_DIR, HostPaths
from fleetctl.lab.root import HOST_KEY


def ensure(hosts: list[LabHost]) -> None:
    """Make the keys that are missing and write known_hosts."""
    LAB_DIR.mkdir(parents=True, exist_ok=True)
    LAB_DIR.chmod(0o700)
    _key(IDENTITY, "fleetctl-lab")
    lines = []
    for host in hosts:
        file = HostPaths(host.name).keys / HOST_KEY
        file.parent.mkdir(parents=True, exist_ok=True)
        _key(file, host.name)
        kind, public = file.with_name(f"{HOST_KEY}.pub").read_text().split()[:2]
        lines.append(f"{host.name},{host.address} {kind} {public}\n")
    fresh = KNOWN_HOSTS.with_suffix(".new")
    fresh.write_text("".join(lines))
    fresh.replace(KNOWN_HOSTS)


def ssh_command(host: LabHost, *command: str, connect_timeout: int = 20) -> list[str]:
    """The ssh command line to a lab host: the lab's key, its host key checked, nobody's config."""
    options = {
        "IdentitiesOnly": "yes",
        "BatchMode": "yes",
        "UserKnownHostsFile": str(KNOWN_HOSTS),
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "HostKeyAlias": host.name,
        "ConnectTimeout": str(connect_timeout),
        "LogLevel": "ERROR",
    }
    flags = [part for key, value in options.items() for part in ("-o", f"{key}={value}")]
    ssh = system.tool("ssh") or "ssh"
    return [ssh, "-F", "none", "-i", str(IDENTITY), *flags, "--", f"root@{host.address}", *command]


def _key(file: Path, comment: str) -> None:
    public = file.with_name(file.name + ".pub")
    if not (file.exists() and public.exists()):
        file.unlink(missing_ok=True)
        public.unlink(missing_ok=True)
        system.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(file))
