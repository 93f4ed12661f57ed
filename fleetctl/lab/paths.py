"""Where the lab keeps its things on the machine that carries it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LAB_DIR = Path("/var/lib/fleetctl-lab")
IDENTITY = LAB_DIR / "id"
KNOWN_HOSTS = LAB_DIR / "known_hosts"
RAM = LAB_DIR / "ram"
LAB_RECORD = LAB_DIR / "record.json"
LOCK = LAB_DIR / "lock"

BRIDGE = "flt0"
GATEWAY = "198.18.0.1/24"


@dataclass(frozen=True)
class HostPaths:
    """The folders and files of one lab host."""

    name: str

    @property
    def dir(self) -> Path:
        """Everything of this host that does not outlive ``lab down``."""
        return LAB_DIR / self.name

    @property
    def root(self) -> Path:
        """The overlay mount that the host boots."""
        return self.dir / "root"

    @property
    def state(self) -> Path:
        """The real folder that the host sees as ``/var/lib/fleetctl`` (hard links work in it)."""
        return self.dir / "state"

    @property
    def console(self) -> Path:
        """What the host's systemd printed while booting."""
        return self.dir / "console.log"

    @property
    def record(self) -> Path:
        """What was made for this host, written before it is made."""
        return self.dir / "record.json"

    @property
    def upper(self) -> Path:
        """The overlay's writable layer."""
        return RAM / self.name / "upper"

    @property
    def work(self) -> Path:
        """The overlay's work folder."""
        return RAM / self.name / "work"

    @property
    def keys(self) -> Path:
        """The host's ssh host key, kept over ``lab down`` so that known_hosts stays true."""
        return LAB_DIR / "keys" / self.name
