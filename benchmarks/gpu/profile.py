"""Where a pass's time goes: a torch profiler's trace and the sums that matter; with py-spy the host's stacks too."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.gpu.results import Results
from benchmarks.gpu.server import Arm, Server, running
from benchmarks.gpu.texts import prompts

STEPS = 20
STACKS_S = 5
"""Seconds of sampled stacks, 500 a second."""


def measure(
    model: Path, out: Path, arms: Sequence[Arm], *, deadline_s: float = 300, flags: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Write ``profile.json`` and one trace an arm under ``traces/``."""
    results = Results(out, "profile")
    traces = out / "traces"
    traces.mkdir(parents=True, exist_ok=True)
    text = prompts(model)[0].text
    arms = [Arm(arm.name, (*arm.flags, *flags), arm.env, arm.path) for arm in arms]
    with running(arms, model, out, deadline_s=deadline_s) as servers:
        for name, server in servers.items():
            server.generate(text, 64)
            stacks(server, text, out / f"stacks-{name}.txt")
            folder = traces / name
            server.post(
                "/start_profile",
                {"output_dir": str(folder), "num_steps": STEPS, "activities": ["CPU", "GPU"]},
            )
            server.generate(text, 256)
            ends = time.monotonic() + 60
            while not list(folder.rglob("*.json.gz")) and time.monotonic() < ends:
                time.sleep(1)
            time.sleep(2)
            for trace in folder.rglob("*.json.gz"):
                results.put(name, sums(trace))
                print(f"{name}: {results.data['arms'][name]}", flush=True)
                break
    return results.data


def stacks(server: Server, text: str, to: Path) -> None:
    """What the scheduler's Python does while it answers, as collapsed stacks; nothing without py-spy."""
    scheduler = server.scheduler()
    if shutil.which("py-spy") is None or scheduler is None:
        return
    argv = ["py-spy", "record", "--pid", str(scheduler), "--rate", "500", "--duration", str(STACKS_S)]
    with ThreadPoolExecutor(1) as pool:
        sampling = pool.submit(
            subprocess.run, [*argv, "--format", "raw", "--output", str(to)], capture_output=True, check=False
        )
        while not sampling.done():
            server.generate(text, 256)


def sums(trace: Path) -> dict[str, Any]:
    """Milliseconds a step: kernels, launches, waits; the heaviest kernels and CPU calls."""
    with gzip.open(trace) as file:
        events = [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
    totals: Counter[str] = Counter()
    heavy: dict[str, Counter[str]] = {"kernel": Counter(), "cuda_runtime": Counter(), "cpu_op": Counter()}
    for event in events:
        category = event.get("cat", "")
        totals[category] += event["dur"] / 1000 / STEPS
        if category in heavy:
            heavy[category][event["name"][:80]] += event["dur"] / 1000 / STEPS
    begun, ended = min(e["ts"] for e in events), max(e["ts"] + e["dur"] for e in events)
    return {
        "wall_ms_a_step": (ended - begun) / 1000 / STEPS,
        "totals_ms_a_step": dict(totals),
        "heaviest": {kind: dict(counter.most_common(12)) for kind, counter in heavy.items()},
        "launches_a_step": sum("Launch" in event["name"] for event in events) / STEPS,
    }
