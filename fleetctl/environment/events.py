"""What long work says while it goes on: ``{"step", "state": "begin|wait|ok|info", "text", "left_s"?}``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

EVERY_S = 0.5

OnEvent = Callable[[dict[str, Any]], None]


def throttled(on_event: OnEvent) -> OnEvent:
    """``on_event`` with at most one ``wait`` each ``EVERY_S``; every other event goes through."""
    last = 0.0

    def pass_on(event: dict[str, Any]) -> None:
        nonlocal last
        now = time.monotonic()
        if event["state"] != "wait" or now - last >= EVERY_S:
            last = now
            on_event(event)

    return pass_on
