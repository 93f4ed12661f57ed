"""SYS: libraries, limits and room of the host itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fleetctl.doctor.finding import Remedy
from fleetctl.doctor.known import GIB, MIB, at, gib, mapping, model, rows
from fleetctl.doctor.rule import Context, Found, Json, rule

FULL_BYTES = 64 * MIB
NEARLY_FULL = (5 * GIB, 0.02)
FEW_INODES = 1000
NO_INODE_LIMIT = {"btrfs", "zfs", "bcachefs", "tmpfs", "fuse", "nfs", "nfs4"}
SHM_TOTAL, SHM_FREE_A_RANK = GIB, 64 * MIB
NOFILE, MEMLOCK = 4096, 64 * MIB
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@rule(
    "sys-libnuma",
    "error",
    reason="sgl_kernel's library needs libnuma, which no wheel brings.",
    source="odysseus#6257; NEEDED of sglang-kernel 0.4.2",
    remedy=Remedy("apt-get install libnuma1: the system's libnuma", commands=("apt-get install libnuma1",)),
)
def libnuma(context: Context) -> Iterator[Found]:
    if at(context.facts, "libraries", "libnuma.so.1") is not False:
        return
    service = context.service
    libraries = rows(context.bom or {}, "extensions")
    needing = [str(one.get("path")) for one in libraries if "libnuma.so.1" in (one.get("needed") or [])]
    if needing or (context.bom is None and service is not None and service.engine == "sglang"):
        seen = ["libnuma.so.1 is not in the loader's cache", *(f"{path} needs it" for path in needing[:2])]
        yield Found("the system library libnuma is missing", "libnuma.so.1", seen)


@rule(
    "sys-libsndfile",
    "error",
    reason="soundfile without libsndfile of its own loads the system's; SGLang imports soundfile at every start.",
    source="python-soundfile's README; read in the released wheels",
    remedy=Remedy(
        "install libsndfile, or soundfile's wheel for this platform, which brings it",
        commands=("apt-get install libsndfile1",),
    ),
)
def libsndfile(context: Context) -> Iterator[Found]:
    found = [row for row in rows(context.bom or {}, "distributions") if row.get("name") == "soundfile"]
    if not found or at(context.facts, "libraries", "libsndfile.so.1") is not False:
        return
    imports = found[0].get("imports")
    if isinstance(imports, list) and imports and "_soundfile_data" not in imports:
        seen = ["soundfile brings no _soundfile_data", "libsndfile.so.1 is not in the loader's cache"]
        yield Found("neither soundfile nor the system has libsndfile", "libsndfile.so.1", seen)


@rule(
    "sys-limits",
    "warning",
    reason="Every request and every shard is an open file, and pinned buffers are locked memory.",
    source="SGLang sets RLIMIT_NOFILE at start and warns where it may not; NCCL's documentation on memlock",
    remedy="LimitNOFILE=1048576 and LimitMEMLOCK=infinity in the unit (fleetctl's templates have both)",
)
def limits(context: Context) -> Iterator[Found]:
    service = context.service
    wanted = [service.unit] if service else []
    for unit in wanted:
        said = mapping(at(context.facts, "limits", unit))
        files, memory = _limit(said.get("LimitNOFILE")), _limit(said.get("LimitMEMLOCK"))
        if files is not None and files < NOFILE:
            yield Found(
                f"{unit} may open {files:.0f} files only", unit, [f"LimitNOFILE={said['LimitNOFILE']}"]
            )
        if memory is not None and memory < MEMLOCK and service and len(service.gpus) > 1:
            seen = [f"LimitMEMLOCK={said['LimitMEMLOCK']}"]
            yield Found(f"{unit} may lock {gib(memory)} of memory only", unit, seen)


def _limit(value: object) -> float | None:
    """A limit of systemd as a number; None where it is not known, infinite where it has none."""
    text = str(value or "").strip()
    if text.lower() in ("infinity", "18446744073709551615", "unlimited"):
        return float("inf")
    found = re.fullmatch(r"(\d+)([KMGT]?)", text)
    return float(found[1]) * UNITS.get(found[2], 1) if found else None


@rule(
    "sys-shm-small",
    "error",
    reason="Ranks of one model exchange through /dev/shm, where NCCL and SGLang keep their buffers.",
    source="NCCL's troubleshooting: shared memory; containers start with 64 MiB",
    remedy=Remedy(
        "make /dev/shm larger, or free what lies there",
        commands=("mount -o remount,size=16G /dev/shm", "du -sh /dev/shm/*"),
    ),
)
def shm(context: Context) -> Iterator[Found]:
    service = context.service
    total, free = at(context.facts, "shm", "total_bytes"), at(context.facts, "shm", "free_bytes")
    if service is None or len(service.gpus) < 2 or not isinstance(total, int) or not isinstance(free, int):
        return
    needed = SHM_FREE_A_RANK * len(service.gpus)
    if free < needed:
        seen = [f"{gib(free)} of {gib(total)} free", f"{len(service.gpus)} ranks"]
        yield Found(f"/dev/shm has {gib(free)} free for {len(service.gpus)} ranks", "/dev/shm", seen)
    elif total < SHM_TOTAL:
        yield Found(f"/dev/shm is small: {gib(total)}", "/dev/shm", [f"{gib(free)} free"], severity="warning")


@rule(
    "sys-memory-small",
    "warning",
    reason="Weights pass through the host's memory; where it is short, loading crawls or the kernel kills a rank.",
    source="sglang#18421: a scheduler killed while it loaded; case svc-scheduler-dead",
    remedy="more memory, less of it in use (copies in /dev/shm, other services), or loading without parallel threads",
)
def memory(context: Context) -> Iterator[Found]:
    service, available = context.service, at(context.facts, "memory", "available")
    if service is None or not isinstance(available, int) or not service.gpus:
        return
    weights = model(context, service.model).get("bytes")
    if not isinstance(weights, int) or model(context, service.model).get("fs") in ("tmpfs", "ramfs"):
        return
    shard = min(weights, 5 * GIB) * len(service.gpus)
    if weights > GIB and available < shard:
        seen = [f"available: {gib(available)}", f"the model: {gib(weights)}", f"ranks: {len(service.gpus)}"]
        yield Found(f"{gib(available)} of memory are available to load {gib(weights)}", "memory", seen)


@rule(
    "sys-disk-full",
    "error",
    reason="What is compiled, logged and built is written to disks; a full one fails in odd places.",
    source="signature sys-disk-full",
    remedy=Remedy(
        "free some space: caches under ~/.cache and ~/.triton, old environments (`fleetctl env prune`)",
        commands=("du -xh --max-depth=2 / | sort -h | tail",),
    ),
)
def disk(context: Context) -> Iterator[Found]:
    for one in _disks(context.facts):
        mount = str(one.get("mount") or one.get("path"))
        free, total, inodes = one.get("free_bytes"), one.get("total_bytes"), one.get("free_inodes")
        if isinstance(free, int) and free < FULL_BYTES:
            yield Found(f"{mount} is full", mount, [f"{gib(free)} free of {gib(total or 0)}"])
        elif isinstance(inodes, int) and inodes < FEW_INODES and one.get("fstype") not in NO_INODE_LIMIT:
            yield Found(f"{mount} has no room for more files", mount, [f"{inodes} inodes free"])
        elif _is_nearly_full(free, total):
            seen = [f"{gib(free or 0)} free of {gib(total or 0)}"]
            yield Found(f"{mount} is nearly full", mount, seen, severity="warning")


def _is_nearly_full(free: object, total: object) -> bool:
    return (
        isinstance(free, int)
        and isinstance(total, int)
        and free < min(NEARLY_FULL[0], total * NEARLY_FULL[1])
    )


def _disks(facts: Json) -> Iterator[Json]:
    """Each file system once; one in memory is another rule's, and a read-only image is always full."""
    seen: set[str] = set()
    for one in rows(facts, "disks"):
        mount = str(one.get("mount") or one.get("path"))
        if mount not in seen and one.get("fstype") not in (
            "tmpfs",
            "ramfs",
            "devtmpfs",
            "squashfs",
            "iso9660",
        ):
            seen.add(mount)
            yield one


