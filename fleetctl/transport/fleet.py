"""The same work on many hosts at once; what fails on one leaves the others' results."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from fleetctl.errors import Exit, FleetError
from fleetctl.transport.settings import Host

H = TypeVar("H", bound=Host)
T = TypeVar("T")
AT_ONCE = 32


def on_hosts(
    hosts: Sequence[H],
    work: Callable[[H], T],
    at_once: int = AT_ONCE,
    may_begin: Callable[[], bool] = lambda: True,
) -> dict[str, T | FleetError]:
    """Each host's result by name, in the hosts' order; its :class:`FleetError` where the work failed.

    At most ``at_once`` are worked on at a time. ``may_begin`` is asked before each host; those that are not begun
    have no result.
    """
    todo: queue.SimpleQueue[H] = queue.SimpleQueue()
    done: dict[str, T | FleetError] = {}
    bugs: list[BaseException] = []
    for host in hosts:
        todo.put(host)

    def run() -> None:
        while True:
            try:
                if not may_begin():
                    return
                host = todo.get_nowait()
            except queue.Empty:
                return
            try:
                done[host.name] = work(host)
            except FleetError as error:
                done[host.name] = error
            except BaseException as error:
                bugs.append(error)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(min(at_once, len(hosts)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if bugs:
        raise bugs[0]
    return {host.name: done[host.name] for host in hosts if host.name in done}


def exit_code(results: Mapping[str, object]) -> Exit:
    """0 where all hosts did it; the only host's own code; 3 where none was reached, else 8."""
    errors = [result for result in results.values() if isinstance(result, FleetError)]
    if not errors:
        return Exit.OK
    if len(results) == 1:
        return errors[0].exit
    unreached = all(error.exit == Exit.UNREACHABLE for error in errors)
    return Exit.UNREACHABLE if len(errors) == len(results) and unreached else Exit.PARTIAL
