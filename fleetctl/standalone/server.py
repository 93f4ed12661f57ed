"""The process's life: load while the port already answers, serve, and stop when told to."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import time
from types import FrameType

import uvicorn

from fleetctl.errors import Exit
from fleetctl.standalone.app import build
from fleetctl.standalone.loading import Settings
from fleetctl.standalone.metrics import Metrics
from fleetctl.standalone.queue import Queue
from fleetctl.standalone.service import Service
from fleetctl.standalone.weights import ModelError


def serve(listener: socket.socket, settings: Settings, name: str, max_queue: int, drain_timeout: int) -> int:
    """Serve on ``listener`` until SIGTERM or SIGINT; the exit code.

    Requests in flight, those that wait among them, are finished within ``drain_timeout`` seconds.
    """
    return asyncio.run(_serve(listener, settings, name, max_queue, drain_timeout))


async def _serve(
    listener: socket.socket, settings: Settings, name: str, max_queue: int, drain_timeout: int
) -> int:
    queue = Queue(max_queue)
    about = {
        "model": name,
        "mode": settings.mode,
        "budget": str(settings.budget),
        "top_k": str(settings.top_k),
        "dtype": settings.dtype,
    }
    service = Service(settings, queue, Metrics(queue, about))
    config = uvicorn.Config(
        build(service, name),
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=drain_timeout,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve([listener]))
    began = time.monotonic()
    starting = asyncio.create_task(service.start())
    await asyncio.wait({serving, starting}, return_when=asyncio.FIRST_COMPLETED)
    code = Exit.OK
    if starting.done():
        try:
            starting.result()
            print(f"ready after {time.monotonic() - began:.1f} s", flush=True)
        except ModelError as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            code = Exit.INPUT
            server.should_exit = True
        except BaseException:
            server.should_exit = True
            await serving
            raise
    await serving
    starting.cancel()
    print("stopped", flush=True)
    return code


class _Server(uvicorn.Server):
    """uvicorn's, except that SIGTERM is a good end: uvicorn raises the signal again after its shutdown."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        print(f"{signal.Signals(sig).name}: finishing the requests in flight", flush=True)
        self.should_exit = True
