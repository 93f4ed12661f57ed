"""``python -m benchmarks.gpu PHASE --target DIR --drafter DIR --out DIR``: one phase, into ``<out>/<phase>.json``.

Run it in the patched environment's Python. A phase that was interrupted goes on with the arms that are missing.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu import hybrid, lossless, plumbing, profile, speed
from benchmarks.gpu.arms import commits, ddtree, dflash
from benchmarks.gpu.server import Arm

PHASES = ("node-context", "plumbing", "lossless", "hybrid", "speed", "eager", "kernels", "profile")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("phase", choices=PHASES)
    parser.add_argument("--target", type=Path, help="the model's folder")
    parser.add_argument("--drafter", type=Path, help="its DFlash drafter's folder")
    parser.add_argument("--out", type=Path, required=True, help="where results and logs go")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="of lossless")
    parser.add_argument("--prompts", type=int, default=50, help="of lossless and hybrid; default 50")
    parser.add_argument("--tokens", type=int, default=256, help="longest answer; default 256")
    parser.add_argument("--minutes", type=float, default=6.0, help="of asking; what there is then is kept")
    parser.add_argument("--budgets", default="15,64", help="trees of lossless and hybrid; default 15,64")
    parser.add_argument("--arms", help="only these, by name, with commas")
    parser.add_argument("--hybrid-model", action="store_true", help="the target has recurrent layers")
    parser.add_argument("--tp", type=int, default=1, help="cards that a server takes; default 1")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the servers are ended on the way out
    given.out.mkdir(parents=True, exist_ok=True)
    flags = hybrid.HYBRID if given.hybrid_model or given.phase == "hybrid" else ()
    flags += over_cards(given.tp) if given.tp > 1 else ()
    only = given.arms.split(",") if given.arms else ()
    budgets = tuple(int(part) for part in given.budgets.split(","))
    if given.phase == "node-context":
        from benchmarks.gpu import node_context

        node_context.measure(given.out)
        return 0
    if not (given.target and given.drafter):
        parser.error("--target and --drafter are needed for this phase")
    if given.phase == "plumbing":
        arms = (plumbing.hybrid_arms if given.hybrid_model else plumbing.dense_arms)(given.drafter)
        name = "plumbing-hybrid" if given.hybrid_model else "plumbing"
        port = 33000 if given.hybrid_model else 31000  # both kinds can run side by side
        plumbing.measure(
            given.target, given.out, chosen(arms, given.arms), phase=name, flags=flags, port=port
        )
    elif given.phase == "lossless":
        lossless.measure(
            given.target, given.drafter, given.out, dtype=given.dtype, budgets=budgets,
            count=given.prompts, tokens=given.tokens, minutes=given.minutes, flags=flags,
            extra=commits(given.drafter, budgets[0]), only=only,
        )  # fmt: skip
    elif given.phase == "hybrid":
        hybrid.measure(
            given.target, given.drafter, given.out, dtype=given.dtype, budgets=budgets,
            count=given.prompts, tokens=given.tokens, minutes=given.minutes, only=only,
            flags=flags,
        )  # fmt: skip
    elif given.phase == "profile":
        arms = [
            Arm("linear", dflash(given.drafter)),
            Arm("tree-15", ddtree(given.drafter, budget=15, topk=8)),
        ]
        profile.measure(given.target, given.out, chosen(arms, given.arms), flags=flags)
    else:
        kinds = {"speed": speed.graph_arms, "eager": speed.eager_arms, "kernels": speed.kernel_arms}
        arms = chosen(kinds[given.phase](given.drafter), given.arms)
        speed.measure(
            given.target, given.drafter, given.out, arms, phase=given.phase,
            tokens=given.tokens, minutes=given.minutes, flags=flags,
        )  # fmt: skip
    return 0


def over_cards(count: int) -> tuple[str, ...]:
    """Flags of a server over several cards; without FlashInfer's fused all-reduce, which takes NVLink multicast: where
    the cards of a host are shared, that is not each one's to take."""
    return ("--tp-size", str(count), "--enforce-disable-flashinfer-allreduce-fusion")


def chosen(arms: Sequence[Arm], names: str | None) -> list[Arm]:
    """The arms of these names, in their order; all without names. Exits where one is unknown."""
    if names is None:
        return list(arms)
    by_name = {arm.name: arm for arm in arms}
    wanted = names.split(",")
    if unknown := [name for name in wanted if name not in by_name]:
        sys.exit(f"no arm {', '.join(unknown)}; there are {', '.join(by_name)}")
    return [by_name[name] for name in wanted]


if __name__ == "__main__":
    sys.exit(main())
