"""What speaks against an overlay: each check is a pure function that yields reasons, with what to do instead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from packaging.requirements import Requirement

from fleetctl.environment.closure import Unmet
from fleetctl.environment.difference import listed
from fleetctl.environment.result import resulting
from fleetctl.environment.stacks import cuda_major, in_stack, is_nvidia_library, mixed_pairs
from fleetctl.environment.view import COPIED, View, dotted
from fleetctl.errors import Exit, FleetError

NOT_WHOLE = {"changed": "changed", "missing": "missing", "outside": "outside the environment"}


@dataclass(frozen=True)
class Overlay:
    """``take`` of ``source`` over ``base``, without ``remove`` and ``paths``; ``asked``: also what is there already."""

    base: View
    source: View
    take: frozenset[str]
    remove: frozenset[str]
    paths: frozenset[str]
    asked: frozenset[str]

    @cached_property
    def after(self) -> View:
        """The result, as far as the two BOMs tell."""
        return View(resulting(self.base, self.source, sorted(self.take), self.remove, self.paths))


def refusals(overlay: Overlay) -> list[FleetError]:
    """Every reason against the overlay, each once."""
    checks = (_records, _nested, _interpreter, _host, _majors, _mixed, _pins, _libraries)
    return [reason for check in checks for reason in check(overlay)]


def warnings(overlay: Overlay) -> Iterator[str]:
    """What does not hold any more, and is no reason against it."""
    for one in _newly_unmet(overlay):
        if not _is_grave(overlay, one):
            there = f"{one.there} will be there" if one.there else "which will not be there"
            yield f"{one.who} {overlay.after.versions[one.who]} requires {one.asks}, {there}"
    for owner, majors in overlay.after.wrong_majors(overlay.after.cuda).items():
        if not _newly_wrong(overlay, owner):
            wants = " and ".join(map(str, sorted(majors)))
            yield f"{_plain(owner)} wants CUDA {wants}, and torch is of CUDA {overlay.after.cuda}; it was so before"
    for name in sorted(overlay.take):
        lost = {soname for one in overlay.after.by_owner.get(name, []) for soname in one["missing"]}
        lost &= _lacked(overlay.source, name)
        if lost:
            yield f"{name} needs {listed(sorted(lost))}, which {overlay.source.label} does not give either"


def _records(overlay: Overlay) -> Iterator[FleetError]:
    """Files come and go by RECORD, so both records must be whole."""
    for name in sorted(overlay.take):
        yield from _record(overlay.source, name, comes=True)
    for name in sorted(overlay.take | overlay.remove):
        if name in overlay.base.distributions:
            yield from _record(overlay.base, name, comes=False)


def _record(view: View, name: str, comes: bool) -> Iterator[FleetError]:
    entry = view.distributions[name]
    record = entry.get("record") or {"state": "missing"}
    does = "come" if comes else "go"
    again = f"install {name}=={entry['version']} again in {view.path}"
    if any(one["name"] == name for one in view.bom.get("twice", ())):
        infos = [info for one in view.bom["twice"] if one["name"] == name for info in one["infos"]]
        what = f"{name} has two dist-infos in {view.label}, so nothing says which files are its own"
        yield _refusal(what, view, f"remove one of them, or {again}", infos)
    if record["state"] != "ok":
        what = f"the RECORD of {name} {entry['version']} is {record['state']}, so nothing says which files must {does}"
        yield _refusal(what, view, again, [record["why"]] if record.get("why") else [])
    if entry.get("outside"):
        what = f"the RECORD of {name} {entry['version']} names files outside the environment"
        yield _refusal(what, view, again, entry["outside"])
    if not comes:
        return
    if entry.get("editable"):
        what = f"{name} is an editable install of {entry['editable']}: its files are not in the environment"
        yield _refusal(what, view, f"build a wheel of it, and install that in {view.path}", [])
    for key in ("changed", "missing"):
        if entry.get(key):
            what = f"files of {name} {entry['version']} are {NOT_WHOLE[key]} in {view.label}, so a copy fails its check"
            fix = f"{again}; what was changed on purpose is a patch set: `fleetctl patch new`"
            yield _refusal(what, view, fix, entry[key])


def _nested(overlay: Overlay) -> Iterator[FleetError]:
    """A copy of a package inside itself would stay, or come along."""
    touched = {
        name
        for view in (overlay.base, overlay.source)
        for one in overlay.asked
        for name in (view.distributions.get(one) or {}).get("imports", ())
    }
    for view in (overlay.base, overlay.source):
        for path in view.nested:
            inside = view.inside(path)
            if inside.split("/")[0] in touched and not (view is overlay.base and inside in overlay.paths):
                what = f"{inside} is a copy of the package inside itself, which no RECORD names"
                fix = (
                    f"--remove {inside}"
                    if view is overlay.base
                    else f"remove {inside} from {view.path} first"
                )
                yield _refusal(what, view, fix, [])


def _interpreter(overlay: Overlay) -> Iterator[FleetError]:
    base = overlay.base
    if not base.bom["python"].get("runs", True):
        what = f"the interpreter of {base.label} does not run: {base.bom['python'].get('why', '')}"
        yield _refusal(what, base, "choose a base whose interpreter runs; this one is a skeleton", [])
    for name in sorted(overlay.take):
        entries = overlay.source.by_owner.get(name, [])
        wrong = [one for one in entries if one.get("tag") not in (None, "abi3", base.tag)]
        if wrong:
            what = f"{name} is built for {wrong[0]['tag']}, the base's Python is {base.tag}"
            fix = f"take {name} from an environment of {base.tag}"
            yield _refusal(what, overlay.source, fix, [one["path"] for one in wrong[:3]])


def _host(overlay: Overlay) -> Iterator[FleetError]:
    """What a library wants of the machine that the base is on."""
    base, source = overlay.base, overlay.source
    for name in sorted(overlay.take):
        machines = {one["machine"] for one in source.by_owner.get(name, []) if one.get("machine")}
        if base.arch and machines and base.arch not in machines:
            what = f"{name} is built for {listed(sorted(machines))}, the base's host is {base.arch}"
            yield _refusal(what, source, f"take {name} from a host of {base.arch}", [])
        for library in ("glibc", "glibcxx"):
            wants, has = source.floor(name, library), base.platform(library)
            if has and wants > has:
                what = f"{name} wants {library} {dotted(wants)}, the base's host has {dotted(has)}"
                fix = f"build {name} on that host, or use a host with a newer system"
                yield _refusal(what, source, fix, [])


def _majors(overlay: Overlay) -> Iterator[FleetError]:
    """Native libraries that want another CUDA major than the result's torch."""
    after = overlay.after
    for owner, majors in after.wrong_majors(after.cuda).items():
        if not _newly_wrong(overlay, owner):
            continue
        wants = " and ".join(map(str, sorted(majors)))
        what = f"{_plain(owner)} wants CUDA {wants}, the environment's torch ({after.torch}) is of CUDA {after.cuda}"
        files = [one["path"] for one in after.by_owner[owner] if one.get("cuda") in majors]
        yield _refusal(what, overlay.base, _whole_stack(overlay, owner), files[:3])


