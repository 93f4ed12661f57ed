"""One at a time in a folder of the controller, among threads and among processes."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetctl.errors import Exit, FleetError

WAIT_S = 1800.0


@contextmanager
def alone_in(folder: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold ``folder`` alone; ``waiting`` is called twice a second until then.

    :class:`FleetError` (exit 4) where another holds it for longer than ``WAIT_S``. The lock ends with its
    holder.
    """
    deadline = time.monotonic() + WAIT_S
    with (folder / "lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                waiting()
            if time.monotonic() > deadline:
                raise FleetError(
                    f"another fleetctl has been at work here for {WAIT_S:g} s",
                    where=str(folder),
                    fix="see what it does, or end it",
                    exit=Exit.LOCKED,
                )
            time.sleep(0.5)
        yield
