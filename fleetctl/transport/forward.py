"""A way to a port that only listens on the host's own loopback: OpenSSH's forward, behind a Unix socket here."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetctl.errors import Exit, FleetError
from fleetctl.transport.settings import Settings, place

WAIT_S = 30.0


@contextmanager
def forward(settings: Settings, port: int) -> Iterator[Path]:
    """The socket that leads to ``127.0.0.1:port`` on the host, while the context lasts.

    FleetError (exit 3) where ssh does not bring it about.
    """
    with tempfile.TemporaryDirectory(prefix="fleetctl-") as folder, tempfile.TemporaryFile() as stderr:
        socket = Path(folder, "port")
        command = [
            *settings.openssh(),
            *(
                "-N",
                "-T",
                "-o",
                "ExitOnForwardFailure=yes",
                "-o",
                "ControlMaster=no",
                "-o",
                "ControlPath=none",
            ),
            *("-L", f"{socket}:127.0.0.1:{port}"),
            settings.name,
        ]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            until = time.monotonic() + WAIT_S
            while not socket.exists():
                if process.poll() is not None or time.monotonic() > until:
                    stderr.seek(0)
                    raise FleetError(
                        f"ssh forwards no connection to port {port}",
                        place(settings),
                        "sshd there must allow it: AllowTcpForwarding yes",
                        stderr.read().decode(errors="replace").splitlines()[-10:],
                        Exit.UNREACHABLE,
                    )
                time.sleep(0.02)
            yield socket
        finally:
            process.terminate()
            process.wait()
