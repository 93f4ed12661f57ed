"""ABI: libraries that do not load beside this torch, on this host, with this Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fleetctl.abi.cuda import cuda_major, is_driver
from fleetctl.abi.cxx import cxx11
from fleetctl.abi.elf import Library
from fleetctl.doctor.finding import Remedy
from fleetctl.doctor.known import at
from fleetctl.doctor.rule import Context, Found, rule
from fleetctl.doctor.stack import EVIDENCE, first, libraries, pinned, severity_of, titled, torch, view
from fleetctl.environment.stacks import (
    KERNEL_TORCH,
    SYSTEM_PACKAGES,
    is_nvidia_library,
    is_toolkit,
    is_torch_library,
    is_torch_symbol,
    nvidia_package,
)
from fleetctl.environment.view import Entry, View

TOLD = frozenset(["libnuma.so.1", "libsndfile.so.1"])  # by the SYS rules, where the facts say so
TAGS = {11: "cu118", 12: "cu128", 13: "cu130"}
LOADER = "ld.so(8); the libraries' own NEEDED and symbol tables"
SYSTEM = ("glibc", "GLIBC"), ("glibcxx", "GLIBCXX")


@rule(
    "abi-cuda-major",
    "error",
    reason="A library built for one CUDA major finds neither its libraries nor its symbols beside a torch of another, "
    "and no search path bridges that.",
    source="read in the released wheels (sglang-kernel 0.4.2); sglang-omni#620; seen on the first hosts",
)
def cuda_major_of_torch(context: Context) -> Iterator[Found]:
    here = view(context)
    if here is None or here.cuda is None:
        return
    for owner, majors in here.wrong_majors(here.cuda).items():
        entries = [entry for entry in here.by_owner[owner] if entry.get("cuda") in majors]
        unloadable = [one for one in entries if _other_majors(one, here.cuda)]
        if is_toolkit(owner) or not (unloadable or here.needs_torch(owner)):
            continue
        wants = max(majors)
        what = f"{titled(here, owner)} is built for CUDA {wants}, torch {torch(here)} brings CUDA {here.cuda}"
        lines = [f"{here.inside(one['path'])} wants {first(_of_major(one, wants))}" for one in entries]
        lines += [f"not found: {first(_other_majors(one, here.cuda))}" for one in unloadable[:1]]
        tag = TAGS.get(wants, f"cu{wants}0")
        remedy = Remedy(
            f"take torch, triton, torchvision, nvidia-* and {owner.removeprefix('unowned ')} from one CUDA tag: all of "
            f"{tag}, or a build of {owner.removeprefix('unowned ')} for CUDA {here.cuda} (`fleetctl env overlay` moves "
            "the whole stack)"
        )
        where = here.inside(entries[0]["path"])
        yield Found(what, where, lines[:EVIDENCE], remedy, severity_of(owner, here.needs_torch(owner)))


@rule(
    "abi-cuda-library",
    "error",
    reason="A library of the CUDA toolkit that nothing gives keeps whatever needs it from loading.",
    source="sglang#5094, #10951, #16052; torch's Requires-Dist for the distributions' names",
)
def cuda_library(context: Context) -> Iterator[Found]:
    here = view(context)
    if here is None:
        return
    for owner, lost, where in _lost(here):
        names = [name for name in lost if _is_same_cuda(name, here)]
        if not names:
            continue
        packages = sorted({pinned(here, each) for name in names if (each := _package(name, here))})
        there = [name for name in packages if name.partition("==")[0] in here.versions]
        verb = "install again" if there else "install"
        text = f"{verb} {', '.join(packages) or 'what gives ' + first(names)} in this environment"
        if not there:
            text += "; import torch before the package, which loads its libraries"
        what = f"{titled(here, owner)} does not load: {first(names)} is in no place that the loader searches"
        yield Found(
            what,
            where,
            [f"{where} wants {first(names, 6)}"],
            Remedy(text, packages=(*packages,)),
            severity_of(owner),
        )


@rule(
    "abi-torch-library",
    "error",
    reason="An extension of torch that finds no libtorch or libc10 does not load.",
    source=LOADER,
)
def torch_library(context: Context) -> Iterator[Found]:
    here = view(context)
    if here is None:
        return
    for owner, lost, where in _lost(here):
        names = [name for name in lost if is_torch_library(name)]
        if names:
            why = f"torch {torch(here)} has none" if torch(here) else "no torch is there"
            what = f"{titled(here, owner)} does not load: it wants {first(names)}, {why}"
            wanted = pinned(here, "torch", _torch_of(here, owner))
            remedy = Remedy(f"install the torch that {owner} was built with ({wanted})", packages=(wanted,))
            yield Found(what, where, [f"{where} wants {first(names, 6)}"], remedy, severity_of(owner))


@rule(
    "abi-system-library",
    "error",
    reason="Some libraries come from the host's system, and no wheel brings them.",
    source="odysseus#6257 (libnuma); read in the released wheels; " + LOADER,
)
def system_library(context: Context) -> Iterator[Found]:
    here = view(context)
    if here is None:
        return
    for owner, lost, where in _lost(here):
        names = [name for name in lost if not (is_nvidia_library(name) or is_torch_library(name))]
        names = [
            name for name in names if at(context.facts, "libraries", name) is not False or name not in TOLD
        ]
        if names:
            known = [SYSTEM_PACKAGES[name] for name in names if name in SYSTEM_PACKAGES]
            commands = (f"apt-get install {' '.join(known)}",) if known else ()
            text = f"install {', '.join(known) or 'the package that has ' + first(names)} on the host"
            what = f"{titled(here, owner)} does not load: the host has no {first(names)}"
            yield Found(
                what,
                where,
                [f"{where} wants {first(names, 6)}"],
                Remedy(text, commands=commands),
                severity_of(owner),
            )


@rule(
    "abi-torch-symbol",
    "error",
    reason="libtorch keeps no stable C++ ABI: an extension built against another version misses symbols.",
    source="sglang#29317, #30562, #7033; read in the released wheels (which kernel was built with which torch)",
)
def torch_symbol(context: Context) -> Iterator[Found]:
    here = view(context)
    if here is None:
        return
    for owner, entry, symbols in _undefined(here):
        lost = [name for name in symbols if is_torch_symbol(name)]
        if not lost or _is_other_string_abi(here, lost):
            continue
        built = _torch_of(here, owner)
        what = f"{titled(here, owner)} was built against another torch than {torch(here) or 'the one here'}"
        text = (
            f"install the torch that {owner} was built with{f' ({built})' if built else ''}, or the build of "
        )
        text += f"{owner} for this torch; the GPU's architecture is not the cause"
        packages = (f"torch=={built}",) if built and built != (torch(here) or "").partition("+")[0] else ()
        lines = [f"undefined: {first(lost)}", *_built_with(owner, here, built)]
        yield Found(
            what, here.inside(entry["path"]), lines, Remedy(text, packages=packages), severity_of(owner)
        )


@rule(
    "abi-cxx11",
    "error",
    reason="libstdc++ has two string ABIs with different symbols: both sides must be compiled for the same one.",
    source="sglang#5100; GCC manual, Dual ABI",
)
def string_abi(context: Context) -> Iterator[Found]:
    here = view(context)
    if here is None:
        return
    for owner, entry, symbols in _undefined(here):
        lost = [name for name in symbols if is_torch_symbol(name)]
        if not _is_other_string_abi(here, lost):
            continue
        old, new = "the old C++ string ABI", "the C++11 ABI"
        theirs, ours = (new, old) if here.bom["abi"]["cxx11"] is False else (old, new)
        what = f"{titled(here, owner)} was built with {theirs}, torch {torch(here)} here uses {ours}"
        remedy = Remedy(f"install a build of {owner} with {ours} of this torch")
        yield Found(
            what, here.inside(entry["path"]), [f"undefined: {first(lost)}"], remedy, severity_of(owner)
        )


@rule(
    "abi-undefined-symbol",
    "error",
    reason="A symbol that none of the loaded libraries gives: the two are from versions that do not fit.",
    source=LOADER,
)
def undefined_symbol(context: Context) -> Iterator[Found]:
    here = view(context)
    if here is None:
        return
    for owner, entry, symbols in _undefined(here):
        lost = [name for name in symbols if not is_torch_symbol(name)]
        if len(lost) < len(symbols) or not lost or _wishes(entry):
            continue
        what = f"{titled(here, owner)} misses {entry.get('undefined_count') or len(lost)} symbols: {first(lost, 2)}"
        remedy = Remedy(f"install {owner} and the libraries that it needs from builds of one version")
        needs = [f"it needs {first(entry['needed'], 6)}"]
        yield Found(what, here.inside(entry["path"]), needs, remedy, severity_of(owner))


def _wishes(entry: Entry) -> list[str]:
    """The libraries that an entry wants and nothing gives, besides the driver's."""
    return [name for name in entry["missing"] if not is_driver(name)]


