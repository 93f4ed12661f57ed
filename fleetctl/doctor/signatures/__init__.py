"""What engines, libraries, systemd and the kernel log when something is wrong, and what to do: data."""

from __future__ import annotations

from typing import Any

from fleetctl.doctor.signatures import build, config, gpu, harmless, model, packages, service, system
from fleetctl.doctor.signatures.signature import Signature, Verdict

__all__ = ["ROWS", "SIGNATURES", "Signature", "Verdict", "by_id", "table"]

OF_PLANS = ("fatal", "likely", "harmless")
_ALL: list[Signature] = [
    *build.ABI,
    *build.ARCH,
    *packages.PKG,
    *config.CFG,
    *gpu.DRV,
    *gpu.GPU,
    *model.MODEL,
    *system.SYS,
    *system.NET,
    *service.SVC,
    *harmless.HARMLESS,
]
# What names the cause of what others report.
FIRST = ("net-certificate", "net-name", "net-proxy", "svc-terminated", "sys-headers", "sys-nccl-shm")
# What says least comes last among its kind.
GENERIC = (
    "abi-library",
    "abi-undefined-symbol",
    "gpu-driver-error",
    "gpu-xid",
    "pkg-missing-module",
    "svc-command",
)


def _rank(id: str, verdict: str, consequence: bool) -> tuple[bool, ...]:
    return consequence, id not in FIRST, verdict != "fatal", id in GENERIC


# The first that matches a line counts: causes before consequences, certain ones before likely ones.
SIGNATURES: list[Signature] = sorted(_ALL, key=lambda one: _rank(one.id, one.verdict, one.consequence))

# The same as a log's reader and plans take them: one a pattern.
ROWS: list[dict[str, Any]] = sorted(
    (row for one in SIGNATURES for row in one.rows()),
    key=lambda row: _rank(row["id"], row["verdict"], row.get("consequence", False)),
)

by_id: dict[str, Signature] = {signature.id: signature for signature in SIGNATURES}


def table() -> list[dict[str, Any]]:
    """The signatures as a plan's ``signatures``: all that a swap's fail-fast can use."""
    return [dict(row) for row in ROWS if row["verdict"] in OF_PLANS]
