"""ARCH: GPU code, and the compilers that make it, against the cards that are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fleetctl.doctor import flashinfer
from fleetctl.doctor.finding import Remedy, Severity
from fleetctl.doctor.known import at, mapping, text
from fleetctl.doctor.rule import Context, Found, rule
from fleetctl.doctor.stack import (
    KERNELS,
    capabilities,
    engine,
    first,
    is_essential,
    older,
    titled,
    torch,
    view,
)
from fleetctl.doctor.toolkit import (
    CUDA_OF_CARD,
    TRITON_PTXAS,
    cuda_of_torch,
    knows,
    newer_toolkits,
    nvcc,
    variable,
)
from fleetctl.environment.gpucode import Capability, named, runs_by
from fleetctl.environment.stacks import is_toolkit
from fleetctl.environment.view import Entry, View, numbers

GATE = "12.9"
GATE_LIFTED = "0.7.2"
SMEM_FIXED = "0.5.11"
TORCH_KERNELS = "libtorch_cuda.so"
# Libraries of sgl_kernel for some cards alone: the one in sm90/ is loaded on SM 9.0, the one in sm100/ on all others
# (load_utils.py); flash_ops is FlashAttention 3, for SM 8.x and 9.0; flashmla_ops is for SM 9.0 and 10.x; mscclpp
# comes with PTX and serves collectives alone. Those of other packages are known by their names.
FOR_CARDS: Mapping[str, tuple[int, ...]] = {
    "sgl_kernel/sm90/": (9,),
    "sgl_kernel/sm100/": (7, 8, 10, 11, 12),
    "sgl_kernel/flash_ops": (),
    "sgl_kernel/flashmla_ops": (),
    "mscclpp": (),
    "deep_gemm": (),
    "deep_ep": (),
    "flash_attn_3": (),
    "_vllm_fa3": (),
    "_flashmla": (),
}
# Cards that public reports name as without code although machine code of their major is there.
REPORTED: Mapping[str, tuple[tuple[str, str], tuple[Capability, ...]]] = {
    "sglang-kernel": (("0.4.6", "0.4.8"), ((8, 6),)),
}
TORCH_OF_CARD: Mapping[Capability, str] = {
    (10, 0): "cu128",
    (10, 3): "cu129",
    (11, 0): "cu130",
    (12, 0): "cu128",
    (12, 1): "cu130",
}


@rule(
    "arch-per-op-gap",
    "error",
    reason="Machine code runs on its own major from its minor on, with the suffix a on one capability alone; PTX on "
    "any later card. A library without either for a card fails at its first kernel, whatever the wheel's other "
    "libraries hold.",
    source="CUDA Programming Guide, Compute Capabilities; sglang#38515, #24302, #7249; pytorch#149845; vllm#19906; "
    "MEDS_EIC_AR#163",
)
def gpu_code(context: Context) -> Iterator[Found]:
    here = view(context)
    if here is None:
        return
    for owner, entries in here.by_owner.items():
        holding = [entry for entry in entries if entry["gpu"] and not is_toolkit(owner)]
        for card, name in capabilities(context).items():
            without = [one for one in holding if _is_for(one, card) and not runs_by(one["gpu"], card)]
            if without:
                yield _without_code(here, owner, without, len(holding), card, name)
            elif card in _reported(here, owner):
                yield _reported_gap(here, owner, card, name)


def _without_code(
    here: View, owner: str, without: list[Entry], holding: int, card: Capability, name: str
) -> Found:
    what = f"{titled(here, owner)} holds no code for {named(card)}"
    files = [here.inside(one["path"]) for one in without]
    if len(files) < holding:
        what += f" in {first(files, 2)}"
    lines = [f"{here.inside(one['path'])}: {first(sorted(one['gpu']), 12)}" for one in without[:4]]
    if owner == "torch":
        tag = TORCH_OF_CARD.get(card)
        remedy = Remedy(
            f"a torch whose build has the architecture{f': {tag} or later' if tag else ''}, with all that is built "
            "against it"
        )
    else:
        remedy = Remedy(f"a build of {owner} with that architecture, or only cards that it has code for")
    whole = owner != "torch" or any(path.endswith(TORCH_KERNELS) for path in files)
    severity: Severity = "error" if is_essential(owner) and whole else "info"
    return Found(what, files[0], [*lines, name], remedy, severity)


def _reported(here: View, owner: str) -> tuple[Capability, ...]:
    between, cards = REPORTED.get(owner, (("0", "0"), ()))
    version = here.versions.get(owner)
    return cards if not older(version, between[0]) and older(version, between[1]) else ()


def _reported_gap(here: View, owner: str, card: Capability, name: str) -> Found:
    what = f"{titled(here, owner)} is reported to lack kernels (RMSNorm) for {named(card)}"
    remedy = Remedy(f"only cards of another capability for this service, or another build of {owner}")
    return Found(what, owner, ["sglang#38515", name], remedy, "warning")


@rule(
    "arch-ptx-toolchain",
    "warning",
    reason="The driver compiles PTX for a card that has no machine code in a library, and refuses PTX of a toolkit "
    "newer than itself.",
    source="vllm#28305, #31700 (provided PTX was compiled with an unsupported toolchain); CUDA Compatibility, "
    "Minor Version Compatibility: PTX is excluded",
)
def ptx_of_newer_toolkit(context: Context) -> Iterator[Found]:
    here, newest = view(context), at(context.facts, "driver", "cuda")
    made = cuda_of_torch(torch(here)) if here else None
    if here is None or not newest or not made or numbers(made) <= numbers(str(newest)):
        return
    for owner, entries in here.by_owner.items():
        for card, name in capabilities(context).items():
            ptx = [one for one in entries if _is_for(one, card) and runs_by(one["gpu"], card) == {"ptx"}]
            if ptx and not is_toolkit(owner):
                what = f"{titled(here, owner)} has only PTX of CUDA {made} for {named(card)}, the driver takes {newest}"
                remedy = Remedy(
                    f"a driver for CUDA {made}, or a build of {owner} for CUDA {newest} or with {named(card)}"
                )
                yield Found(what, here.inside(ptx[0]["path"]), [name], remedy)


@rule(
    "arch-flashinfer-sm12x",
    "error",
    reason="FlashInfer builds nothing for SM 12.x with a CUDA before 12.9, takes nvcc's version before torch's, and "
    "then says that the card is too old (sm75).",
    source="flashinfer 0.6.8.post1, compilation_context.py and jit/cpp_ext.py; flashinfer#3674, #3675, PR 3633; "
    "vllm#50705; seen on the first hosts",
)
def flashinfer_gate(context: Context) -> Iterator[Found]:
    here = view(context)
    blackwell = {card: name for card, name in capabilities(context).items() if card[0] == 12}
    version = here.versions.get("flashinfer-python") if here else None
    if here is None or not blackwell or not older(version, GATE_LIFTED):
        return
    found, path = nvcc(context)
    made = found or cuda_of_torch(torch(here))
    if not made or numbers(made) >= numbers(GATE) or flashinfer.names_its_architecture(context):
        return
    which = f"nvcc {found} of {path}" if found else f"no nvcc is found, so torch's CUDA counts: {made}"
    what = f"the CUDA toolkit ({made}) is older than FlashInfer {version} wants for SM 12.x ({GATE})"
    card, name = next(iter(blackwell.items()))
    lines = [
        which,
        f"{name} is {named(card)}: the card is not too old",
        *flashinfer.other_parts(context.service),
    ]
    yield from _gate_found(context, here, what, path or "torch", lines)


def _gate_found(context: Context, here: View, what: str, where: str, lines: list[str]) -> Iterator[Found]:
    using = engine(context, here)
    avoid = flashinfer.avoiding(context) if using == "sglang" else {}
    newer = next(newer_toolkits(context, GATE), None)
    if using == "sglang" and not avoid and len(lines) == 2:
        return
    if newer:
        text = f"CUDA_HOME={newer[1]}, which has nvcc {newer[0]}"
        text += f"; or {flashinfer.flags(avoid)}" if avoid else ""
        yield Found(what, where, lines, Remedy(text, variables={"CUDA_HOME": newer[1]}))
    elif using == "vllm":
        text = f"CUDA toolkit {GATE} or later as CUDA_HOME, or VLLM_USE_FLASHINFER_SAMPLER=0"
        remedy = Remedy(text, variables={"VLLM_USE_FLASHINFER_SAMPLER": "0"})
        yield Found(what, where, lines, remedy, "warning")
    else:
        text = (
            f"CUDA toolkit {GATE} or later as CUDA_HOME, or {flashinfer.flags(avoid or flashinfer.WITHOUT)}"
        )
        severity: Severity = "error" if using == "sglang" else "info"
        yield Found(what, where, lines, Remedy(text, arguments=avoid), severity)


@rule(
    "arch-nvcc-card",
    "warning",
    reason="FlashInfer and other packages compile kernels on the host; an nvcc that does not know the card cannot.",
    source="CUDA Toolkit Release Notes (first support of each capability); flashinfer#1657, cuda-samples#339",
)
def nvcc_knows_card(context: Context) -> Iterator[Found]:
    here = view(context)
    found, path = nvcc(context)
    if here is None or not found or "flashinfer-python" not in here.versions:
        return
    for card, name in capabilities(context).items():
        gated = card[0] == 12 and older(here.versions["flashinfer-python"], GATE_LIFTED)
        if knows(found, card) or gated:
            continue
        needed = CUDA_OF_CARD[card]
        newer = next(newer_toolkits(context, needed), None)
        text = f"CUDA toolkit {needed} or later" + (f": CUDA_HOME={newer[1]}" if newer else " as CUDA_HOME")
        remedy = Remedy(text, variables={"CUDA_HOME": newer[1]} if newer else {})
        yield Found(f"nvcc {found} does not know {named(card)}", path, [name], remedy)


@rule(
    "arch-ptxas",
    "error",
    reason="Triton assembles its kernels with the ptxas that it brings; one older than the card refuses it.",
    source="triton#8539, #10331; gpustack#4372; CUDA Toolkit Release Notes",
)
def ptxas(context: Context) -> Iterator[Found]:
    here = view(context)
    triton = next((name for name in ("triton", "pytorch-triton") if here and name in here.versions), None)
    if here is None or triton is None:
        return
    for card, name in capabilities(context).items():
        blackwell = card[0] >= 10
        chosen = variable(context, "TRITON_PTXAS_PATH")
        if blackwell:
            chosen = variable(context, "TRITON_PTXAS_BLACKWELL_PATH") or chosen
        version, path = _ptxas(context, here, here.versions[triton], blackwell)
        if chosen or knows(version, card):
            continue
        needed = CUDA_OF_CARD[card]
        what = f"the ptxas {version} that {titled(here, triton)} brings does not know {named(card)}"
        yield Found(
            what, path, [f"{named(card)} needs ptxas {needed}", name], _ptxas_remedy(context, here, card)
        )


def _ptxas(context: Context, here: View, triton: str, blackwell: bool) -> tuple[str | None, str]:
    """The version and path of the ptxas that Triton takes: as read from the file, else by Triton's version."""
    files = mapping(context.facts.get("ptxas"))
    own = {path: version for path, version in files.items() if _is_of(path, here.path) and "/triton/" in path}
    for last in ("ptxas-blackwell", "ptxas") if blackwell else ("ptxas",):
        for path, version in own.items():
            if path.endswith(f"/{last}") and version:
                return str(version), here.inside(path.removeprefix(f"{here.path}/"))
    oldest = min(TRITON_PTXAS)
    brought = TRITON_PTXAS.get(max(oldest, numbers(triton)[:2]), (None, None))
    return (brought[1] or brought[0] if blackwell else brought[0]), "triton"


