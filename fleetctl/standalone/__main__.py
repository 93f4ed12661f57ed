"""The server's command line: ``python -m fleetctl.standalone --model DIR --mode tree --drafter DIR --port 30000``.

The port is opened before anything is loaded, and ``/health`` says 503 until the first generation has been made.
Exit codes: 0 after SIGTERM, 2 for a port that is taken or a model folder that cannot be served.
"""

from __future__ import annotations

import argparse
import socket
import sys
from pathlib import Path

from fleetctl.errors import Exit

MODES = ("autoregressive", "linear", "shadow", "tree")


def main() -> int:
    """Serve until told to stop; the exit code."""
    args = _parser().parse_args()
    if args.mode != "autoregressive" and args.drafter is None:
        return _fail(f"--mode {args.mode} drafts, and no --drafter is given; name the drafter's folder")
    try:
        listener = _listen(args.host, args.port)
    except OSError as error:
        return _fail(
            f"{args.host}:{args.port}: {error.strerror}; stop what holds the port, or give another --port"
        )
    print(f"listening on {args.host}:{args.port}; mode {args.mode}", flush=True)
    # Only now what takes seconds to import.
    from fleetctl.standalone.loading import Settings
    from fleetctl.standalone.server import serve

    settings = Settings(
        args.model, args.drafter, args.mode, args.budget, args.top_k, args.dtype, args.threads
    )
    name = args.served_model_name or args.model.resolve().name
    return serve(listener, settings, name, args.max_queue, args.drain_timeout)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fleetctl.standalone",
        description="OpenAI-compatible server for one model on the CPU, with draft trees.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--model", type=Path, required=True, help="the target's folder")
    parser.add_argument("--drafter", type=Path, help="the drafter's folder; not needed for autoregressive")
    parser.add_argument("--mode", choices=MODES, default="tree", help="how tokens are drafted and verified")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=_port, default=30000, help="port to listen on")
    parser.add_argument("--budget", type=_positive, default=32, help="nodes of a draft tree")
    parser.add_argument("--top-k", type=_positive, default=8, help="candidates at each depth of a draft tree")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16"), default="float32", help="of weights and cache"
    )
    parser.add_argument("--served-model-name", help="the model's id (default: its folder's name)")
    parser.add_argument(
        "--max-queue", type=_positive, default=16, help="requests that may wait; more get 429"
    )
    parser.add_argument(
        "--threads", type=_positive, default=0, help="threads of torch (default: its own choice)"
    )
    parser.add_argument(
        "--drain-timeout", type=_positive, default=30, help="seconds for requests in flight after SIGTERM"
    )
    return parser


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def _port(text: str) -> int:
    if not 0 < (number := int(text)) < 65536:
        raise argparse.ArgumentTypeError(f"{number} is no port; give 1 to 65535")
    return number


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def _fail(message: str) -> int:
    print(f"error: {message}", file=sys.stderr, flush=True)
    return Exit.INPUT


if __name__ == "__main__":
    sys.exit(main())
