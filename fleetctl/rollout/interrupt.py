"""The operator's ^C: the first one has the host undo what it is doing, the second leaves it to the host."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from fleetctl.errors import FleetError
from fleetctl.transport.agent import Agent


class Interrupt:
    """Counts ^C while rollouts run; made once a command, in the main thread, by ``installed()``."""

    def __init__(self) -> None:
        self.asked = False
        self.left = False
        self._rollouts: dict[str, Agent] = {}

    @contextmanager
    def installed(self) -> Iterator[Interrupt]:
        """Handle SIGINT within this context."""
        previous = signal.signal(signal.SIGINT, self._on_sigint)
        try:
            yield self
        finally:
            signal.signal(signal.SIGINT, previous)

    @contextmanager
    def covers(self, agent: Agent, rollout: str) -> Iterator[None]:
        """Within this context ``rollout`` runs on the agent's host, and ^C is about it."""
        self._rollouts[rollout] = agent
        try:
            yield
        finally:
            del self._rollouts[rollout]

    def _on_sigint(self, _signum: int, _frame: FrameType | None) -> None:
        self.left = self.asked
        self.asked = True
        if not self._rollouts:
            raise KeyboardInterrupt
        for rollout, agent in list(self._rollouts.items()):
            threading.Thread(target=self._tell, args=(agent, rollout), daemon=True).start()

    def _tell(self, agent: Agent, rollout: str) -> None:
        if self.left:
            agent.close()
        else:
            with suppress(FleetError):
                agent.call("rollout.abort", id=rollout, timeout=30)
