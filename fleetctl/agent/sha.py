"""SHA-256 of what is in memory. ``hashlib`` loads OpenSSL for it, which takes a tenth of the agent's start."""

from __future__ import annotations

import importlib
from typing import Any

MODULES = ("_sha256", "_sha2", "hashlib")
"""Python's own: up to 3.11, from 3.12 on, and where it was built without."""


def sha256(data: bytes) -> Any:
    """A hash object, as ``hashlib.sha256``; for large files that one is quicker."""
    for name in MODULES:
        try:
            return importlib.import_module(name).sha256(data)
        except ImportError:
            continue
    raise ImportError("this Python has no SHA-256")


def sha256_of(text: str) -> str:
    """The hexadecimal digest of a text; of one that names files in any encoding too."""
    found: str = sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
    return found