def _newly_wrong(overlay: Overlay, owner: str) -> bool:
    before = overlay.base.wrong_majors(overlay.base.cuda)
    return owner in overlay.take or owner not in before or overlay.base.cuda != overlay.after.cuda


def _whole_stack(overlay: Overlay, owner: str) -> str:
    """What to lay over too, so that all is of one toolkit."""
    source = overlay.source
    if owner in overlay.take or overlay.after.cuda == overlay.base.cuda:
        if source.cuda != overlay.base.cuda and source.cuda in source.majors(owner):
            also = [name for name in source.distributions if in_stack(name) and name not in overlay.take]
            return "lay the whole stack over: " + _dist(also)
        return f"leave {_plain(owner)} out, or take it from an environment of CUDA {overlay.after.cuda}"
    if owner in source.distributions and source.majors(owner) <= {overlay.after.cuda}:
        return _dist([owner])
    return (
        f"--remove {owner}" if not owner.startswith(COPIED) else f"remove {_plain(owner)} from the base first"
    )


def _mixed(overlay: Overlay) -> Iterator[FleetError]:
    """Pairs of versions that must be equal, and toolkit distributions of another CUDA than torch."""
    base, after = overlay.base, overlay.after
    known = {(pair, *versions) for pair, *versions in mixed_pairs(base.versions)}
    for pair, one, other in mixed_pairs(after.versions):
        if (pair, one, other) not in known or {pair.one, pair.other} & overlay.asked:
            lone = [name for name in (pair.one, pair.other) if name not in overlay.take]
            what = f"{pair.one} {one} would stand beside {pair.other} {other}: {pair.source}"
            yield _refusal(what, base, _bring_too(overlay, lone), [])
    wrong = {
        name: major
        for name, version in after.versions.items()
        if in_stack(name) and (major := cuda_major(name, version)) not in (None, after.cuda)
    }
    touched = {name: major for name, major in wrong.items() if _touches(overlay, name)}
    if touched and after.cuda:
        names = sorted(touched)
        majors = " and ".join(str(major) for major in sorted({one for one in touched.values() if one}))
        what = f"{listed(names, 4)} of CUDA {majors} would stand beside torch {after.torch}"
        yield _refusal(what, base, _bring_too(overlay, [*names, "torch"]), names[4:])


