"""What of a host decides which wheels fit it: its Python, its architecture and its C library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packaging.specifiers import SpecifierSet

from fleetctl.errors import Exit, FleetError

_OLDEST_GLIBC = {"x86_64": 5}
_OLDEST_GLIBC_ELSEWHERE = 17


@dataclass(frozen=True)
class HostPlatform:
    """``python`` like ``3.11.2``, ``arch`` like ``x86_64``, ``glibc`` like ``2.36``."""

    python: str
    arch: str
    glibc: str

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> HostPlatform:
        """The platform in an agent's ``facts``; :class:`FleetError` (exit 5) for a host without glibc."""
        if not facts.get("glibc"):
            raise FleetError(
                "the host's C library is not glibc, so no manylinux wheel fits it",
                where=str(facts.get("hostname", "")),
                fix="use a host with a glibc distribution (Debian, Ubuntu, RHEL, …)",
                exit=Exit.PREFLIGHT,
            )
        return cls(facts["python"]["version"], facts["arch"], facts["glibc"])

    @property
    def minor(self) -> str:
        """``3.11``"""
        return ".".join(self.python.split(".")[:2])

    @property
    def tag(self) -> str:
        """The python tag of wheels: ``cp311``."""
        return "cp" + self.minor.replace(".", "")

    @property
    def wheel_platforms(self) -> list[str]:
        """The platform tags whose wheels run here, best first."""
        newest = int(self.glibc.split(".")[1])
        oldest = _OLDEST_GLIBC.get(self.arch, _OLDEST_GLIBC_ELSEWHERE)
        numbered = [f"manylinux_2_{minor}_{self.arch}" for minor in range(newest, oldest - 1, -1)]
        return [*numbered, f"manylinux2014_{self.arch}", f"linux_{self.arch}"]

    @property
    def markers(self) -> dict[str, str]:
        """The host's values for the environment markers of PEP 508."""
        return {
            "implementation_name": "cpython",
            "implementation_version": self.python,
            "os_name": "posix",
            "platform_machine": self.arch,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": self.python,
            "python_version": self.minor,
            "sys_platform": "linux",
        }

    def require_python(self, python: SpecifierSet, where: str) -> None:
        """Raise :class:`FleetError` (exit 5) unless the host's Python is in the range."""
        if not python.contains(self.python, prereleases=True):
            raise FleetError(
                f"the environment is for Python {python}, the host has {self.python}",
                where=where,
                fix="choose another environment or host, or widen `python:` and check the pins",
                exit=Exit.PREFLIGHT,
            )

    def __str__(self) -> str:
        return f"{self.tag}, {self.arch}, glibc {self.glibc}"
