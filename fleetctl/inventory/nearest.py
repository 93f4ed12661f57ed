"""The right name, where a wrong one was given."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(wrong: str, names: Iterable[str]) -> str | None:
    """The name most like ``wrong``, or None where none is like it."""
    by_fold = {name.lower(): name for name in names}
    match = get_close_matches(wrong.lower(), list(by_fold), n=1, cutoff=0.6)
    return by_fold[match[0]] if match else None


def hint(wrong: str, names: Iterable[str], many: str) -> str:
    """A remedy's words: the nearest name, and all there are, called ``many``."""
    known = sorted(names)
    near = nearest(wrong, known)
    listed = f"{many}: {', '.join(known)}" if known else f"there are no {many}"
    return f"did you mean {near}? ({listed})" if near else listed
