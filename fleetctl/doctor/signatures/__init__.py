"""What engines, libraries, systemd and the kernel log when something is wrong, and what to do: data."""

from __future__ import annotations

from typing import Any

from fleetctl.doctor.signatures import build, config, gpu, harmless, model, service, system
from fleetctl.doctor.signatures.signature import Signature, Verdict

__all__ = ["SIGNATURES", "Signature", "Verdict", "by_id", "table"]

OF_PLANS = ("fatal", "likely", "harmless")
_ALL: list[Signature] = [
    *build.ABI,
    *build.ARCH,
    *build.PKG,
    *config.CFG,
    *gpu.DRV,
    *gpu.GPU,
    *model.MODEL,
    *system.SYS,
    *system.NET,
    *service.SVC,
    *harmless.HARMLESS,
]
# What says least comes last among its kind.
GENERIC = (
    "abi-library",
    "abi-undefined-symbol",
    "gpu-driver-error",
    "gpu-xid",
    "pkg-missing-module",
    "svc-command",
)
# The first that matches a line counts: causes before consequences, certain ones before likely ones.
SIGNATURES: list[Signature] = sorted(
    _ALL, key=lambda one: (one.consequence, one.verdict != "fatal", one.id in GENERIC)
)

by_id: dict[str, Signature] = {signature.id: signature for signature in SIGNATURES}


def table() -> list[dict[str, Any]]:
    """The signatures as a plan's ``signatures``: all that a swap's fail-fast can use."""
    return [signature.to_dict() for signature in SIGNATURES if signature.verdict in OF_PLANS]
