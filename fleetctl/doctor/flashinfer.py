"""Which of FlashInfer's parts an examined service uses, and the arguments that avoid them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from fleetctl.doctor.known import text
from fleetctl.doctor.rule import Context, ServiceView
from fleetctl.doctor.toolkit import variable
from fleetctl.inventory.models import Argument

ATTENTION = ("attention-backend", "prefill-attention-backend", "decode-attention-backend")
OTHERS = ("moe-runner-backend", "fp8-gemm-backend", "fp4-gemm-backend", "mm-attention-backend")
WITHOUT: Mapping[str, Argument] = {"attention-backend": "triton", "sampling-backend": "pytorch"}
ARCH_LIST = "FLASHINFER_CUDA_ARCH_LIST"


def avoiding(context: Context) -> Mapping[str, Argument]:
    """The arguments of SGLang that keep its attention and its sampling off FlashInfer; empty where they are off it.

    SGLang's defaults on a card that is neither SM 9.0 nor SM 10.x are FlashInfer's, where it is installed
    (``_get_default_attn_backend`` and ``_handle_sampling_backend`` of server_args.py).
    """
    service = context.service
    if service is None:
        return WITHOUT
    if variable(context, "SGLANG_IS_FLASHINFER_AVAILABLE").lower() in ("0", "false"):
        return {}
    changes: dict[str, Argument] = {}
    given = {name: text(service, name) for name in ATTENTION}
    halves = bool(given["prefill-attention-backend"] and given["decode-attention-backend"])
    for name, value in given.items():
        unset = name == "attention-backend" and not value and not halves
        if unset or value.startswith("flashinfer"):
            changes[name] = "triton"
    if text(service, "sampling-backend") in ("", "flashinfer"):
        changes["sampling-backend"] = "pytorch"
    return changes


def other_parts(service: ServiceView | None) -> list[str]:
    """Arguments that ask for FlashInfer elsewhere, as they stand: ``--moe-runner-backend flashinfer_cutlass``."""
    if service is None:
        return []
    given = {name: text(service, name) for name in OTHERS}
    return [f"--{name} {value}" for name, value in given.items() if value.startswith("flashinfer")]


def names_its_architecture(context: Context) -> bool:
    """Whether a variable tells FlashInfer the architecture with its suffix, which it then takes as it is."""
    listed = variable(context, ARCH_LIST).split()
    return bool(listed) and all(one[-1:].isalpha() for one in listed)


def flags(arguments: Mapping[str, Argument]) -> str:
    """``--attention-backend triton --sampling-backend pytorch``"""
    return " ".join(f"--{name} {value}" for name, value in arguments.items())
