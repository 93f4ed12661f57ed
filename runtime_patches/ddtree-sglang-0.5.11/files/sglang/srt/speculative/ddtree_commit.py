"""Which rows of a verify pass stay, where, and which cache slots are freed: on the host, or on the device.

Imports torch alone, so that it can be tested anywhere. The device's way has static shapes and waits for nothing: a
request's committed rows come first, and what lies behind them points to slot 0, which the engine keeps for padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


def commit_lists(paths: Sequence[Sequence[int]], rows: int) -> tuple[list[int], list[int]]:
    """(rows to keep, rows to drop) of a flat [requests * rows] pass.

    ``paths`` are each request's committed rows, in the order of their positions. Kept rows come request by
    request in that order, which is where the cache's compacted part takes them from.
    """
    keep = [request * rows + row for request, path in enumerate(paths) for row in path]
    held = set(keep)
    return keep, [row for row in range(len(paths) * rows) if row not in held]


@dataclass(frozen=True)
class Commit:
    """A pass's outcome on the device, all int64. ``steps`` is the longest path, the root counted.

    ``lines`` [requests, 2 * steps + 2]: the path's rows, their tokens, how many, the next token. ``kept_rows``,
    ``kept_slots``, ``positions`` [requests, steps]: of each committed token its row in the flat pass, its cache slot
    and its position; behind the path the root's row, slot 0, position 0. ``dropped`` [requests, rows]: the slots of
    the other rows, then zeros.
    """

    lines: torch.Tensor
    kept_rows: torch.Tensor
    kept_slots: torch.Tensor
    positions: torch.Tensor
    dropped: torch.Tensor

    @property
    def counts(self) -> torch.Tensor:
        """How many rows each request commits."""
        return self.lines[:, -2]

    @property
    def newest(self) -> torch.Tensor:
        """Each request's next token."""
        return self.lines[:, -1]


def commit(lines: torch.Tensor, lengths: torch.Tensor, slots: torch.Tensor) -> Commit:
    """The outcome of walks ``lines`` over rows whose cache slots are ``slots`` [requests, rows], behind prefixes of
    ``lengths`` [requests]; what ``ddtree_kernels.commit`` does in one launch."""
    requests, rows = slots.shape
    steps = lines.shape[1] // 2 - 1
    index = torch.arange(steps, device=lines.device)
    taken = index < lines[:, -2:-1]
    nodes = torch.where(taken, lines[:, :steps], 0)
    first = torch.arange(requests, device=lines.device)[:, None] * rows
    kept = torch.zeros(requests, rows + 1, dtype=torch.bool, device=lines.device)
    kept.scatter_(1, torch.where(taken, nodes, rows), True)
    order = kept[:, :rows].to(torch.int8).argsort(dim=1, stable=True)
    row = torch.arange(rows, device=lines.device)
    return Commit(
        lines=lines,
        kept_rows=first + nodes,
        kept_slots=torch.where(taken, slots.gather(1, nodes), 0),
        positions=torch.where(taken, lengths[:, None] + index, 0),
        dropped=torch.where(row < rows - lines[:, -2:-1], slots.gather(1, order), 0),
    )


def write_table(table: torch.Tensor, pools: torch.Tensor, lengths: torch.Tensor, done: Commit) -> None:
    """Put the kept slots behind each request's prefix in ``table`` [pool, position]; other entries stay."""
    index = torch.arange(done.kept_slots.shape[1], device=lengths.device)
    columns = lengths[:, None] + index
    here = table[pools[:, None], columns]
    kept = index < done.counts[:, None]
    table[pools[:, None], columns] = torch.where(kept, done.kept_slots.to(table.dtype), here)


def freed(
    done: Commit, lines: Sequence[Sequence[int]], added: Sequence[int]
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """(slots to free, slots that stay) once the host knows the walks.

    ``added`` [requests]: how many rows of its path a request really takes: fewer than the path where it ends in the
    middle of it. The slots to free are None where there are none.
    """
    rows = done.dropped.shape[1]
    drop: list[Any] = []
    stay: list[Any] = []
    for request, (line, taken) in enumerate(zip(lines, added, strict=True)):
        count = line[-2]
        if count < rows:
            drop.append(done.dropped[request, : rows - count])
        if taken < count:
            drop.append(done.kept_slots[request, taken:count])
        stay.append(done.kept_slots[request, :taken])
    return _joined(drop) if drop else None, _joined(stay)


def _joined(parts: list[torch.Tensor]) -> torch.Tensor:
    return parts[0].clone() if len(parts) == 1 else torch.cat(parts)
