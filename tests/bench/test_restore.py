"""Putting back what stood in a slot: what ^C does meanwhile."""

from __future__ import annotations

import queue
import signal
import threading
from typing import Any

from fleetctl.bench.restore import Restoring


def test_an_interrupt_that_comes_while_progress_is_written_waits_for_nothing() -> None:
    lock = threading.Lock()
    said: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def listen(event: dict[str, Any]) -> None:
        with lock:
            said.put(event)

    with Restoring().installed(listen):
        with lock:
            signal.raise_signal(signal.SIGINT)
        assert "^C again leaves that to the host" in said.get(timeout=60)["text"]
