"""The right name, where a wrong one was given."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(wrong: str, names: Iterable[str]) -> str | None:
    """The name most like ``wrong``, or None where none is like it; also one that alone begins so."""
    return next(iter(nearest_few(wrong, names, 1)), None)


def nearest_few(wrong: str, names: Iterable[str], most: int = 3) -> list[str]:
    """The names most like ``wrong``, the most like it first, else those whose part before the first ``-`` is.

    Empty where none is like it, or more than ``most`` begin so.
    """
    word, by_fold = wrong.lower(), {name.lower(): name for name in names}
    near = get_close_matches(word, list(by_fold), n=most, cutoff=0.6)
    if not near:
        parts = {name: name.partition("-")[0] for name in by_fold}
        like = get_close_matches(word, set(parts.values()), cutoff=0.8)
        near = [name for name, part in parts.items() if part in like]
    return [by_fold[name] for name in near] if len(near) <= most else []


def hint(wrong: str, names: Iterable[str], many: str) -> str:
    """A remedy's words: the nearest name, and all there are, called ``many``."""
    known = sorted(names)
    near = nearest(wrong, known)
    listed = f"{many}: {', '.join(known)}" if known else f"there are no {many}"
    return f"did you mean {near}? ({listed})" if near else listed