def _is_of(path: str, environment: str) -> bool:
    return not environment or path.startswith(f"{environment.rstrip('/')}/")


def _ptxas_remedy(context: Context, here: View, card: Capability) -> Remedy:
    needed = CUDA_OF_CARD[card]
    newer = next(newer_toolkits(context, needed), None)
    where = f"{newer[1]}/bin/ptxas" if newer else f"the ptxas of CUDA {needed} or later"
    text = f"triton 3.6.0 or later (it brings a second ptxas), or TRITON_PTXAS_PATH to {where}"
    names = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")
    variables = dict.fromkeys(names, where) if newer else {}
    return Remedy(text, variables=variables, packages=() if newer else ("triton>=3.6.0",))


@rule(
    "arch-triton-smem",
    "warning",
    reason="The block sizes of SGLang's Triton attention before 0.5.11 are made for Hopper's shared memory; SM 12.x "
    "has 99 KiB a block.",
    source="sglang#14322, PR 17908; ktransformers#1570; sglang 0.5.11, triton_ops/extend_attention.py",
)
def triton_shared_memory(context: Context) -> Iterator[Found]:
    here = view(context)
    small = {card: name for card, name in capabilities(context).items() if card[0] == 12}
    if here is None or not small or engine(context, here) != "sglang":
        return
    version = here.versions["sglang"]
    service = context.service
    backends = {text(service, name) for name in flashinfer.ATTENTION} if service else set()
    if not older(version, SMEM_FIXED) or (service and "triton" not in backends):
        return
    remedy = Remedy(
        f"sglang {SMEM_FIXED} or later, or a patch set for its Triton kernels; or --attention-backend flashinfer, "
        f"which needs a CUDA toolkit of {GATE} or later",
        packages=(f"sglang=={SMEM_FIXED}",),
    )
    what = f"Triton attention of sglang {version} asks for more shared memory than a block has on SM 12.x"
    lines = ["SM 12.x: 101376 bytes; asked: 106496 and more", next(iter(small.values()))]
    yield Found(what, "sglang", lines, remedy, "error" if service else "warning")


