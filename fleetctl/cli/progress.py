"""Listeners of a rollout's events: a live terminal, plain lines, or JSON lines."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from fleetctl.cli.output import Output

PLAIN_WAIT_S = 5.0
MARKS = {"ok": "ok", "fail": "FAILED", "info": ""}


class Listener(Protocol):
    """Takes events ``{"step", "state", "text", "left_s"?, "host"?}`` as they come, from any thread."""

    def __call__(self, event: dict[str, Any]) -> None: ...


@contextmanager
def progress(output: Output) -> Iterator[Listener]:
    """The listener that fits where the output goes; progress is written to stderr, JSON events to stdout."""
    if output.json:
        yield output.event
    elif output.is_live:
        yield from _live(output)
    else:
        yield _Plain(output)


def describe(event: dict[str, Any]) -> str:
    """One event as a line without its state: ``ct200 health: answers 503, loading (112 s left)``."""
    left = f" ({event['left_s']:.0f} s left)" if event.get("left_s") is not None else ""
    host = f"{event['host']} " if event.get("host") else ""
    return f"{host}{event['step']}: {event.get('text', '')}{left}"


class _Plain:
    def __init__(self, output: Output) -> None:
        self._output = output
        self._lock = threading.Lock()
        self._said: dict[str, float] = {}

    def __call__(self, event: dict[str, Any]) -> None:
        key, now = f"{event.get('host')} {event['step']}", time.monotonic()
        with self._lock:
            if event["state"] == "begin":
                self._said[key] = now
                return
            if event["state"] == "wait" and now - self._said.get(key, 0.0) < PLAIN_WAIT_S:
                return
            self._said[key] = now
        mark = MARKS.get(event["state"], "")
        self._output.note(f"{describe(event)}{f' · {mark}' if mark else ''}")


def _live(output: Output) -> Iterator[Listener]:
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.table import Table
    from rich.text import Text

    styles = {"ok": ("✓", "green"), "fail": ("✗", "bold red"), "info": ("·", "cyan")}
    waiting: dict[str, Spinner] = {}
    lock = threading.Lock()

    def view() -> Table:
        grid = Table.grid()
        for spinner in waiting.values():
            grid.add_row(spinner)
        return grid

    with Live(console=output.progress, transient=True, refresh_per_second=8) as live:

        def listen(event: dict[str, Any]) -> None:
            host = str(event.get("host", ""))
            with lock:
                if event["state"] in styles:
                    sign, style = styles[event["state"]]
                    live.console.print(Text.assemble((f"{sign} ", style), describe(event)))
                    waiting.pop(host, None)
                else:
                    text = Text(describe(event), no_wrap=True, overflow="ellipsis")
                    if host in waiting:
                        waiting[host].update(text=text)
                    else:
                        waiting[host] = Spinner("dots", text=text)
                live.update(view())

        yield listen
