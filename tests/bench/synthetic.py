"""Records that no server made: timings drawn from stated means, in the schema of real ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fleetctl.bench.record import Accepted, End, Failure, HostFacts, Point, PointEnd, Request, Run, Tree
from fleetctl.bench.records import Writer

KINDS = {
    "fibonacci": "code",
    "json_parse": "code",
    "quicksort": "explanation",
    "arithmetic": "fact",
    "haiku": "creative",
}
EASE = {"fibonacci": 1.15, "json_parse": 1.3, "quicksort": 0.95, "arithmetic": 1.0, "haiku": 0.75}
WORDS = (
    "def fib(n):\n    if n < 2:\n        return n\n    a, b = 0, 1\n    for _ in range(n - 1):\n"
    "        a, b = b, a + b\n    return b\n\nThis keeps only the last two numbers, so it takes O(n) time. "
) * 3


@dataclass(frozen=True)
class Spec:
    """A point to make up: ``speed`` in tokens/s of one request, ``length`` its accepted length."""

    service: str
    mode: str
    speed: float
    length: float = 1.0
    concurrency: int = 1
    varied: dict[str, Any] = field(default_factory=dict)
    part: str = "main"
    context: int = 40
    spread: float = 0.04
    model: str = "smollm2-135m"
    host: str = "ct200"
    digest: str = ""


FOUR = (
    Spec("autoregressive", "autoregressive", 17.2),
    Spec("dflash", "linear", 26.0, 2.52),
    Spec("shadow", "shadow", 25.4, 2.52),
    Spec("ddtree", "tree", 33.1, 3.05),
)


def point(spec: Spec) -> Point:
    """The point's line."""
    varied = "&".join(f"{name}={value}" for name, value in spec.varied.items())
    identity = f"{spec.host}/native/{spec.service}?{varied}@c{spec.concurrency}/{spec.part}"
    return Point(
        id=identity,
        host=spec.host,
        slot="native",
        service=spec.service,
        mode=spec.mode,
        engine="standalone",
        args={"mode": spec.mode, "threads": 2, **spec.varied},
        varied=spec.varied,
        environment="serve-1f2e3d4c5b6a",
        abi="cp311-torch2.13-cpu-cxx11-glibc2.36",
        patches=[],
        model={"id": spec.model, "digest": f"digest-of-{spec.model}"},
        drafter=None if spec.mode == "autoregressive" else {"id": "smollm2-135m-dflash", "digest": "d1"},
        concurrency=spec.concurrency,
        suite_part=spec.part,
        digest=spec.digest or f"{abs(hash((identity, spec.model))):064x}"[:64],
        unit_sha256="0" * 64,
        started="2026-11-29T23:15:01.000+00:00",
    )


def request(
    spec: Spec, draw: random.Random, prompt: str, repeat: int, began: float, tokens: int = 96
) -> Request:
    """One good answer, its events as regular as the spec's spread lets them be."""
    speed = spec.speed * EASE.get(prompt, 1.0) * draw.lognormvariate(0, spec.spread)
    length = max(1.0, spec.length * EASE.get(prompt, 1.0) ** 0.7)
    passes = max(1, round(tokens / length))
    first = spec.context / 900 + 0.02
    step = max(1e-4, tokens / speed - first) / passes
    at, left, events = first, tokens, []
    for index in range(passes):
        count = left if index == passes - 1 else min(left, max(1, round(tokens / passes)))
        if not count:
            break
        events.append((round(at, 5), count))
        left -= count
        at += step * draw.lognormvariate(0, 0.1)
    return Request(
        point=point(spec).id,
        prompt=prompt,
        prompt_kind=KINDS.get(prompt, "text"),
        repeat=repeat,
        round=repeat,
        warmup=False,
        started_s=began,
        ttft_s=events[0][0],
        end_s=max(events[-1][0], tokens / speed),
        events=events,
        tokens=tokens,
        tokens_from="usage",
        prompt_tokens=spec.context,
        text=WORDS[: tokens * 4],
        finish="length",
        accepted=None
        if spec.mode == "autoregressive"
        else Accepted(passes, max(0, round(passes * (length - 1)))),
        trees=drafted(spec, draw) if repeat == 0 and spec.mode in ("linear", "shadow", "tree") else None,
    )


