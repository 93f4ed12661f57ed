"""The real model, converted once into the repository's own cache, and real servers on loopback."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from fleetctl.standalone.config import load_drafter_config, load_target_config
from fleetctl.standalone.contract import Mode
from fleetctl.standalone.convert import convert
from fleetctl.standalone.decoder import Decoder
from fleetctl.standalone.loading import Setup, load_weights
from fleetctl.standalone.text import TextCodec
from tests.transport.sshd import free_port

ROOT = Path(__file__).parents[2]
MODEL = ROOT / ".fleetctl" / "models" / "smollm2-135m"
DRAFTER = ROOT / "models" / "smollm2-135m-dflash"
BUDGET, TOP_K = 16, 8


@pytest.fixture(scope="session")
def model_folder() -> Path:
    """SmolLM2-135M-Instruct; the first run converts it."""
    convert(MODEL, None)
    return MODEL


@pytest.fixture(scope="session")
def decoders(model_folder: Path) -> dict[Mode, Decoder]:
    """All four modes over one target and one drafter in float32."""
    config = load_target_config(model_folder)
    drafter_config = load_drafter_config(DRAFTER, config)
    setup = Setup(model_folder, config, DRAFTER, drafter_config, Mode.TREE, BUDGET, 0.0, TOP_K, "float32", 1)
    target, drafter = load_weights(setup, print)
    return {mode: Decoder(target, drafter, mode, BUDGET, TOP_K) for mode in Mode}


@pytest.fixture(scope="session")
def codec(model_folder: Path) -> TextCodec:
    """The model's tokenizer and chat template."""
    return TextCodec(model_folder)


@dataclass
class Server:
    """A running server and how to ask it."""

    process: subprocess.Popen[str]
    url: str
    log: Path

    def ask(self, path: str, **body: object) -> httpx.Response:
        """POST ``body`` to ``/v1/<path>``."""
        return httpx.post(f"{self.url}/v1/{path}", json=body, timeout=280, trust_env=False)

    def get(self, path: str) -> httpx.Response:
        """GET ``path``."""
        return httpx.get(f"{self.url}{path}", timeout=60, trust_env=False)

    def metric(self, name: str) -> float:
        """The present value of a metric without labels."""
        lines = self.get("/metrics").text.splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))

    def wait_for(self, name: str, value: float, seconds: float = 200) -> None:
        """Until the metric has the value."""
        deadline = time.monotonic() + seconds
        while (found := self.metric(name)) != value:
            assert time.monotonic() < deadline, f"{name} is {found} after {seconds} s, not {value}"
            time.sleep(0.02)

    def wait_for_health(self, status: int, seconds: float = 280) -> None:
        """Until ``/health`` has that status."""
        seen: list[int] = []
        deadline = time.monotonic() + seconds
        while status not in seen:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, f"no {status}: {seen[-3:]}\n{self.log.read_text()}"
            try:
                seen.append(self.get("/health").status_code)
            except httpx.TransportError:
                time.sleep(0.05)

    def wait_ready(self) -> None:
        """Until it is ready."""
        self.wait_for_health(200)


Start = Callable[..., Server]


def start_server(model: Path, log: Path, *options: str, mode: str = "tree") -> Server:
    """Start a server; it may not be ready yet."""
    port = free_port()
    command = [
        *(sys.executable, "-m", "fleetctl.standalone", "--model", str(model), "--drafter", str(DRAFTER)),
        *("--mode", mode, "--port", str(port), "--threads", "1", "--budget", str(BUDGET), *options),
    ]
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
    return Server(process, f"http://127.0.0.1:{port}", log)


@pytest.fixture(scope="session")
def server(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A ready server in tree mode in which one request may wait."""
    log = tmp_path_factory.mktemp("server") / "log"
    started = start_server(model_folder, log, "--max-queue", "1", "--served-model-name", "smol")
    try:
        started.wait_ready()
        yield started
    finally:
        started.process.kill()
        started.process.wait()


@pytest.fixture
def start(model_folder: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts servers of a test's own; what still runs at its end is killed."""
    running: list[Server] = []

    def begin(*options: str, mode: str = "autoregressive", model: Path = model_folder) -> Server:
        running.append(start_server(model, tmp_path / f"log{len(running)}", *options, mode=mode))
        return running[-1]

    yield begin
    for one in running:
        one.process.kill()
        one.process.wait()
