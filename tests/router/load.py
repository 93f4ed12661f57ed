"""Real load on a port: clients that ask all the time, each answer checked and counted."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

PATIENCE_S = 120.0
PAUSE_S = 0.008
"""Between a client's requests: the machine has swaps to do too."""


@dataclass
class Load:
    """``clients`` threads that ask one completion after the other until ``stop``.

    ``answers``: how many whole answers came from each model; ``refused``: connections that nobody took;
    ``failed``: all else, in words. ``keep``: one connection for many requests.
    """

    address: str
    port: int
    clients: int = 4
    keep: bool = True
    prompt: str = "one"
    answers: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    refused: int = 0

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(self.clients)]

    def start(self) -> Load:
        """Begin, and wait for the first answers."""
        self.begin()
        self.more(self.clients)
        return self

    def begin(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    @property
    def total(self) -> int:
        """The whole answers so far."""
        return sum(self.answers.values())

    def more(self, count: int, seconds: float = PATIENCE_S) -> None:
        """Wait until so many more answers have come."""
        wanted, end = self.total + count, time.monotonic() + seconds
        while self.total < wanted:
            assert time.monotonic() < end, f"{self.total} answers, {self.failed[:3]}"
            time.sleep(0.01)

    def stop(self) -> None:
        """End, each client after its answer."""
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def _ask(self) -> None:
        link: http.client.HTTPConnection | None = None
        body = json.dumps({"prompt": self.prompt, "max_tokens": 2, "user": "load"})
        while not self._stop.is_set():
            try:
                link = link or http.client.HTTPConnection(self.address, self.port, timeout=PATIENCE_S)
                link.connect() if link.sock is None else None
            except OSError:
                with self._lock:
                    self.refused += 1
                link = None
                time.sleep(0.01)
                continue
            try:
                link.request("POST", "/v1/completions", body)
                answer = link.getresponse()
                said = answer.read()
                assert answer.status == 200, f"{answer.status} {said[:200]!r}"
                model = json.loads(said)["choices"][0]["text"]
                with self._lock:
                    self.answers[model] += 1
            except (OSError, http.client.HTTPException, AssertionError, ValueError) as error:
                with self._lock:
                    self.failed.append(f"{type(error).__name__}: {error}")
                link.close()
                link = None
                continue
            if not self.keep:
                link.close()
                link = None
            time.sleep(PAUSE_S)
        if link is not None:
            link.close()
