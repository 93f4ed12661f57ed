"""Scenarios run side by side, each on a slot of its own; a test only waits for its scenario's end."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from tests.rollout_host.host import Host
from tests.rollout_host.site import Site

Scenario = Callable[[Site], None]

ALL: dict[str, Scenario] = {}
AT_ONCE = 4


def scenario(function: Scenario) -> Scenario:
    """Register what a test of the same name waits for."""
    ALL[function.__name__] = function
    return function


def named_in(module: str) -> list[str]:
    """The scenarios that a module registered."""
    return [name for name, function in ALL.items() if function.__module__ == module]


class Runner:
    """Starts the scenarios asked for, in turn on each host."""

    def __init__(self, hosts: list[Host], names: list[str]) -> None:
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._running: dict[str, Future[None]] = {}
        for number, name in enumerate(names):
            site = Site(hosts[number % len(hosts)])
            self._running[name] = self._pool.submit(ALL[name], site)

    def wait(self, name: str) -> None:
        """Until the scenario has ended; raises what it raised."""
        self._running[name].result()

    def close(self) -> None:
        """Let those that run end."""
        self._pool.shutdown(cancel_futures=True)
