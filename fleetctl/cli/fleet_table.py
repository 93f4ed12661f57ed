"""A live table of the hosts of a fleet rollout, for terminals; as many rows as the terminal has room for."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.live import Live
from rich.table import Table
from rich.text import Text

from fleetctl.cli.output import Output, clean
from fleetctl.cli.progress import Listener

STYLES = {"failed": "bold red", "at work": "cyan", "done": "green", "skipped": "dim", "waits": "dim"}
ORDER = list(STYLES)
SPARE_LINES = 4


@dataclass
class Row:
    """One host: its ``state``, what it does, how it ended, and since when (seconds, monotonic) and until when."""

    host: str
    state: str = "waits"
    text: str = ""
    end: str = ""
    began: float | None = None
    ended: float | None = None


class FleetTable:
    """The rows, changed by events from any thread."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self.rows = {host: Row(host) for host in hosts}
        self.note = ""
        self._lock = threading.Lock()

    def take(self, event: dict[str, Any]) -> None:
        """Change the row that an event is of."""
        with self._lock:
            row = self.rows.get(str(event.get("host", "")))
            text = clean(str(event.get("text", "")))
            if row is None:
                self.note = f"{event['step']}: {text}"
                for other in self.rows.values():
                    other.text = other.end or other.text  # no longer watched
            elif event["step"] == "fleet":
                self._take_fleet(row, event["state"], text)
            else:
                left = f" ({event['left_s']:.0f} s left)" if event.get("left_s") is not None else ""
                row.text = f"{event['step']}: {text}{left}"

    def _take_fleet(self, row: Row, state: str, text: str) -> None:
        now = time.monotonic()
        row.text = text
        if state == "begin":
            row.state, row.began = "at work", now
            return
        row.ended, row.end = row.ended or now, text
        row.state = {"ok": "done", "fail": "failed"}.get(state, "skipped")

    def view(self, room: int) -> Table:
        """The rows that matter most in at most ``room`` lines, and how many there are of each state."""
        with self._lock:
            rows = sorted(self.rows.values(), key=lambda row: ORDER.index(row.state))
            table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0), expand=True)
            for column in ("host", "state", "time"):
                table.add_column(column, no_wrap=True)
            table.add_column("what", no_wrap=True, overflow="ellipsis", ratio=1)
            shown = rows[: max(1, room - SPARE_LINES)]
            for row in shown:
                table.add_row(row.host, Text(row.state, STYLES[row.state]), _seconds(row), Text(row.text))
            counts = Counter(row.state for row in rows)
            said = ", ".join(f"{counts[state]} {state}" for state in ORDER if counts[state])
            more = f"{len(rows) - len(shown)} more · " if len(shown) < len(rows) else ""
            table.add_row("", "", "", Text(f"{more}{said}{f' · {self.note}' if self.note else ''}", "bold"))
            return table


def _seconds(row: Row) -> str:
    return f"{(row.ended or time.monotonic()) - row.began:.1f} s" if row.began else ""


@contextmanager
def fleet_table(output: Output, hosts: Sequence[str]) -> Iterator[Listener]:
    """The table on stderr while this context lasts, and its last state afterwards; yields what takes its events."""
    table = FleetTable(hosts)
    console = output.progress

    class View:
        def __rich__(self) -> Table:
            return table.view(console.height)

    with Live(View(), console=console, refresh_per_second=8, vertical_overflow="crop"):
        yield table.take
