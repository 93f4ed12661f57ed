"""Which rows of a verify pass stay, and which cache slots are freed. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence


def commit_lists(paths: Sequence[Sequence[int]], rows: int) -> tuple[list[int], list[int]]:
    """(rows to keep, rows to drop) of a flat [requests * rows] pass.

    ``paths`` are each request's committed rows, in the order of their positions. Kept rows come request by
    request in that order, which is where the cache's compacted part takes them from.
    """
    keep = [request * rows + row for request, path in enumerate(paths) for row in path]
    held = set(keep)
    return keep, [row for row in range(len(paths) * rows) if row not in held]
