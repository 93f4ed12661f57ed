"""The files that make a venv a venv: no distribution brings them, whatever its RECORD says."""

from __future__ import annotations

import re

SCAFFOLD = re.compile(
    r"pyvenv\.cfg|\.fleetctl-env\.json|lib64(?:/.*)?"
    r"|bin/(?:python|pypy)[\d.]*t?"
    r"|bin/[aA]ctivate(?:\.(?:csh|fish|nu|xsh|bat|ps1)|_this\.py)?|bin/Activate\.ps1|bin/deactivate(?:\.\w+)?"
    r"|lib/python3\.\d+/site-packages/_virtualenv\.(?:py|pth)"
)


def is_scaffold(inside: str) -> bool:
    """Whether a path relative to an environment is of the venv itself: its interpreter, its settings, ``activate``."""
    return SCAFFOLD.fullmatch(inside) is not None
