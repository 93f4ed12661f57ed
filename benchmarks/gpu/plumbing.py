"""Do all modes start and answer? On any models, random ones too: what is asked is that nothing breaks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.gpu.arms import ddtree, dflash, in_float32
from benchmarks.gpu.results import Results
from benchmarks.gpu.server import Arm, running

TEXTS = ("def f(x):", "import os\n", "The", "class Tree:\n    def __init__(self")


def dense_arms(drafter: Path) -> list[Arm]:
    """Every mode with graphs, trees narrower and wider than the block, both builders, one without graphs."""
    return [
        Arm("autoregressive"),
        Arm("linear", dflash(drafter)),
        Arm("shadow", ddtree(drafter, "shadow", metrics=True)),
        Arm("tree", ddtree(drafter, metrics=True)),
        Arm("tree-4", ddtree(drafter, budget=4)),
        Arm("tree-40-spine", ddtree(drafter, budget=40, spine=True)),
        Arm("tree-torch", ddtree(drafter, builder="torch")),
        Arm("tree-device", ddtree(drafter, commit="device")),
        Arm("tree-host", ddtree(drafter, commit="host")),
        Arm("tree-eager", (*ddtree(drafter), "--disable-cuda-graph")),
    ]


def hybrid_arms(drafter: Path) -> list[Arm]:
    """The same on a hybrid model: states forked, in graphs and without, and the leak."""
    return [
        Arm("hybrid-linear", dflash(drafter)),
        Arm("hybrid-fork", ddtree(drafter, budget=12)),
        Arm("hybrid-fork-eager", (*ddtree(drafter, budget=12), "--disable-cuda-graph")),
        Arm("hybrid-fork-host", ddtree(drafter, budget=12, commit="host")),
        Arm("hybrid-unsafe", ddtree(drafter, budget=12, hybrid="unsafe")),
        in_float32(Arm("hybrid-autoregressive")),
        in_float32(Arm("hybrid-fork", ddtree(drafter, budget=12))),
    ]


def measure(
    model: Path,
    out: Path,
    arms: Sequence[Arm],
    *,
    phase: str,
    flags: tuple[str, ...] = (),
    tokens: int = 48,
    deadline_s: float = 330,
    port: int = 31000,
) -> dict[str, Any]:
    """Write ``<phase>.json``: for each arm its texts one by one, together and in the other order, metrics."""
    results = Results(out, phase)
    wanted = [
        Arm(arm.name, (*arm.flags, *flags), arm.env, arm.path) for arm in arms if not results.has(arm.name)
    ]
    with running(wanted, model, out, deadline_s=deadline_s, port=port) as servers:
        first: list[list[int]] | None = None
        for name, server in servers.items():
            begun = time.perf_counter()
            alone = [server.generate(text, tokens)["output_ids"] for text in TEXTS]
            with ThreadPoolExecutor(8) as pool:
                together = list(pool.map(lambda text, s=server: s.generate(text, tokens), TEXTS * 4))
            # In the other order: what a request leaves in its cache slots must not reach the next one.
            again = [server.generate(text, tokens)["output_ids"] for text in reversed(TEXTS)][::-1]
            first = first or alone
            same = sum(one == other for one, other in zip(alone, first, strict=True))
            results.put(
                name,
                {
                    "texts": alone,
                    "as_the_first_arm": same,
                    "repeatable": alone == again,
                    "tokens_together": sum(len(answer["output_ids"]) for answer in together),
                    "meta": together[0]["meta_info"],
                    "metrics": server.metrics(),
                    "sampled": sampled(server),
                },
            )
            print(
                f"{name}: {same} of {len(TEXTS)} texts as the first arm's, "
                f"repeatable {alone == again}, {time.perf_counter() - begun:.1f} s",
                flush=True,
            )
        for name in (arm.name for arm in wanted if arm.name not in servers):
            results.put(f"{name} (not ready)", {"log": f"server-{name}.log"})
    return results.data


def sampled(server: Any) -> str:
    """What a request with a temperature gets: an answer, or the refusal's sentence."""
    try:
        said = server.generate("The", 4, sampling_params={"temperature": 1.0, "max_new_tokens": 4})
    except OSError as error:
        body = error.read().decode() if hasattr(error, "read") else str(error)
        return f"refused: {body[:300]}"
    reason = said["meta_info"].get("finish_reason") or {}
    return f"refused: {reason.get('message')}" if reason.get("type") == "abort" else "answered"
