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

    HookRegistry.register(
        "sglang.srt.layers.utils.multi_platform.MultiPlatformOp.dispatch_forward", dispatch, HookType.AROUND
    )
