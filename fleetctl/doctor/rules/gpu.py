"""GPU: cards that are dead, ill, taken, not there, or cannot talk to each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fleetctl.doctor.finding import Remedy, Severity
from fleetctl.doctor.known import at, bus, capability, cards, listed, mapping, rows
from fleetctl.doctor.rule import Context, Found, Json, ServiceView, rule
from fleetctl.doctor.xid import XIDS, Xid

HELD_MIB = 512
HOT_C = 88
HANGING_MAJOR = 12
SMI = "nvidia-smi, `--help-query-gpu`"


@rule(
    "gpu-lost",
    "error",
    reason="A card that does not answer cannot serve, and a query of all cards may fail with it.",
    source="seen on the first hosts: GPU 1 died after a Triton crash; nvidia-smi's answers, recorded",
    remedy=Remedy(
        "give the slot another GPU, and reboot the host to get the card back; where it does not come back, check "
        "power and seating, then replace it",
        commands=("journalctl -k -b | grep -iE 'xid|nvrm'", "reboot"),
    ),
)
def lost(context: Context) -> Iterator[Found]:
    for card in cards(context):
        if card.get("state") in ("lost", "error"):
            said = [str(card["said"])] if card.get("said") else []
            yield Found(f"GPU {card.get('index')} does not answer", _where(card), said)


@rule(
    "gpu-missing",
    "error",
    reason="A slot's GPUs are given by index; an index that is not there starts on no card, or on another one.",
    source="CUDA_VISIBLE_DEVICES: devices behind an invalid index are invisible",
    remedy="correct the slot's gpus in the inventory, or bring the card back",
)
def missing(context: Context) -> Iterator[Found]:
    service, there = context.service, rows(context.facts, "gpus", "gpus")
    if (
        service is None
        or not service.gpus
        or "gpus" not in context.facts
        or at(context.facts, "gpus", "error")
    ):
        return
    indexes = [card.get("index") for card in there]
    for index in service.gpus:
        if index not in indexes:
            seen = f"nvidia-smi lists {len(there)}: {listed(indexes) or 'none'}"
            yield Found(f"there is no GPU {index}", f"GPU {index}", [seen])


@rule(
    "gpu-count",
    "error",
    reason="A host with fewer cards than its inventory says has lost one; the others may have moved up an index.",
    source="inventory: gpus.count",
    remedy=Remedy(
        "see the kernel log for the card that is gone; until it is back, correct gpus.count and the slots' indexes",
        commands=("lspci -d 10de:", "journalctl -k -b | grep -iE 'xid|nvrm'"),
    ),
)
def count(context: Context) -> Iterator[Found]:
    expected = at(context.facts, "inventory", "gpus", "count")
    there = rows(context.facts, "gpus", "gpus")
    if isinstance(expected, int) and there and len(there) < expected:
        seen = [f"nvidia-smi lists {listed(card.get('index') for card in there)}"]
        yield Found(f"{len(there)} GPUs are there, the inventory says {expected}", "nvidia-smi", seen)


@rule(
    "gpu-ecc",
    "error",
    reason="Uncorrectable memory errors corrupt what is computed, and end the process that meets them.",
    source="docs.nvidia.com/deploy/dynamic-page-retirement, gpu-mem-error-mgmt",
    remedy=Remedy(
        "stop what runs on the card and reset it (the row is then remapped); replace it where errors come back",
        commands=("nvidia-smi --query-remapped-rows=gpu_bus_id,remapped_rows.pending --format=csv",),
    ),
)
def ecc(context: Context) -> Iterator[Found]:
    for card in cards(context):
        errors, retired = card.get("ecc_uncorrected"), card.get("retired_pages")
        if isinstance(errors, int) and errors > 0:
            seen = [f"uncorrected ECC errors since the last reset: {errors}", f"retired pages: {retired}"]
            yield Found(f"GPU {card.get('index')} has uncorrectable memory errors", _where(card), seen)


@rule(
    "gpu-xid",
    "warning",
    reason="The driver tells of a fault of a card, or of a program on it, by an Xid code in the kernel log.",
    source="docs.nvidia.com/deploy/xid-errors",
)
def xid(context: Context) -> Iterator[Found]:
    by_bus = {bus(card.get("bus_id")): card for card in rows(context.facts, "gpus", "gpus")}
    wanted = {bus(card.get("bus_id")) for card in cards(context)}
    told: dict[tuple[str, int], list[Json]] = {}
    for entry in rows(context.facts, "kernel_log", "xid"):
        if isinstance(code := entry.get("code"), int):
            told.setdefault((bus(entry.get("bus_id")), code), []).append(entry)
    for (place, code), entries in told.items():
        known = XIDS.get(code)
        if known is None or (context.service is not None and place not in wanted):
            continue
        card = by_bus.get(place, {})
        name = f"GPU {card['index']}" if "index" in card else f"the card at {place}"
        often = f", {len(entries)} times since boot" if len(entries) > 1 else ""
        yield Found(
            f"{name}: {known.what} (Xid {code}{often})",
            _where(card) if card else place,
            [str(entries[-1].get("line") or f"Xid {code} at {entries[-1].get('time')}")],
            Remedy(known.fix, commands=known.commands),
            _xid_severity(known, card),
        )


def _xid_severity(known: Xid, card: Json) -> Severity:
    """A card that answers and counts no error any more was reset since: its old Xid is history."""
    if known.severity == "error" and card.get("state") == "ok" and card.get("ecc_uncorrected") == 0:
        return "warning"
    return known.severity


@rule(
    "gpu-memory-held",
    "error",
    reason="A model needs nearly all of a card's memory; what a stranger holds of it is missing at start.",
    source="seen with sglang 0.5.11 on an H200 (failed starts keep GPU memory); vllm#55510, sglang#23627",
    remedy="stop that process (its whole control group), or give the slot another GPU",
)
def memory_held(context: Context) -> Iterator[Found]:
    service = context.service
    if service is None:
        return
    for card in cards(context):
        index, used = card.get("index"), card.get("memory_used_mib")
        apps = [app for app in rows(context.facts, "gpus", "apps") if app.get("gpu") == index]
        for app in apps:
            if not _is_ours(context, service, app):
                held = f"{app.get('used_mib')} MiB by pid {app.get('pid')} ({app.get('unit') or app.get('name')})"
                yield Found(
                    f"GPU {index} is in use by a process that is not the slot's", _where(card), [held]
                )
        if not apps and isinstance(used, int) and used > HELD_MIB and card.get("mig") != "Enabled":
            seen = [
                f"{used} MiB in use, and nvidia-smi lists no process: one that hangs, or one in a container"
            ]
            yield Found(f"{used} MiB of GPU {index} are held by nobody who can be seen", _where(card), seen)


def _is_ours(context: Context, service: ServiceView, app: Json) -> bool:
    """Whether a process belongs to what fills, or is to fill, a slot with this GPU."""
    units = {service.unit}
    for slot in mapping(context.facts.get("slots")).values():
        state = mapping(mapping(slot).get("state"))
        if app.get("gpu") in (state.get("gpus") or []):
            units.add(str(state.get("unit")))
    owner = mapping(mapping(context.facts.get("ports")).get(str(service.port)))
    return app.get("unit") in units or (owner.get("unit") or "") == app.get("unit")


@rule(
    "gpu-mig",
    "error",
    reason="A card split by MIG offers slices, which have indexes of their own; a slot names whole cards.",
    source="docs.nvidia.com/datacenter/tesla/mig-user-guide",
    remedy=Remedy(
        "turn MIG off on the card, or serve from another one", commands=("nvidia-smi -i INDEX -mig 0",)
    ),
)
def mig(context: Context) -> Iterator[Found]:
    for card in cards(context):
        if str(card.get("mig") or "").lower() == "enabled":
            severity: Severity = "error" if context.service else "info"
            yield Found(f"GPU {card.get('index')} is split by MIG", _where(card), severity=severity)


@rule(
    "gpu-hot",
    "warning",
    reason="Near its limit a card slows itself down, and above it it stops.",
    source=SMI,
    remedy="look at fans, air flow and the power limit (`nvidia-smi -q -d TEMPERATURE,PERFORMANCE`)",
)
def hot(context: Context) -> Iterator[Found]:
    for card in cards(context):
        degrees = card.get("temperature")
        if isinstance(degrees, int) and degrees >= HOT_C:
            yield Found(
                f"GPU {card.get('index')} is at {degrees} °C",
                _where(card),
                [f"power: {card.get('power_w')} W"],
            )


@rule(
    "gpu-mixed",
    "warning",
    reason="Ranks of one model wait for the slowest card, and the smallest one's memory bounds all.",
    source="SGLang: memory of all ranks is balanced against the least",
    remedy="give the slot cards of one kind",
)
def mixed(context: Context) -> Iterator[Found]:
    if context.service is None or len(context.service.gpus) < 2:
        return
    kinds = {(str(card.get("name")), capability(card)) for card in cards(context) if card.get("name")}
    if len(kinds) > 1:
        yield Found("the slot's GPUs are of several kinds", "slot", sorted(name for name, _ in kinds))


@rule(
    "gpu-nccl-p2p-hang",
    "warning",
    reason="Cards without NVLink exchange over PCIe; behind an IOMMU or ACS that direct path can hang at the first "
    "all_reduce, with no word in the log.",
    source="nccl#1999; rtx6kpro#15; vllm#33041",
    remedy=Remedy(
        "NCCL_P2P_DISABLE=1 and --disable-custom-all-reduce go through host memory; then look at IOMMU "
        "(iommu=pt or off) and ACS, and take both out again",
        arguments={"disable-custom-all-reduce": True},
        variables={"NCCL_P2P_DISABLE": "1"},
    ),
)
def peer_to_peer(context: Context) -> Iterator[Found]:
    service = context.service
    if service is None or len(service.gpus) < 2 or service.variables.get("NCCL_P2P_DISABLE", "0") != "0":
        return
    links = mapping(at(context.facts, "topology", "links"))
    pairs = [(a, b) for a in service.gpus for b in service.gpus if a < b]
    found = {f"{a}-{b}": str(links.get(f"{a}-{b}") or links.get(f"{b}-{a}") or "") for a, b in pairs}
    slow = {pair: link for pair, link in found.items() if link and not link.upper().startswith("NV")}
    if not slow:
        return
    iommu, acs = at(context.facts, "topology", "iommu"), at(context.facts, "topology", "acs")
    seen = [f"{pair}: {link}" for pair, link in slow.items()][:4]
    seen += [f"IOMMU: {_known(iommu)}", f"ACS: {_known(acs)}"]
    what = (
        f"GPUs {listed(service.gpus)} talk peer to peer over PCIe only ({listed(sorted(set(slow.values())))})"
    )
    yield Found(what, "slot", seen, severity=_p2p_severity(context, iommu, acs))


def _p2p_severity(context: Context, iommu: Any, acs: Any) -> Severity:
    """By evidence: SM 12.x cards behind an IOMMU or ACS are known to hang; with both off there is only a hint."""
    known = any((capability(card) or (0, 0))[0] == HANGING_MAJOR for card in cards(context))
    if known and (iommu is True or bool(acs)):
        return "error"
    return "info" if iommu is False and not acs else "warning"


def _known(value: Any) -> str:
    return (
        "not known" if value is None else "on" if value is True else "off" if value is False else str(value)
    )


def _where(card: Json) -> str:
    return f"GPU {card.get('index')}"