def _touches(overlay: Overlay, name: str) -> bool:
    return name in overlay.take or "torch" in overlay.take


def _bring_too(overlay: Overlay, names: Iterable[str]) -> str:
    """``--dist`` for what the source has and does not come yet, ``--remove`` for what it does not have."""
    coming = [name for name in names if name in overlay.source.distributions and name not in overlay.take]
    going = [name for name in names if name not in overlay.source.distributions]
    words = [*(f"--dist {name}" for name in coming), *(f"--remove {name}" for name in going)]
    return f"add {' '.join(words)}" if words else f"take both from {overlay.source.label}, or neither"


def _pins(overlay: Overlay) -> Iterator[FleetError]:
    """Exact pins, and what torch's stack asks of itself, that would not hold any more."""
    for one in _newly_unmet(overlay):
        if _is_grave(overlay, one):
            there = f"{one.there} would be there" if one.there else "which would not be there"
            what = f"{one.who} {overlay.after.versions[one.who]} requires {one.asks}, {there}"
            who = [one.who] if one.who not in overlay.take else []
            yield _refusal(what, overlay.base, _bring_too(overlay, [one.wants, *who]), [])


def _newly_unmet(overlay: Overlay) -> list[Unmet]:
    """What does not hold in the result, and did where it comes from."""
    known = {
        (one.who, one.asks, one.there)
        for view in (overlay.base, overlay.source)
        for one in view.unmet
        if (one.who in overlay.take) == (view is overlay.source)
    }
    return [one for one in overlay.after.unmet if (one.who, one.asks, one.there) not in known]


def _is_grave(overlay: Overlay, one: Unmet) -> bool:
    exact = any(part.operator == "==" for part in Requirement(one.asks).specifier)
    return exact or (in_stack(one.who) and in_stack(one.wants))


def _libraries(overlay: Overlay) -> Iterator[FleetError]:
    """Shared libraries that were given where an extension comes from and would not be any more."""
    for owner, entries in overlay.after.by_owner.items():
        view = overlay.source if owner in overlay.take else overlay.base
        lost = {name for one in entries for name in one["missing"]} - _lacked(view, owner)
        if not lost:
            continue
        if all(map(is_nvidia_library, lost)) and _newly_wrong_here(overlay, owner):
            continue  # told as a wrong CUDA major
        givers = sorted({view.sonames[name] for name in lost if name in view.sonames})
        what = f"{_plain(owner)} needs {listed(sorted(lost))}, which nothing would give"
        fix = _bring_too(overlay, [name for name in givers if name in overlay.source.distributions])
        yield _refusal(what, view, fix if givers else f"leave {_plain(owner)} out", [])


def _lacked(view: View, owner: str) -> set[str]:
    return {name for one in view.by_owner.get(owner, []) for name in one.get("missing", ())}


def _newly_wrong_here(overlay: Overlay, owner: str) -> bool:
    return owner in overlay.after.wrong_majors(overlay.after.cuda) and _newly_wrong(overlay, owner)


def _dist(names: Iterable[str]) -> str:
    return "add " + " ".join(f"--dist {name}" for name in names)


def _plain(owner: str) -> str:
    return owner.removeprefix(COPIED)


def _refusal(what: str, view: View, fix: str, evidence: list[str]) -> FleetError:
    return FleetError(what, view.label, fix, [str(line) for line in evidence[:10]], Exit.PREFLIGHT)
