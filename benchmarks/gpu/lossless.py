"""Is a tree's greedy output the target's own? Token for token against autoregressive, one by one and 8 at once.

In float32 every text must be equal. In bfloat16 equal scores flip between kernels: there each first difference
is judged by the gap between the two tokens' log-probabilities, asked of the autoregressive server.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.gpu.arms import compared, in_float32
from benchmarks.gpu.results import Results
from benchmarks.gpu.server import Arm, Server, running
from benchmarks.gpu.texts import prompts

REFERENCE = "autoregressive"
UNKNOWN = 99.0  # a gap that cannot be told, or is beyond any rounding


def texts_of(server: Server, asked: Sequence[list[int]], tokens: int, at_once: int) -> list[dict[str, Any]]:
    """The answers to all prompts, ``at_once`` of them together."""
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda prompt: server.generate(prompt, tokens), asked))


def measure(
    model: Path,
    drafter: Path,
    out: Path,
    *,
    dtype: str = "float32",
    budgets: tuple[int, ...] = (15, 64),
    count: int = 50,
    tokens: int = 256,
    deadline_s: float = 300,
    minutes: float = 8.0,
    extra: Sequence[Arm] = (),
    only: Sequence[str] = (),
    flags: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Write ``lossless-<dtype>.json``; its ``arms``: texts that are equal, and each first difference.

    No arm is begun after ``minutes`` of asking; what there is then is kept, and a further run goes on from it.
    ``only`` names the arms to ask besides the reference; all without.
    """
    results = Results(out, f"lossless-{dtype}")
    wanted = [*compared(drafter, budgets), *extra]
    arms = [
        Arm(arm.name, (*arm.flags, *flags), arm.env)
        for arm in wanted
        if not only or arm.name in (*only, REFERENCE)
    ]
    names = {arm.name: arm.name for arm in arms}
    if dtype == "float32":
        arms = [in_float32(arm) for arm in arms]
        names = {arm.name: arm.name.removesuffix("-float32") for arm in arms}
    with running(arms, model, out, deadline_s=deadline_s) as servers:
        ends = time.monotonic() + minutes * 60
        ready = {names[name]: server for name, server in servers.items()}
        if REFERENCE not in ready:
            raise SystemExit("the autoregressive server is not ready; see its log")
        asked = [ready[REFERENCE].tokens(prompt.text) for prompt in prompts(model)[:count]]
        own = texts_of(ready[REFERENCE], asked, tokens, 1)
        for name, server in ready.items():
            for at_once in (1, 8):
                label = f"{name}-batch-{at_once}"
                if results.has(label):
                    continue
                if time.monotonic() > ends:
                    print(f"time is up before {label}", flush=True)
                    return results.data
                said = own if (name, at_once) == (REFERENCE, 1) else texts_of(server, asked, tokens, at_once)
                figures = compare(asked, own, said, ready[REFERENCE])
                results.put(label, figures)
                print(
                    f"{label}: {figures['equal']} of {figures['texts']} equal, "
                    f"tau {figures['tau']:.2f}, worst gap {figures['worst_gap']:.3f}",
                    flush=True,
                )
    return results.data


def compare(
    asked: Sequence[list[int]], own: list[dict[str, Any]], said: list[dict[str, Any]], reference: Server
) -> dict[str, Any]:
    """How many texts are equal, and for each that is not: where it leaves, and the gap there."""
    differences = []
    for number, (one, other) in enumerate(zip(own, said, strict=True)):
        a, b = one["output_ids"], other["output_ids"]
        if a == b:
            continue
        at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        differences.append({"text": number, "at": at, **gap(asked[number], a, b, at, reference)})
    passes = [answer["meta_info"].get("spec_verify_ct", 0) for answer in said]
    lengths = [len(answer["output_ids"]) for answer in said]
    return {
        "texts": len(own),
        "equal": len(own) - len(differences),
        "tau": sum(lengths) / sum(passes) if sum(passes) else 1.0,
        "mean_tokens": mean(lengths),
        "worst_gap": max((entry["gap"] for entry in differences), default=0.0),
        "differences": differences,
    }


def gap(prompt: list[int], a: list[int], b: list[int], at: int, reference: Server) -> dict[str, Any]:
    """The two tokens where the texts part, and how much likelier the target finds its own (natural log)."""
    if at >= len(a) or at >= len(b):
        return {"tokens": [a[at : at + 1], b[at : at + 1]], "gap": UNKNOWN, "why": "one text ends"}
    answer = reference.generate(
        prompt + a[:at], 1, return_logprob=True, top_logprobs_num=20, logprob_start_len=-1
    )
    likely = {entry[1]: entry[0] for entry in answer["meta_info"]["output_top_logprobs"][0]}
    if a[at] not in likely or b[at] not in likely:
        return {"tokens": [a[at], b[at]], "gap": UNKNOWN, "why": "not among the likeliest 20"}
    return {"tokens": [a[at], b[at]], "gap": abs(likely[a[at]] - likely[b[at]])}
