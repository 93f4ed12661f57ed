"""Tokens per second over HTTP at batch 1 and 8, eager and with CUDA graphs, and the phases that explain them.

All servers are loaded side by side and asked one at a time; rounds are interleaved, so that a slow moment of
the machine falls on all arms. A figure is tokens over the time until the whole answer is here.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from benchmarks.gpu.arms import commits, compared, ddtree, dflash, eager
from benchmarks.gpu.results import Results
from benchmarks.gpu.server import Arm, Server, running
from benchmarks.gpu.texts import Prompt, prompts

ROUNDS = 3
UNSEEN_AT_ONCE = 6
"""Unseen prompts between two writings of the results."""


def graph_arms(drafter: Path) -> list[Arm]:
    """What is compared with CUDA graphs, phases measured in servers of their own."""
    return [
        *compared(drafter, (8, 15, 32)),
        Arm("tree-22-spine", ddtree(drafter, budget=22, topk=8, spine=True)),
        *commits(drafter, 15),
        Arm("shadow-phases", ddtree(drafter, "shadow", metrics=True)),
        Arm("tree-15-phases", ddtree(drafter, metrics=True, budget=15, topk=8)),
    ]


def eager_arms(drafter: Path) -> list[Arm]:
    """The same without graphs, fewer of them."""
    return [eager(arm) for arm in compared(drafter)]


def kernel_arms(drafter: Path) -> list[Arm]:
    """Which builder: the Triton kernel or torch."""
    return [
        Arm("linear", dflash(drafter)),
        Arm("tree-15-triton", ddtree(drafter, metrics=True, budget=15, builder="triton")),
        Arm("tree-15-torch", ddtree(drafter, metrics=True, budget=15, builder="torch")),
    ]


def measure(
    model: Path,
    drafter: Path,
    out: Path,
    arms: Sequence[Arm],
    *,
    phase: str = "speed",
    tokens: int = 256,
    minutes: float = 6.0,
    deadline_s: float = 300,
    flags: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Write ``<phase>.json``: five prompts × 3 rounds, the unseen prompts once, 8 at once; phase times.

    What an arm has said is written after every round (its entry is ``unfinished`` till the end), so that a run that
    is killed loses no more than a round; a further run measures the unfinished arms anew.
    """
    results = Results(out, phase)
    arms = [Arm(arm.name, (*arm.flags, *flags), arm.env, arm.path) for arm in arms]
    missing = [arm for arm in arms if not results.has(arm.name)]
    asked = prompts(model)
    five = [prompt for prompt in asked if prompt.form == "demo"]
    unseen = [prompt for prompt in asked if prompt.form != "demo"]
    with running(missing, model, out, deadline_s=deadline_s) as servers:
        measuring = _Measuring(results, servers, tokens, time.monotonic() + minutes * 60)
        measuring.warm_up(five[:2])
        for number in range(ROUNDS):
            measuring.round(number, five)
        for first in range(0, len(unseen), UNSEEN_AT_ONCE):
            measuring.round(0, unseen[first : first + UNSEEN_AT_ONCE])
        measuring.finish(unseen)
    return results.data


class _Measuring:
    """All arms' servers, asked in turn until the time is up; what they said is kept as it comes."""

    def __init__(self, results: Results, servers: dict[str, Server], tokens: int, ends: float) -> None:
        self.results, self.servers, self.tokens, self.ends = results, servers, tokens, ends
        self.runs: dict[str, list[dict[str, Any]]] = defaultdict(list)

    @property
    def left(self) -> float:
        """Seconds until no further question is asked."""
        return self.ends - time.monotonic()

    def warm_up(self, asked: Sequence[Prompt]) -> None:
        """Kernels compile, caches fill, graphs are captured; a server that fails here is left out."""
        for name, server in list(self.servers.items()):
            try:
                for prompt in asked:
                    server.generate(prompt.text, 64, timeout=max(20.0, min(self.left, 120.0)))
            except (OSError, ValueError) as error:
                self._lost(name, error)

    def round(self, number: int, asked: Sequence[Prompt]) -> None:
        """Each prompt of every server, in turn; then all that is known is written."""
        for prompt in asked:
            for name, server in list(self.servers.items()):
                if self.left <= 0:
                    break
                try:
                    told = once(server, prompt, self.tokens, max(10.0, min(self.left, 120.0)))
                except (OSError, ValueError) as error:
                    self._lost(name, error)
                else:
                    self.runs[name].append({"round": number, **told})
        for name, server in self.servers.items():
            if self.runs[name]:
                self._put(name, server, {}, unfinished=True)
        words = f"{len(asked)} prompts" if self.left > 0 else "time is up"
        print(f"round {number + 1}: {words}, {time.strftime('%T')}", flush=True)

    def finish(self, asked: Sequence[Prompt]) -> None:
        """Several at once, the phases, and each arm on one line."""
        for name, server in list(self.servers.items()):
            if not self.runs[name]:
                continue
            together = {}
            if self.left > 0:
                try:
                    together = batch(server, [prompt.text for prompt in asked[:16]], self.tokens, 8)
                except (OSError, ValueError) as error:
                    self._lost(name, error)
                    continue
            figures = self._put(name, server, together)
            print(line(name, figures), flush=True)

    def _put(
        self, name: str, server: Server, together: dict[str, float], *, unfinished: bool = False
    ) -> dict[str, Any]:
        try:
            told = phases(server.metrics())
        except (OSError, ValueError):
            told = {}
        figures = {**summary(self.runs[name]), "at_once_8": together, "phases": told}
        kept = {**figures, "flags": list(server.arm.flags), "runs": self.runs[name]}
        self.results.put(name, {**kept, "unfinished": True} if unfinished else kept)
        return figures

    def _lost(self, name: str, error: Exception) -> None:
        print(f"{name}: LOST: {type(error).__name__}: {error}; {self.servers[name].last_words()}", flush=True)
        del self.servers[name]


