"""Load from somebody else's generator, so that nobody has to believe only our own client: NVIDIA's aiperf.

It runs as a child in a virtual environment of its own (139 packages, none of them torch or CUDA): what it needs is
never mixed with fleetctl's. guidellm 0.8 installs torch with CUDA; genai-bench loads a tokenizer from a hub.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetctl.bench import aiperf
from fleetctl.bench.client import Ask, Limits
from fleetctl.bench.record import Request
from fleetctl.errors import Exit, FleetError

NAMES = ("aiperf",)
VERSION = "0.13.0"
FOLDER = ".fleetctl/tools"
INSTALL_S = 1800.0
START_S = 120.0
"""What the generator may take to start and to write its results, besides the requests."""
SAY_EVERY_S = 5.0
END_S = 20.0
RAW = "profile_export_raw.jsonl"
TOKENIZER = {
    "tokenizer.json": {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"},
    },
    "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"},
}
"""A tokenizer that is never asked: aiperf wants one, and would fetch it; tokens are counted by the server."""

OnEvent = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class LoadGenerator:
    """An installed generator. ``by``: its name and version, as records have it."""

    program: Path
    by: str
    on_event: OnEvent

    def load(
        self, base_url: str, model: str, asks: Sequence[Ask], concurrency: int, origin: float, limits: Limits
    ) -> list[Request]:
        """Have it make all of ``asks``, so many at once; requests in their order, failed ones among them.

        FleetError (exit 5) where the generator itself fails. ^C ends it first.
        """
        with tempfile.TemporaryDirectory(prefix="fleetctl-aiperf-") as name:
            folder = Path(name)
            (folder / "asks.jsonl").write_bytes(aiperf.payloads(asks, model))
            (folder / "tokenizer").mkdir()
            for file, content in TOKENIZER.items():
                (folder / "tokenizer" / file).write_text(json.dumps(content))
            command = self.command(folder, base_url, model, len(asks), concurrency, limits)
            deadline = START_S + limits.total * -(-len(asks) // concurrency)
            log = folder / "log"
            with log.open("wb") as output, _child(command, folder, output) as child:
                self._wait(child, deadline, len(asks))
            raw = folder / "out" / RAW
            if child.returncode or not raw.is_file():
                raise FleetError(
                    f"{self.by} ended with exit status {child.returncode} and no results",
                    str(self.program),
                    "its last lines say why; without --by fleetctl's own client measures",
                    log.read_text(errors="replace").splitlines()[-15:],
                    Exit.PREFLIGHT,
                )
            return aiperf.read(raw.read_bytes(), asks, origin, self.by)

    def command(
        self, folder: Path, base_url: str, model: str, requests: int, concurrency: int, limits: Limits
    ) -> list[str]:
        """The generator's command line."""
        given = {
            "model-names": model,
            "url": base_url,
            "endpoint-type": "chat",
            "input-file": folder / "asks.jsonl",
            "custom-dataset-type": "raw-payload",
            "dataset-sampling-strategy": "sequential",
            "concurrency": min(concurrency, requests),
            "request-count": requests,
            "request-timeout-seconds": limits.total,
            "tokenizer": folder / "tokenizer",
            "export-level": "raw",
            "artifact-dir": folder / "out",
            "random-seed": 1,
            "ui": "none",
        }
        flags = ["--streaming", "--use-server-token-count", "--no-gpu-telemetry", "--no-server-metrics"]
        words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
        return [str(self.program), "profile", *words, *flags]

    def _wait(self, child: subprocess.Popen[bytes], deadline: float, requests: int) -> None:
        began = time.monotonic()
        said = 0.0
        while child.poll() is None:
            passed = time.monotonic() - began
            if passed > deadline:
                raise FleetError(
                    f"{self.by} was not done after {deadline:.0f} s",
                    str(self.program),
                    "is the service slower than thought? fleetctl's own client tells: leave out --by",
                    exit=Exit.PREFLIGHT,
                )
            if passed - said > SAY_EVERY_S:
                said = passed
                text = f"{self.by} makes {requests} requests, {passed:.0f} s so far"
                left = deadline - passed
                self.on_event({"step": "load", "state": "wait", "text": text, "left_s": left})
            time.sleep(0.1)


def check_name(name: str) -> None:
    """FleetError (exit 2) for a load generator that there is not."""
    if name not in NAMES:
        raise FleetError(f"no load generator {name}", fix=f"known: {', '.join(NAMES)}")


def load_generator(root: Path, name: str, on_event: OnEvent) -> LoadGenerator:
    """The generator called ``name``: on PATH, else in a venv below the fleet folder ``root``, made where it is missing.

    FleetError: exit 2 for an unknown name, 5 where it cannot be installed.
    """
    check_name(name)
    found = shutil.which(name)
    program = Path(found) if found else _installed(root, on_event)
    said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=False)
    version = said.stdout.strip().split()[-1] if said.stdout.strip() else "of no version"
    return LoadGenerator(program, f"{name} {version}", on_event)


def _installed(root: Path, on_event: OnEvent) -> Path:
    folder = root / FOLDER / f"aiperf-{VERSION}"
    program = folder / "bin" / "aiperf"
    if (folder / ".ready").exists():
        return program
    shutil.rmtree(folder, ignore_errors=True)
    words = f"install aiperf {VERSION} into {folder} (once, 0.8 GB)"
    on_event({"step": "install", "state": "begin", "text": words, "left_s": INSTALL_S})
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    for command in ([sys.executable, "-m", "venv", str(folder)], [*pip, f"aiperf=={VERSION}"]):
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=INSTALL_S, check=False, env=_environment()
            )
        except subprocess.TimeoutExpired:
            raise _not_installed(command, [f"not done after {INSTALL_S:g} s"]) from None
        if done.returncode:
            raise _not_installed(command, (done.stderr or done.stdout).splitlines()[-10:])
    (folder / ".ready").touch()
    on_event({"step": "install", "state": "ok", "text": f"aiperf {VERSION} is installed"})
    return program


def _not_installed(command: Sequence[str], evidence: list[str]) -> FleetError:
    return FleetError(
        f"aiperf {VERSION} could not be installed",
        " ".join(command),
        f"install it where PATH leads (`uv tool install aiperf=={VERSION}`), or leave out --by",
        evidence,
        Exit.PREFLIGHT,
    )


@contextmanager
def _child(command: list[str], folder: Path, output: Any) -> Iterator[subprocess.Popen[bytes]]:
    """The running generator with its own process group; however this ends, so has the group."""
    child = subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=_environment(),
        start_new_session=True,
    )  # fmt: skip
    try:
        yield child
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGTERM)
            try:
                child.wait(END_S)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()


def _environment() -> dict[str, str]:
    """The own one without what would have another Python look for its packages here."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