def _lost(here: View) -> Iterator[tuple[str, list[str], str]]:
    """Owners, the libraries that nothing gives them, and the first file that wants one."""
    for owner, entries in libraries(here):
        lost = dict.fromkeys(name for entry in entries for name in _wishes(entry))
        if lost:
            yield owner, list(lost), here.inside(next(one["path"] for one in entries if _wishes(one)))


def _other_majors(entry: Entry, major: int) -> list[str]:
    return [name for name in entry["missing"] if cuda_major(name) not in (None, major)]


def _of_major(entry: Entry, major: int) -> list[str]:
    return [name for name in entry["needed"] if cuda_major(name) == major] or [
        entry["path"].rpartition("/")[2]
    ]


def _is_same_cuda(soname: str, here: View) -> bool:
    """Whether it is NVIDIA's, and not of another CUDA major than torch's (that is told as ``abi-cuda-major``)."""
    return is_nvidia_library(soname) and cuda_major(soname) in (None, here.cuda or cuda_major(soname))


def _package(soname: str, here: View) -> str | None:
    return nvidia_package(soname, cuda_major(soname) or here.cuda)


def _undefined(here: View) -> Iterator[tuple[str, Entry, list[str]]]:
    """Owners, the first of their libraries with undefined symbols, and these; not where torch's library is missing."""
    for owner, entries in libraries(here):
        for entry in entries:
            if entry["undefined"] and not any(map(is_torch_library, entry["missing"])):
                yield owner, entry, list(entry["undefined"])
                break


def _is_other_string_abi(here: View, symbols: Iterable[str]) -> bool:
    ours = here.bom.get("abi", {}).get("cxx11")
    theirs = cxx11(Library("", undefined=frozenset(symbols)))
    return theirs is not None and theirs != (True if ours is None else ours)


def _torch_of(here: View, owner: str) -> str:
    """The torch that a kernel package was built with; empty where that is not known."""
    return KERNEL_TORCH.get(owner, {}).get(here.versions.get(owner, ""), "")


def _built_with(owner: str, here: View, built: str) -> list[str]:
    return [f"{titled(here, owner)} was built with torch {built}, here is {torch(here)}"] if built else []
