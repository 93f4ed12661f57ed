"""Differences of the binary interface: what of B would not load, or not run, and does in A."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from fleetctl.environment.difference import Difference, Group, Step, listed
from fleetctl.environment.sides import Sides, public
from fleetctl.environment.spec import python_range
from fleetctl.environment.stacks import (
    SYSTEM_PACKAGES,
    cuda_of_tag,
    in_stack,
    is_nvidia_library,
    is_toolkit,
    is_torch_library,
    is_torch_symbol,
)
from fleetctl.environment.view import COPIED, Entry, View, dotted, runs_on
from fleetctl.words import counted


def abi_differences(sides: Sides) -> Iterator[Difference]:
    """Every difference of group ABI."""
    yield from _interpreter(sides)
    yield from _specified(sides)
    yield from _toolkit(sides)
    yield from _cxx11(sides)
    if not sides.b.is_specification:
        yield from _other_majors(sides)
        yield from _libraries(sides)
        yield from _symbols(sides)
        yield from _tags(sides)
    yield from _gpu_code(sides)
    yield from _glibc(sides)


def _interpreter(sides: Sides) -> Iterator[Difference]:
    a, b = sides.a, sides.b
    runs = [view.bom["python"].get("runs", True) for view in (a, b)]
    if runs[0] and not runs[1]:
        why = b.bom["python"].get("why") or "no reason is known"
        what = f"{sides.b_name}'s interpreter does not run, so nothing there does: {why}"
        yield _abi("abi-interpreter", "", what, [str(b.bom["python"].get("path", ""))], _rebuild(sides))
    if a.tag and b.tag and a.tag != b.tag:
        what = f"Python is {b.tag}, in {sides.a_name} {a.tag}: no extension of one loads in the other"
        yield _abi("abi-python", "", what, [], _rebuild(sides))
    if a.arch and b.arch and a.arch != b.arch:
        what = f"the machine is {b.arch}, {sides.a_name} is {a.arch}: no library of one loads on the other"
        yield _abi("abi-arch", "", what, [], _rebuild(sides))


def _specified(sides: Sides) -> Iterator[Difference]:
    """What a specification says of Python and of the ABI tag, against what is there."""
    a, b = sides.a, sides.b
    if not a.is_specification or b.is_specification:
        return
    version, wanted = b.bom["python"].get("version") or "", a.bom["python"].get("range")
    if version and wanted and not python_range(wanted).contains(version, prereleases=True):
        what = f"Python is {version}, {sides.a_name} is for {wanted}"
        yield _abi("abi-python", "", what, [], Step("rebuild", (), f"with a Python {wanted}"))
    here, tag = b.bom.get("abi", {}).get("tag"), a.bom.get("abi", {}).get("tag")
    lost = [part for part in (tag or "").split("-") if part and here and part not in here.split("-")]
    if lost:
        what = f"the ABI is {here}, {sides.a_name} wants {listed(lost)}"
        yield _abi("abi-tag", "", what, [f"wanted: {tag}"], Step("none", (), "see what brings each part"))


def _rebuild(sides: Sides) -> Step:
    return Step("rebuild", (), sides.rebuilt)


def _toolkit(sides: Sides) -> Iterator[Difference]:
    """torch's CUDA and version: one difference for the whole stack."""
    a, b = sides.a, sides.b
    if not (a.torch and b.torch):
        return
    tags = a.cuda_tag, b.cuda_tag
    if (tags[0] and tags[1] and tags[0] != tags[1]) or (a.cuda and b.cuda and a.cuda != b.cuda):
        here, there = (f"CUDA {_cuda(view)} ({view.torch})" for view in (b, a))
        what = (
            f"torch is built for {here}, in {sides.a_name} for {there}: what is built for one does not load "
            "beside the other"
        )
        yield _abi("abi-cuda", "torch", what, _stack_evidence(sides), sides.stack)
    if public(a.torch) != public(b.torch) and sides.version_differs("torch"):
        what = f"torch is {public(b.torch)}, in {sides.a_name} {public(a.torch)}: extensions are built for one of them"
        linked = [f"{owner} {reason}" for owner, reason in sides.unfit.items() if "linked" in reason]
        yield _abi("abi-torch", "torch", what, linked, sides.stack)


def _cuda(view: View) -> str:
    return cuda_of_tag(view.cuda_tag) if view.cuda_tag else str(view.cuda or "none")