@rule(
    "arch-flashinfer-nvcc",
    "warning",
    reason="FlashInfer compiles its kernels at their first use, unless flashinfer-jit-cache brings them.",
    source="sglang#5002; flashinfer#1781, #1919; vllm#49497 (Could not find nvcc)",
)
def flashinfer_without_nvcc(context: Context) -> Iterator[Found]:
    here, service = view(context), context.service
    listed = context.facts.get("toolkits")
    if here is None or service is None or not isinstance(listed, list) or not capabilities(context):
        return
    found, _ = nvcc(context)
    named_home = variable(context, "CUDA_HOME") or variable(context, "CUDA_PATH")
    brought = {"flashinfer-jit-cache", "nvidia-cuda-nvcc", "nvidia-cuda-nvcc-cu12"} & set(here.versions)
    uses = any(
        text(service, name).startswith("flashinfer") for name in (*flashinfer.ATTENTION, "sampling-backend")
    )
    if found or named_home or brought or not uses or "flashinfer-python" not in here.versions:
        return
    avoid = flashinfer.avoiding(context)
    remedy = Remedy(
        f"a CUDA toolkit with nvcc, the flashinfer-jit-cache of this version, or {flashinfer.flags(avoid)}",
        arguments=avoid,
        packages=(f"flashinfer-jit-cache=={here.versions['flashinfer-python']}",),
    )
    yield Found(
        "FlashInfer is chosen, and the host has no nvcc to build its kernels with", "nvcc", (), remedy
    )


