"""Functions of tensors of static shapes, captured as CUDA graphs once they have run: one launch for all of theirs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

logger = logging.getLogger(__name__)

WARM_UPS = 3  # runs before the capture: kernels are compiled, libraries have their workspaces
MOST = 64  # graphs


@dataclass
class _Entry:
    runs: int = 0
    replay: Callable[[], None] | None = None
    inputs: list[torch.Tensor] = field(default_factory=list)
    outputs: Any = None
    failed: bool = False


class Replays:
    """Runs functions, and replays those that it has captured; without ``enabled`` it only runs them."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self._entries: dict[Hashable, _Entry] = {}

    @property
    def captured(self) -> int:
        """How many graphs there are."""
        return sum(entry.replay is not None for entry in self._entries.values())

    def has(self, key: Hashable) -> bool:
        """Whether ``key`` is replayed, so that its outputs are always the same memory."""
        entry = self._entries.get(key)
        return entry is not None and entry.replay is not None

    def run(self, key: Hashable, function: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> Any:
        """``function(*inputs)``. ``key`` must change whenever shapes, or anything else that ``function`` reads or
        writes by address, do. What is returned holds until the next run of the same key."""
        if not self.enabled:
            return function(*inputs)
        entry = self._entries.get(key)
        if entry is None:
            if len(self._entries) >= MOST:
                return function(*inputs)
            entry = self._entries.setdefault(key, _Entry())
        entry.runs += 1
        if entry.replay is None and (entry.failed or entry.runs <= WARM_UPS):
            return function(*inputs)
        if entry.replay is None and not self._capture(entry, key, function, inputs):
            return function(*inputs)
        torch._foreach_copy_(entry.inputs, list(inputs))
        assert entry.replay is not None
        entry.replay()
        return entry.outputs

    def _capture(
        self, entry: _Entry, key: Hashable, function: Callable[..., Any], inputs: Sequence[torch.Tensor]
    ) -> bool:
        entry.inputs = [tensor.clone() for tensor in inputs]
        try:
            entry.replay, entry.outputs = capture(function, entry.inputs)
        except Exception as error:
            entry.failed, entry.inputs, entry.outputs = True, [], None
            logger.warning("DDTREE: no CUDA graph for %s (%s: %s)", key, type(error).__name__, error)
            return False
        return True


def capture(function: Callable[..., Any], inputs: list[torch.Tensor]) -> tuple[Callable[[], None], Any]:
    """(what replays ``function`` on ``inputs`` as they are then, the outputs that this fills)."""
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        outputs = function(*inputs)
    torch.cuda.synchronize()
    return graph.replay, outputs