def drafted(spec: Spec, draw: random.Random, steps: int = 3) -> list[Tree]:
    """Trees as a drafter might make them: a chain, with branches in tree mode."""
    made = []
    words = [
        "def",
        " fib",
        "(n",
        "):\n",
        "   ",
        " if",
        " n",
        " <",
        " 2",
        ":\n",
        " return",
        " a",
        "é",
        "→",
        "<|im_end|>",
    ]
    for step in range(steps):
        size = int(spec.varied.get("budget", 15))
        parents, probs = [-1], [1.0]
        for node in range(1, size + 1):
            branch = spec.mode == "tree" and draw.random() < 0.4
            parents.append(draw.randrange(node) if branch else node - 1)
            probs.append(round(draw.uniform(0.05, 0.99), 3))
        path, node = [], 0
        while draw.random() < 0.75:
            below = [child for child, up in enumerate(parents) if up == node]
            if not below:
                break
            node = below[0]
            path.append(node)
        tokens = [words[(node * 7 + step) % len(words)] for node in range(size + 1)]
        made.append(Tree(step, tokens, parents, probs if spec.mode == "tree" else None, path))
    return made


def failed(
    good: Request, kind: str = "http", status: int | None = 500, what: str = "Internal error"
) -> Request:
    """The same request, had it failed."""
    return replace(
        good,
        ttft_s=None,
        events=[],
        tokens=0,
        text="",
        finish=None,
        accepted=None,
        error=Failure(kind, status, what),  # type: ignore[arg-type]
    )


def write(
    root: Path,
    specs: Sequence[Spec] = FOUR,
    *,
    name: str = "five-prompts",
    identity: str = "20261129T231500Z-five-prompts-ab12",
    prompts: Sequence[str] = tuple(KINDS),
    repeats: int = 3,
    seed: int = 1,
    tokens: int = 96,
    ended: bool = True,
    change: Any = None,
    suite: dict[str, Any] | None = None,
) -> Path:
    """A run's file, interleaved round by round; ``change(request)`` may give another request or None for none."""
    draw = random.Random(seed)
    run = Run(
        id=identity,
        started="2026-11-29T23:15:00.000+00:00",
        suite={
            "suite": name,
            "description": "Five kinds of text that draft differently well.",
            "prompts": [
                {"name": prompt, "kind": KINDS.get(prompt, "text"), "text": f"Write about {prompt} & <more>."}
                for prompt in prompts
            ],
            "max_tokens": tokens,
            "repeats": repeats,
            "order": "interleaved",
            **(suite or {}),
        },
        prompts_digest="0123456789abcdef",
        command=["fleetctl", "bench", "ct200", "--suite", name],
        fleetctl="0.1.0",
        operator="ada@workstation",
        seed=seed,
        client={"host": "workstation", "cpus": 2, "python": "3.11.7"},
    )
    clock = 0.0
    spent = dict.fromkeys([point(spec).id for spec in specs], 0.0)
    with Writer(root, run) as out:
        for host in dict.fromkeys(spec.host for spec in specs):
            out.write(
                HostFacts(
                    host, {"hostname": host, "os": "Debian 12", "kernel": "6.1.0", "cpus": 2, "gpus": []}
                )
            )
        for spec in specs:
            out.write(point(spec))
        for repeat in range(repeats):
            for spec in specs:
                for index, prompt in enumerate(prompts):
                    made = request(spec, draw, prompt, repeat, clock, tokens)
                    changed = change(made) if change else made
                    if changed is not None:
                        out.write(changed)
                    spent[made.point] += made.end_s
                    if index % spec.concurrency == spec.concurrency - 1:
                        clock += made.end_s
                clock += made.end_s
        for spec in specs:
            out.write(
                PointEnd(point(spec).id, "done", swap_s=2.4, wall_s=spent[point(spec).id], client_cpu_s=0.3)
            )
        if ended:
            out.write(End("done", "", "2026-11-29T23:31:00.000+00:00"))
    return out.path