def once(server: Server, prompt: Prompt, tokens: int, timeout: float = 300) -> dict[str, Any]:
    """One answer: tokens, seconds, verify passes."""
    said = server.generate(prompt.text, tokens, timeout)
    meta = said["meta_info"]
    return {
        "prompt": prompt.name,
        "kind": prompt.kind,
        "form": prompt.form,
        "tokens": meta["completion_tokens"],
        "seconds": said["seconds"],
        "passes": meta.get("spec_verify_ct", meta["completion_tokens"]),
        "histogram": meta.get("spec_accept_histogram"),
    }


def batch(server: Server, texts: list[str], tokens: int, at_once: int) -> dict[str, float]:
    """Tokens per second of all together."""
    begun = time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        said = list(pool.map(lambda text: server.generate(text, tokens), texts))
    seconds = time.perf_counter() - begun
    made = sum(answer["meta_info"]["completion_tokens"] for answer in said)
    return {"tokens_per_second": made / seconds, "tokens": made, "seconds": seconds}


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Tokens per second, accepted length and milliseconds a pass: the five prompts, the unseen, each kind."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        groups["five" if run["form"] == "demo" else "unseen"].append(run)
        if run["form"] != "demo":
            groups[f"unseen {run['kind']}"].append(run)
        else:
            groups[f"five {run['prompt']}"].append(run)
    return {name: _figures(group) for name, group in sorted(groups.items())}


def _figures(runs: list[dict[str, Any]]) -> dict[str, float]:
    by_prompt: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        by_prompt[run["prompt"]].append(run["tokens"] / run["seconds"])
    tokens, seconds = sum(run["tokens"] for run in runs), sum(run["seconds"] for run in runs)
    passes = sum(run["passes"] for run in runs)
    return {
        "tokens_per_second": tokens / seconds,
        "mean_over_prompts": geometric_mean([median(values) for values in by_prompt.values()]),
        "accepted_length": tokens / passes,
        "milliseconds_a_pass": 1000 * seconds / passes,
    }


def phases(metrics: dict[str, float]) -> dict[str, Any]:
    """Milliseconds a step by phase, on the device's clock and the host's; nodes by depth."""
    passes = sum(value for name, value in metrics.items() if name.startswith("sglang:ddtree_passes_total"))
    found: dict[str, Any] = {"passes": passes}
    for name, value in metrics.items():
        labels = dict(re.findall(r'(\w+)="([^"]*)"', name))
        if name.startswith("sglang:ddtree_phase_seconds_total") and passes:
            found.setdefault(labels["clock"], {})[labels["phase"]] = 1000 * value / passes
        for what in ("drafted", "accepted"):
            if name.startswith(f"sglang:ddtree_nodes_{what}_total"):
                found.setdefault(what, {})[labels["depth"]] = value
    for clock in ("device", "host"):
        if clock in found:
            times = found[clock]
            small = times.get("build", 0) + times.get("commit", 0)
            found[f"{clock}_build_and_commit_share"] = small / sum(times.values())
    return found if passes else {}


def line(name: str, figures: dict[str, Any]) -> str:
    """An arm on one line."""
    five, unseen = figures.get("five", {}), figures.get("unseen", {})
    said = [f"{name:24s}"]
    for label, group in (("five", five), ("unseen", unseen)):
        if group:
            said.append(
                f"{label} {group['tokens_per_second']:7.1f} tok/s tau {group['accepted_length']:.2f} "
                f"{group['milliseconds_a_pass']:.2f} ms a pass"
            )
    if figures["at_once_8"]:
        said.append(f"8 at once {figures['at_once_8']['tokens_per_second']:7.1f}")
    if figures["phases"].get("device"):
        said.append(" ".join(f"{phase} {ms:.2f}" for phase, ms in figures["phases"]["device"].items()))
    return "  ".join(said)
