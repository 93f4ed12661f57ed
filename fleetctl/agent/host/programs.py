"""``programs``: which of some programs a host has."""

from __future__ import annotations

import shutil
from typing import Any, Callable, Dict, Optional


def programs(args: Dict[str, Any], emit: Callable[[Dict[str, Any]], None]) -> Dict[str, Optional[str]]:
    """Each of ``names`` with its path, or None where it is not installed."""
    return {name: shutil.which(name) for name in args["names"]}
