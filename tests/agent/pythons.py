"""The Pythons of this machine that a host's agent may run on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

OLDEST = (3, 9)


def pythons() -> list[str]:
    """Interpreters of 3.9 or later, one a minor version: the running one, the system's, and pyenv's."""
    places = [
        Path(sys.executable),
        Path("/usr/bin/python3"),
        *Path.home().glob(".pyenv/versions/*/bin/python3"),
    ]
    found: dict[str, str] = {}
    for place in places:
        if place.exists():
            version = subprocess.run(
                [str(place), "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True
            ).stdout.split()
            if version and tuple(map(int, version)) >= OLDEST:
                found.setdefault(".".join(version), str(place))
    return [found[version] for version in sorted(found, key=lambda text: tuple(map(int, text.split("."))))]
