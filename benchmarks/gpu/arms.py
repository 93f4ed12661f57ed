"""The arms that are compared: one patched environment, the same flags but for how tokens are drafted."""

from __future__ import annotations

from pathlib import Path

from benchmarks.gpu.server import HERE, Arm

FLOAT32 = {
    # A tensor-core float32 rounds to 10 bits of mantissa; the proof wants all 23: three products of such halves in
    # Triton's kernels, where products without tensor cores made a pass ten times slower.
    "TRITON_F32_DEFAULT": "tf32x3",
    "NVIDIA_TF32_OVERRIDE": "0",
    "SGLANG_MAMBA_CONV_DTYPE": "float32",
}


def dflash(drafter: Path) -> tuple[str, ...]:
    """The chain."""
    return ("--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", str(drafter))


def ddtree(drafter: Path, mode: str = "tree", *, metrics: bool = False, **options: object) -> tuple[str, ...]:
    """Trees: ``budget=22, topk=8, spine=True`` become their flags."""
    flags = ["--speculative-algorithm", "DDTREE", "--speculative-draft-model-path", str(drafter)]
    flags += ["--speculative-ddtree-mode", mode]
    for name, value in options.items():
        flag = f"--speculative-ddtree-{name.replace('_', '-')}"
        flags += [flag] if value is True else [flag, str(value)]
    return (*flags, "--speculative-ddtree-metrics") if metrics else tuple(flags)


def in_float32(arm: Arm) -> Arm:
    """The same arm in float32, without kernels that have no float32."""
    flags = (*arm.flags, "--dtype", "float32")
    return Arm(f"{arm.name}-float32", flags, {**arm.env, **FLOAT32}, str(HERE / "float32_plugin"))


def compared(drafter: Path, budgets: tuple[int, ...] = (15,), *, metrics: bool = False) -> list[Arm]:
    """Autoregressive, linear, shadow, and a tree of each budget."""
    return [
        Arm("autoregressive"),
        Arm("linear", dflash(drafter)),
        Arm("shadow", ddtree(drafter, "shadow", metrics=metrics)),
        *(
            Arm(f"tree-{budget}", ddtree(drafter, metrics=metrics, budget=budget, topk=8))
            for budget in budgets
        ),
    ]


def commits(drafter: Path, budget: int) -> list[Arm]:
    """A tree of this budget without graphs around the models' passes: committed by the host, and on the device."""
    return [
        Arm(f"tree-{budget}-{commit}", ddtree(drafter, budget=budget, topk=8, commit=commit))
        for commit in ("host", "device")
    ]


def eager(arm: Arm) -> Arm:
    """The same arm without CUDA graphs."""
    return Arm(f"{arm.name}-eager", (*arm.flags, "--disable-cuda-graph"), arm.env, arm.path)
