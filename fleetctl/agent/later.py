"""Work in a thread of its own, whose result is asked for later.

``concurrent.futures`` does the same and more; importing it (with logging) takes a quarter as long as
the agent's start.
"""

from __future__ import annotations

import threading
from typing import Callable, Generic, List, Optional, TypeVar

T = TypeVar("T")


class NotYet(Exception):
    """The work is not done."""


class Later(Generic[T]):
    """Begins at once; its thread ends with the process."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._found: List[T] = []
        self._error: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def result(self, timeout: Optional[float] = None) -> T:
        """What the work returned, or what it raised; :class:`NotYet` where that takes over ``timeout`` seconds."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise NotYet
        if self._error is not None:
            raise self._error
        return self._found[0]

    def _run(self) -> None:
        try:
            self._found.append(self._work())
        except BaseException as error:
            self._error = error
