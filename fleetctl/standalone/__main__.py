"""``python -m fleetctl.standalone``: serve a model folder over the OpenAI API, with or without drafting."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType

import uvicorn

from fleetctl.standalone.app import Api
from fleetctl.standalone.config import load_drafter_config, load_target_config
from fleetctl.standalone.contract import Mode
from fleetctl.standalone.engine import Engine, Job, Model
from fleetctl.standalone.errors import StartError
from fleetctl.standalone.metrics import Metrics

MAX_BUDGET = 1024


def say(line: str) -> None:
    """One line of the server's log, at once; a log that takes no more (journald started anew) ends nothing."""
    with suppress(OSError):
        print(f"standalone: {line}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fleetctl.standalone", description=__doc__)
    add = parser.add_argument
    add("--model", type=Path, required=True, metavar="DIR", help="a Llama model: config, weights, tokenizer")
    add(
        "--drafter",
        type=Path,
        metavar="DIR",
        help="its DFlash drafter; every mode but autoregressive needs it",
    )
    add("--mode", type=Mode, choices=list(Mode), default=Mode.TREE, metavar="|".join(Mode))
    add("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    add("--port", type=_whole(0, 65535), default=30000, help="default: %(default)s; 0 lets the system choose")
    add("--budget", type=_whole(1, MAX_BUDGET), default=16, help="draft nodes a pass (default: %(default)s)")
    add("--min-prob", type=_probability, default=0.05, metavar="P",
        help="draft nodes less probable than this are left out of the tree (default: %(default)s)")  # fmt: skip
    add("--top-k", type=_whole(1, MAX_BUDGET), default=8, help="candidates a depth (default: %(default)s)")
    add("--dtype", choices=["float32", "bfloat16"], default="float32", help="default: %(default)s")
    add("--served-model-name", metavar="NAME", help="the model's id in requests (default: the folder's name)")
    add(
        "--max-queue", type=_whole(0, 10**6), default=32, help="requests that may wait (default: %(default)s)"
    )
    add(
        "--threads",
        type=_whole(1, 1024),
        default=len(os.sched_getaffinity(0)),
        help="default: all processors",
    )
    add("--drain-timeout", type=_whole(0, 86400), default=30, metavar="SECONDS",
        help="how long SIGTERM lets the requests in flight finish (default: %(default)s)")  # fmt: skip
    return parser


def _whole(low: int, high: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{value} is not between {low} and {high}")
        return value

    return number


def _probability(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{value:g} is not a probability below 1")
    return value


def _bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet; ``StartError`` names a port that is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(128)
    except OSError as error:
        bound.close()
        raise StartError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another --port, or stop what holds it"
        ) from error
    return bound


def _loader(given: argparse.Namespace) -> Callable[[], Model]:
    """Read both configurations now, torch and the weights when called."""
    target = load_target_config(given.model)
    drafter = None
    if given.mode is not Mode.AUTOREGRESSIVE:
        if given.drafter is None:
            raise StartError(f"--mode {given.mode} needs --drafter DIR")
        drafter = load_drafter_config(given.drafter, target)
    for folder in (given.model, given.drafter if drafter else None):
        if folder and not (folder / "model.safetensors").is_file():
            raise StartError(f"{folder / 'model.safetensors'}: no such file")

    def load() -> Model:
        from fleetctl.standalone.loading import Setup, load_model

        setup = Setup(
            folder=given.model,
            target=target,
            drafter_folder=given.drafter if drafter else None,
            drafter=drafter,
            mode=given.mode,
            budget=given.budget,
            min_prob=given.min_prob,
            top_k=given.top_k,
            dtype=given.dtype,
            threads=given.threads,
        )
        return load_model(setup, say)

    return load


def serve(given: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status."""
    load = _loader(given)
    bound = _bind(given.host, given.port)
    host, port = bound.getsockname()[:2]
    served = given.served_model_name or given.model.resolve().name
    labels = {"mode": given.mode.value, "model": served, "dtype": given.dtype}
    labels |= {"budget": str(given.budget), "top_k": str(given.top_k), "min_prob": str(given.min_prob)}
    metrics = Metrics(labels)

    def finished(job: Job) -> None:
        metrics.finished(job)
        say(
            f"{job.finish_reason or 'cancelled'}: {len(job.prompt)} tokens in, "
            f"{job.completion_tokens} out, {job.counts.verify_passes} passes"
        )

    engine = Engine(load, given.max_queue, say, finished)
    server = uvicorn.Server(
        uvicorn.Config(
            Api(engine, metrics, served).app(),
            log_level="warning",
            lifespan="off",
            timeout_graceful_shutdown=given.drain_timeout,
        )
    )

    def stop(_: int, __: FrameType | None) -> None:
        server.should_exit = True

    # uvicorn raises the signal again once it has stopped: with these in place that ends nothing.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    say(f"{served} in mode {given.mode}: listening on {host}:{port}, loading {given.model}")
    engine.start(on_failure=partial(setattr, server, "should_exit", True))
    server.run(sockets=[bound])
    if engine.failure:
        raise StartError(engine.failure)
    say("stopped")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status."""
    try:
        return serve(_parser().parse_args(arguments))
    except StartError as error:
        print(f"standalone: {error}", file=sys.stderr, flush=True)
        return 2


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # A pass that outlasts the drain still runs on its thread; an orderly exit would abort it, and the process with it.
    os._exit(status)
