"""An sglang plugin for proofs in float32: operators run torch's own code, their kernels being for half floats."""

from __future__ import annotations

from typing import Any

NATIVE = (
    "RMSNorm",
    "GemmaRMSNorm",
    "SiluAndMul",
    "RotaryEmbedding",
    "Llama3RotaryEmbedding",
    "MRotaryEmbedding",
)


def register() -> None:
    """Entry point of ``sglang.srt.plugins``."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    def dispatch(original: Any, operator: Any) -> Any:
        return operator.forward_native if type(operator).__name__ in NATIVE else original(operator)

    def prefill(
        original: Any, kernel: Any, q: Any, k: Any, v: Any, decay: Any, beta: Any, **named: Any
    ) -> tuple[Any, ...]:
        """Recurrent layers read a prompt in bfloat16, for which alone that kernel is: the same for all arms."""
        import torch

        single, half = torch.float32, torch.bfloat16
        if q.dtype != single:
            return tuple(original(kernel, q, k, v, decay, beta, **named))
        read, *others = original(kernel, q.to(half), k.to(half), v.to(half), decay, beta.to(half), **named)
        return (read.to(single), *others)

    HookRegistry.register(
        "sglang.srt.layers.attention.linear.kernels.gdn_triton.TritonGDNKernel.extend",
        prefill,
        HookType.AROUND,
    )
    HookRegistry.register(
        "sglang.srt.layers.utils.multi_platform.MultiPlatformOp.dispatch_forward", dispatch, HookType.AROUND
    )
