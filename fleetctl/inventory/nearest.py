"""The right name, where a wrong one was given."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(wrong: str, names: Iterable[str]) -> str | None:
    """The name most like ``wrong``, or None where none is like it."""
    return next(iter(nearest_few(wrong, names, 1)), None)


def nearest_few(wrong: str, names: Iterable[str], most: int = 3) -> list[str]:
    """The names most like ``wrong``, the most like it first; empty where none is like it."""
    by_fold = {name.lower(): name for name in names}
    return [by_fold[match] for match in get_close_matches(wrong.lower(), list(by_fold), n=most, cutoff=0.6)]


def hint(wrong: str, names: Iterable[str], many: str) -> str:
    """A remedy's words: the nearest name, and all there are, called ``many``."""
    known = sorted(names)
    near = nearest(wrong, known)
    listed = f"{many}: {', '.join(known)}" if known else f"there are no {many}"
    return f"did you mean {near}? ({listed})" if near else listed
