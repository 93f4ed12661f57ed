"""Questions asked at once, each in a thread of its own; a late or failed one leaves its empty answer and a reason."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Dict, Optional

from fleetctl.agent.errors import AgentError


class Parts:
    """Parts of one answer by name. ``errors`` says why a part is empty."""

    def __init__(self) -> None:
        self.errors: Dict[str, str] = {}
        self._asked: Dict[str, _Part] = {}

    def ask(self, name: str, empty: Any, function: Callable[..., Any], *args: Any) -> None:
        """Start a part that is waited for until it ends."""
        self.ask_within(None, name, empty, function, *args)

    def ask_within(
        self, seconds: Optional[float], name: str, empty: Any, function: Callable[..., Any], *args: Any
    ) -> None:
        """Start a part that has so many seconds from now on; its thread ends with the process."""
        self._asked[name] = _Part(seconds, empty, lambda: function(*args))

    def answer(self, name: str) -> Any:
        """What a part found; its empty answer where it failed or is late."""
        part = self._asked[name]
        found, error = part.wait()
        if error is not None:
            self.errors[name] = error
        return found

    def names(self) -> "list[str]":
        """The parts that were asked, in that order."""
        return list(self._asked)


class _Part:
    def __init__(self, seconds: Optional[float], empty: Any, work: Callable[[], Any]) -> None:
        self._seconds = seconds
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._empty = empty
        self._work = work
        self._found: "Optional[tuple[Any, Optional[str]]]" = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait(self) -> "tuple[Any, Optional[str]]":
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        self._thread.join(left)
        return self._found or (self._empty, f"no answer within {self._seconds:g} s")

    def _run(self) -> None:
        try:
            self._found = self._work(), None
        except AgentError as error:
            self._found = self._empty, "; ".join([error.what, *error.evidence])
        except Exception as error:
            self._found = self._empty, f"{type(error).__name__}: {error}"