def _stack_evidence(sides: Sides) -> list[str]:
    a, b = sides.a, sides.b
    stack = sides.stack
    lines = [
        f"{name}: {b.versions.get(name, 'not there')} here, {a.versions[name]} in {sides.a_name}"
        for name in stack.distributions
        if not is_toolkit(name) and name in a.versions and b.versions.get(name) != a.versions[name]
    ]
    coming, going = (
        [name for name in names if is_toolkit(name)] for names in (stack.distributions, stack.remove)
    )
    if coming or going:
        gone = f" in place of {listed(going, 4)}" if going else ""
        lines.append(f"of the toolkit: {listed(coming, 4)}{gone}")
    lost = [
        f"{owner} {reason}"
        for owner, reason in sides.unfit.items()
        if owner in stack.remove and not is_toolkit(owner)
    ]
    return [*lines, *(f"{line}, and {sides.a_name} has none to bring: it goes" for line in lost)]


def _cxx11(sides: Sides) -> Iterator[Difference]:
    flags = [view.bom.get("abi", {}).get("cxx11") for view in (sides.a, sides.b)]
    if None not in flags and flags[0] != flags[1]:
        old, new = "the old C++ string ABI", "the C++11 ABI"
        here, there = (new if flag else old for flag in (flags[1], flags[0]))
        what = f"torch is built with {here}, in {sides.a_name} with {there}: extensions find no symbol of it"
        yield _abi("abi-cxx11", "torch", what, [], sides.stack)


def _other_majors(sides: Sides) -> Iterator[Difference]:
    """Libraries that want another CUDA than B's own torch, where A is of one CUDA."""
    a, b = sides.a, sides.b
    for owner, majors in b.wrong_majors(b.cuda).items():
        if owner in a.by_owner and majors <= a.majors(owner) - {a.cuda}:
            continue
        if any(entry.get("missing") for entry in b.by_owner[owner]):
            continue  # told as what does not load
        wants = " and ".join(map(str, sorted(majors)))
        entries = [entry for entry in b.by_owner[owner] if entry.get("cuda") in majors]
        evidence = [f"{_file(b, entry)} wants {listed(_cuda_sonames(entry))}" for entry in entries]
        what = f"{_with_version(b, owner)} wants CUDA {wants}, the torch beside it is of CUDA {b.cuda}"
        yield _abi("abi-major", owner, what, evidence, _moved(sides, owner))


def _moved(sides: Sides, owner: str) -> Step:
    """The whole stack where the two toolkits differ or the owner is of it, else the owner alone."""
    if in_stack(owner) or owner in sides.unfit or sides.a.cuda != sides.b.cuda:
        return sides.stack_for(owner)
    return _restored(sides, owner)


def _restored(sides: Sides, owner: str) -> Step:
    if owner in sides.a.distributions:
        return sides.bring([owner], f"{owner} loads in {sides.a_name}")
    if owner.startswith(COPIED):
        package = owner.removeprefix(COPIED)
        return Step("remove", (), f"no distribution owns {package}", paths=(package,))
    return sides.bring([], f"{sides.a_name} has no {owner}", [owner])


def _libraries(sides: Sides) -> Iterator[Difference]:
    """Shared libraries that nobody in B gives."""
    a, b = sides.a, sides.b
    for owner, entries in b.by_owner.items():
        known = {name for entry in a.by_owner.get(owner, []) for name in entry.get("missing", ())}
        lost = {name for entry in entries for name in entry.get("missing", ())} - known
        if not lost:
            continue
        lines = [
            f"{_file(b, entry)}: {listed(entry['missing'])} not found"
            for entry in entries
            if set(entry.get("missing", ())) & lost
        ]
        what = f"{_with_version(b, owner)} does not load: nothing here gives {listed(sorted(lost))}"
        yield _abi("abi-library", owner, what, lines, _given(sides, owner, lost))


def _given(sides: Sides, owner: str, lost: set[str]) -> Step:
    """What brings the libraries: the stack, the distribution that gives them in A, or the host's system."""
    if any(is_nvidia_library(name) or is_torch_library(name) for name in lost):
        return sides.stack_for(owner)
    givers = {sides.a.sonames[name] for name in lost if name in sides.a.sonames}
    givers = {name for name in givers if name in sides.a.distributions}
    if givers:
        return sides.bring(givers, f"{owner} needs their libraries")
    packages = sorted(SYSTEM_PACKAGES.get(name, name) for name in lost)
    return Step("none", (), f"of the host's system, not of an environment: install {listed(packages)} there")