@rule(
    "arch-ninja",
    "error",
    reason="SGLang starts with kernels that FlashInfer compiles at their first use, by ninja, unless "
    "flashinfer-jit-cache brings them. The package ninja of another place on the module path is importable, but its "
    "program is not on the service's PATH.",
    source="flashinfer 0.6.8.post1, jit/cpp_ext.py (run_ninja); seen on an H200 host",
)
def without_ninja(context: Context) -> Iterator[Found]:
    here = view(context)
    if (
        here is None
        or context.service is None
        or engine(context, here) != "sglang"
        or not capabilities(context)
    ):
        return
    looked = mapping(context.facts.get("ninja"))
    compiles = "flashinfer-python" in here.versions and "flashinfer-jit-cache" not in here.versions
    if not compiles or looked.get(here.path, "") is not None or variable(context, "PATH"):
        return
    remedy = Remedy("ninja in the environment, or on the host (Debian: ninja-build)", packages=("ninja",))
    yield Found("the service finds no ninja to compile its kernels with", "ninja", (), remedy)


@rule(
    "arch-kernel-variant",
    "error",
    reason="sgl_kernel loads the library in sm90/ on SM 9.0 and the one in sm100/ on every other card; where that "
    "folder is not there it finds no operators.",
    source="sglang-kernel 0.4.2, sgl_kernel/load_utils.py",
)
def kernel_variant(context: Context) -> Iterator[Found]:
    here = view(context)
    owner = next((name for name in KERNELS if here and name in here.versions), None)
    if here is None or owner is None:
        return
    paths = [here.inside(one["path"]) for one in here.by_owner.get(owner, ())]
    folders = {
        path.split("/")[1] for path in paths if path.startswith("sgl_kernel/sm") and "common_ops" in path
    }
    if not folders or any(path.startswith("sgl_kernel/common_ops") for path in paths):
        return
    for card, name in capabilities(context).items():
        folder = "sm90" if card == (9, 0) else "sm100"
        if folder not in folders:
            what = f"{titled(here, owner)} has no sgl_kernel/{folder}/common_ops, which {named(card)} loads"
            remedy = Remedy(f"install {owner} again from its wheel")
            yield Found(what, f"sgl_kernel/{folder}", [f"there: {first(sorted(folders))}", name], remedy)


def _is_for(entry: Entry, card: Capability) -> bool:
    """Whether the library is made for cards of this major; of most it is not known, and they are for all."""
    for part, majors in FOR_CARDS.items():
        if part in f"{entry['path']}":
            return card[0] in majors
    return True
