"""SGLang servers for a measurement: started side by side, waited for, asked, ended for certain."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu import leftovers

HERE = Path(__file__).parent
COMMON = (
    *("--attention-backend", "triton", "--sampling-backend", "pytorch", "--grammar-backend", "none"),
    *("--disable-piecewise-cuda-graph", "--disable-flashinfer-autotune", "--sleep-on-idle"),
    *("--mem-fraction-static", "0.6", "--max-total-tokens", "40000", "--max-running-requests", "8"),
    *("--context-length", "4096", "--cuda-graph-bs", "1", "2", "4", "8", "--random-seed", "0"),
    *("--enable-metrics", "--host", "127.0.0.1"),
)


@dataclass(frozen=True)
class Arm:
    """A server to measure: its name in the results, its flags besides the common ones, its environment.

    ``path`` goes in front of PYTHONPATH.
    """

    name: str
    flags: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    path: str = ""


class Server:
    """A running server; its log is beside the results."""

    def __init__(self, arm: Arm, model: Path, port: int, out: Path, common: Sequence[str] = COMMON) -> None:
        self.arm = arm
        self.url = f"http://127.0.0.1:{port}"
        self.log = out / f"server-{arm.name}.log"
        argv = [sys.executable, "-m", "sglang.launch_server", "--model-path", str(model)]
        argv += ["--port", str(port), *common, *arm.flags]
        require_free(port)
        self._started = time.monotonic()
        with self.log.open("w") as log:
            log.write(" ".join(argv) + "\n")
            log.flush()
            env = {**os.environ, **arm.env}
            env["PYTHONPATH"] = ":".join(filter(None, (arm.path, env.get("PYTHONPATH"))))
            self._process = subprocess.Popen(
                argv, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env=env
            )
        self._record = leftovers.record(out, self._process.pid, arm.name)

    def wait(self, deadline_s: float) -> str:
        """Until it is ready; why it is not, or nothing."""
        while time.monotonic() - self._started < deadline_s:
            if self._process.poll() is not None:
                return f"it ended with status {self._process.returncode}: {self.last_words()}"
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=10) as answer:
                    if answer.status == 200:
                        return ""
            except OSError:
                time.sleep(0.5)
        return f"not ready after {deadline_s:.0f} s: {self.last_words()}"

    def last_words(self, lines: int = 4) -> str:
        """The end of the log that says most."""
        said = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        telling = [line for line in said if re.search(r"Error|error|refus|cannot", line)]
        return " | ".join((telling or said)[-lines:])

    def generate(
        self, prompt: str | list[int], tokens: int, timeout: float = 300, **over: Any
    ) -> dict[str, Any]:
        """Greedy; the answer of ``/generate`` with the ``seconds`` that it took here."""
        key = "text" if isinstance(prompt, str) else "input_ids"
        body = {key: prompt, "sampling_params": {"temperature": 0, "max_new_tokens": tokens}, **over}
        begun = time.perf_counter()
        said: dict[str, Any] = self._post("/generate", body, timeout)
        said["seconds"] = time.perf_counter() - begun
        return said

    def tokens(self, text: str) -> list[int]:
        """A text as the server's tokenizer sees it."""
        found: list[int] = self._post("/tokenize", {"prompt": text, "add_special_tokens": False}, 30)[
            "tokens"
        ]
        return found

    def post(self, path: str, body: dict[str, Any], timeout: float = 60) -> str:
        """What the server says to a POST, as text."""
        request = urllib.request.Request(
            f"{self.url}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            said: bytes = answer.read()
        return said.decode()

    def _post(self, path: str, body: dict[str, Any], timeout: float) -> Any:
        return json.loads(self.post(path, body, timeout))

    def metrics(self, prefix: str = "sglang:ddtree") -> dict[str, float]:
        """The numbers in ``/metrics`` whose names begin so, by name and labels."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        found = {}
        for line in lines:
            if line.startswith(prefix):
                name, _, value = line.rpartition(" ")
                found[name] = float(value)
        return found

    def scheduler(self) -> int | None:
        """The process that drives the model: SGLang renames it."""
        for found in Path("/proc").glob("[0-9]*/cmdline"):
            pid = int(found.parent.name)
            with suppress(OSError):
                ours = os.getpgid(pid) == self._process.pid
                if ours and found.read_bytes().startswith(b"sglang::sched"):
                    return pid
        return None

    def ask_to_end(self) -> None:
        """SIGTERM, without waiting."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)

    def stop(self, patience_s: float = 6.0) -> None:
        """Ended for certain: SIGTERM, and SIGKILL to its whole group, whose children may outlive it."""
        self.ask_to_end()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)
        self._record.unlink(missing_ok=True)


def require_free(port: int) -> None:
    """Stop here where something listens already: a server that an earlier run has left would be measured."""
    with socket.socket() as probe:
        probe.settimeout(1)
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            sys.exit(f"port {port} is taken: `ss -ltnp 'sport = :{port}'` says by whom; end it and run again")


@contextmanager
def running(
    arms: Sequence[Arm],
    model: Path,
    out: Path,
    *,
    deadline_s: float,
    port: int = 31000,
    common: Sequence[str] = COMMON,
) -> Iterator[dict[str, Server]]:
    """Servers of all arms at once, those that came up; all are ended afterwards."""
    for name in leftovers.end_earlier(out):
        print(f"{name}: an earlier run's, ended", flush=True)
    servers: list[Server] = []
    try:
        for index, arm in enumerate(arms):
            servers.append(Server(arm, model, port + 20 * index, out, common))
        ready = {}
        for server in servers:
            why = server.wait(deadline_s)
            if why:
                print(f"{server.arm.name}: NOT READY: {why[:600]}", flush=True)
                server.stop()
            else:
                print(f"{server.arm.name}: ready at {time.strftime('%T')}", flush=True)
                ready[server.arm.name] = server
        yield ready
    finally:
        for server in servers:
            server.ask_to_end()
        for server in servers:
            server.stop()


def card() -> dict[str, str]:
    """What the numbers were measured on."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("sglang", "torch", "triton", "sglang-kernel", "flashinfer-python"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    argv = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    if shutil.which(argv[0]) is None:
        return {**found, "gpu": "none"}
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return {**found, "gpu": done.stdout.strip() or "unknown"}