def _symbols(sides: Sides) -> Iterator[Difference]:
    """Symbols that nobody in B gives."""
    a, b = sides.a, sides.b
    for owner, entries in b.by_owner.items():
        known = {name for entry in a.by_owner.get(owner, []) for name in entry.get("undefined", ())}
        lost = {name for entry in entries for name in entry.get("undefined", ())} - known
        if not lost:
            continue
        ours = any(is_torch_symbol(name) for name in lost)
        cause = (
            f"built against another torch than {b.torch}" if ours else "its libraries are of other versions"
        )
        lines = [
            f"{_file(b, entry)}: {listed(entry['undefined'], 3)} undefined"
            for entry in entries
            if set(entry.get("undefined", ())) & lost
        ]
        what = f"{_with_version(b, owner)} does not load: {counted(len(lost), 'symbol')} undefined, {cause}"
        moved = ours and (a.torch != b.torch or in_stack(owner))
        yield _abi(
            "abi-symbol", owner, what, lines, sides.stack_for(owner) if moved else _restored(sides, owner)
        )


def _tags(sides: Sides) -> Iterator[Difference]:
    """Extensions in B that its own Python or its own host does not load."""
    a, b = sides.a, sides.b
    if a.tag != b.tag or a.arch != b.arch:
        return
    for owner, entries in b.by_owner.items():
        wrong = [entry for entry in entries if entry.get("tag") not in (None, "abi3", b.tag) and b.tag]
        if wrong and not sides.alike(owner):
            what = f"{_with_version(b, owner)} is built for {wrong[0]['tag']}, the Python here is {b.tag}"
            yield _abi("abi-tag", owner, what, [_file(b, entry) for entry in wrong], _restored(sides, owner))
        for library in ("glibc", "glibcxx"):
            has, wants = b.platform(library), b.floor(owner, library)
            if has and wants > has and not (sides.alike(owner) and has == a.platform(library)):
                what = (
                    f"{_with_version(b, owner)} wants {library} {dotted(wants)}, the host has {dotted(has)}"
                )
                yield _abi("abi-floor", owner, what, [], _restored(sides, owner))


def _gpu_code(sides: Sides) -> Iterator[Difference]:
    a, b = sides.a, sides.b
    for owner in sides.both:
        theirs, ours = a.gpu(owner), b.gpu(owner)
        lost = sorted(code for code in theirs if ours and not runs_on(ours, code))
        if lost:
            what = f"{_with_version(b, owner)} has no code for {listed(map(_card, lost))}, in {sides.a_name} it has"
            evidence = [f"here: {listed(sorted(ours), 12)}"]
            step = sides.stack if owner in sides.stack.distributions else _restored(sides, owner)
            yield Difference("abi-gpu", Group.ABI, "warning", owner, what, tuple(evidence), step)


def _glibc(sides: Sides) -> Iterator[Difference]:
    """What of A cannot come as it is, since B's host is older."""
    if sides.a.is_specification or sides.b.is_specification or sides.rebuilt:
        return
    held = [(name, sides.too_new(name)) for name in sides.unlike if sides.too_new(name)]
    if held:
        glibc, glibcxx = (dotted(sides.b.platform(library)) for library in ("glibc", "glibcxx"))
        has = f"glibc {glibc}" + (f", glibcxx {glibcxx}" if glibcxx else "")
        what = f"{counted(len(held), 'distribution')} of {sides.a_name} cannot come as they are, the host has {has}"
        evidence = [f"{name} wants {wants}" for name, wants in held]
        step = sides.bring([name for name, _ in held], "")
        yield _abi("abi-glibc", "", what, evidence, step)


def _abi(id: str, subject: str, what: str, evidence: list[str], step: Step) -> Difference:
    return Difference(id, Group.ABI, "error", subject, what, tuple(evidence), step)


def _with_version(view: View, owner: str) -> str:
    version = view.versions.get(owner)
    if version:
        return f"{owner} {version}"
    return f"{owner.removeprefix(COPIED)} (of no distribution)" if owner.startswith(COPIED) else owner


def _file(view: View, entry: Entry) -> str:
    return view.inside(entry["path"])


def _cuda_sonames(entry: Entry) -> list[str]:
    found = [name for name in entry["needed"] if is_nvidia_library(name)]
    return found or [PurePosixPath(entry["path"]).name]


def _card(code: str) -> str:
    return "sm" + code.partition(":")[2].removeprefix("sm_")
