"""The operator's ^C: the first one has the host undo what it is doing, the second leaves it to the host.

A terminal that is closed (SIGHUP) ends nothing: what has begun is followed to its end, and no other host is begun.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from fleetctl.errors import FleetError
from fleetctl.transport.agent import Agent

OnEvent = Callable[[dict[str, Any]], None]
FIRST = "^C: the host is asked to undo it; ^C again leaves it to the host"
SECOND = "^C again: it is left to the host"
ASKED_S = 10.0
"""How long the second ^C waits for the host to know of the first."""


class Interrupt:
    """Counts ^C while rollouts run; made once a command, in the main thread, by ``installed()``."""

    def __init__(self) -> None:
        self.asked = False
        self.left = False
        self.hung_up = False
        self._rollouts: dict[str, Agent] = {}
        self._told: dict[str, threading.Event] = {}
        self._on_event: OnEvent = lambda event: None

    @contextmanager
    def installed(self, on_event: OnEvent) -> Iterator[Interrupt]:
        """Handle SIGINT and SIGHUP within this context; ``on_event`` is told what each ^C does."""
        self._on_event = on_event
        previous = signal.signal(signal.SIGINT, self._on_sigint)
        before = signal.getsignal(signal.SIGHUP)
        if before != signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._on_sighup)
        try:
            yield self
        finally:
            signal.signal(signal.SIGINT, previous)
            signal.signal(signal.SIGHUP, before)

    @contextmanager
    def covers(self, agent: Agent, rollout: str) -> Iterator[None]:
        """Within this context ``rollout`` runs on the agent's host, and ^C is about it."""
        self._told[rollout] = threading.Event()
        self._rollouts[rollout] = agent
        try:
            yield
        finally:
            del self._rollouts[rollout]

    def repeat(self, agent: Agent, rollout: str) -> None:
        """Ask again for a rollout that has just started: a ^C during its start found nothing to abort."""
        if self.asked:
            self._abort(agent, rollout)

    @property
    def has_begun(self) -> bool:
        """Whether any rollout was started, ended or not."""
        return bool(self._told)

    def was_told(self, rollout: str) -> bool:
        """Whether the host has answered that it knows of the wish to undo ``rollout``."""
        return self._told[rollout].is_set()

    def _on_sigint(self, _signum: int, _frame: FrameType | None) -> None:
        tell = self._leave if self.asked else self._abort
        self.left = self.asked
        self.asked = True
        if not self._rollouts:
            raise KeyboardInterrupt
        threading.Thread(target=self._say, args=(SECOND if self.left else FIRST,), daemon=True).start()
        for rollout, agent in list(self._rollouts.items()):
            threading.Thread(target=tell, args=(agent, rollout), daemon=True).start()

    def _on_sighup(self, _signum: int, _frame: FrameType | None) -> None:
        self.hung_up = True

    def _say(self, text: str) -> None:
        self._on_event({"step": "interrupt", "state": "info", "text": text})

    def _abort(self, agent: Agent, rollout: str) -> None:
        with suppress(FleetError):
            agent.call("rollout.abort", id=rollout, timeout=30)
            self._told[rollout].set()

    def _leave(self, agent: Agent, rollout: str) -> None:
        """End the session, but not before the first ^C has arrived: closing it ends the agent at once."""
        self._told[rollout].wait(ASKED_S)
        agent.close()