@rule(
    "sys-out-of-memory",
    "warning",
    reason="The kernel killed a process since the last boot because the host's memory (not a GPU's) was used up.",
    source="case svc-scheduler-dead; sglang#18421",
    remedy="more host memory or less of it in use (parallel weight loading, copies in /dev/shm); no GPU fault",
)
def out_of_memory(context: Context) -> Iterator[Found]:
    killed = rows(context.facts, "kernel_log", "oom")
    if killed:
        last = killed[-1]
        what = f"the kernel killed {last.get('name') or 'a process'} for lack of memory"
        often = f", {len(killed)} times since boot" if len(killed) > 1 else ""
        yield Found(what + often, "kernel log", [str(one.get("line")) for one in killed[-3:]])


@rule(
    "sys-swap",
    "warning",
    reason="A host that swaps moves weights and pinned buffers to a disk, and every request waits for it.",
    source="memory.available and swap_total of the facts",
    remedy=Remedy("free memory; then empty the swap", commands=("swapoff -a && swapon -a",)),
)
def swap(context: Context) -> Iterator[Found]:
    known = mapping(context.facts.get("memory"))
    total, available, swapping = known.get("total"), known.get("available"), known.get("swap_total")
    if not (isinstance(total, int) and isinstance(available, int) and isinstance(swapping, int)):
        return
    if swapping and available < total * 0.03:
        seen = [f"{gib(available)} of {gib(total)} available", f"swap: {gib(swapping)}"]
        yield Found("memory is used up, and the host has swap to go on with, slowly", "memory", seen)
