"""Paramiko without what fleetctl never uses of it, for a quick start.

``paramiko.config`` imports invoke where it is installed (with asyncio and unittest.mock: 40 of 90 ms) for
``Match exec`` in its own reader of ``~/.ssh/config``; fleetctl asks ``ssh -G``. Hidden during this import.
"""

from __future__ import annotations

import sys

_hidden = "invoke" not in sys.modules
if _hidden:
    sys.modules["invoke"] = None  # type: ignore[assignment]
try:
    import paramiko
finally:
    if _hidden:
        del sys.modules["invoke"]

__all__ = ["paramiko"]
