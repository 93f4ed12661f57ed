"""Words that go with numbers."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """``1 file``, ``2 files``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
