"""What of A is missing in B, and what is there in another version, with who asks for it."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.environment.closure import Unmet, holds
from fleetctl.environment.difference import NOTHING, Difference, Group, Severity, listed
from fleetctl.environment.sides import Sides
from fleetctl.environment.stacks import INSTALLERS, lacking, mixed_pairs
from fleetctl.environment.view import View
from fleetctl.words import counted

FOLDERS = 8


def missing_differences(sides: Sides) -> Iterator[Difference]:
    """Distributions and modules that B lacks; those that the stack's step brings are not told again."""
    brought = _brought(sides)
    for name in sides.only_a:
        if name in brought:
            continue
        version, reasons = sides.a.versions[name], sides.reasons(name)
        severity: Severity = "error" if reasons else "warning"
        why = f"; {listed(reasons, 1)}" if reasons else f", and nothing in {sides.a_name} asks for it"
        what = f"{name} {version} is missing{why}"
        step = sides.bring([name], listed(reasons, 1) or f"{sides.a_name} has it")
        yield Difference("missing", Group.MISSING, severity, name, what, tuple(reasons), step)
    for name in sides.both:
        if _is_engine(sides, name):
            yield from _modules(sides, name)


def _is_engine(sides: Sides, name: str) -> bool:
    """Whether what B's distribution lacks is told on its own: nothing asks for it, and B's is not a newer one."""
    current = sides.is_older(name) or not sides.version_differs(name)
    return current and sides.is_root(name) and name not in INSTALLERS


def _modules(sides: Sides, name: str) -> Iterator[Difference]:
    """Modules of a distribution that stands for itself, such as the engine: B's version may be too old for them."""
    lost = _lost_modules(sides, name)
    if not lost:
        return
    a, b = sides.a.versions[name], sides.b.versions[name]
    named = f"{name} {b}" if a != b else f"{name} {b} here"
    where = f"{name} {a}" if a != b else f"{sides.a_name}'s"
    every = [module for names in lost.values() for module in names]
    what = f"{named} lacks {counted(len(every), 'module')} of {where}"
    step = sides.bring([name], f"{sides.a_name} has them")
    yield Difference("missing-modules", Group.MISSING, "error", name, what, tuple(_by_folder(lost)), step)


def _lost_modules(sides: Sides, name: str) -> dict[str, list[str]]:
    """Modules by package that A's has and B's does not; empty where one of them is not known."""
    theirs, ours = (view.distributions[name].get("modules") for view in (sides.a, sides.b))
    if not theirs or not ours:
        return {}
    lost = {package: sorted(set(names) - set(ours.get(package, ()))) for package, names in theirs.items()}
    return {package: names for package, names in lost.items() if names}


def _by_folder(modules: dict[str, list[str]]) -> list[str]:
    """One line a package, the last of them as a count."""
    lines = [f"{package or 'at the top'}: {listed(names, 8)}" for package, names in modules.items()]
    more = len(lines) - FOLDERS
    return lines[:FOLDERS] + ([f"and in {counted(more, 'more package')}"] if more > 0 else [])


def version_differences(sides: Sides) -> Iterator[Difference]:
    """Distributions of another version, the pairs of B that do not match, and what of B's own does not hold."""
    brought = _brought(sides)
    for name in sides.both:
        told = _is_engine(sides, name) and _lost_modules(sides, name)
        if name not in brought and sides.version_differs(name) and not told:
            yield _version(sides, name)
    yield from _pairs(sides)
    yield from _unmet(sides)


def _version(sides: Sides, name: str) -> Difference:
    a, b = sides.a.versions[name], sides.b.versions[name]
    broken = [
        f"{who} {sides.a.versions[who]} requires {wanted.name}{wanted.specifier}"
        for who, wanted in sides.asked_by.get(name, [])
        if not holds(wanted, b)
    ]
    if sides.a.is_specification:
        broken.insert(0, f"{sides.a_name} pins {name}=={a}")
    fact = lacking(name, b, sides.a.versions)
    what = f"{name} is {b}, in {sides.a_name} {a}"
    if fact:
        what = (
            f"{name} {b} has no {fact.what}, which {fact.consumer} imports at start; {sides.a_name} has {a}"
        )
        broken.append(fact.source)
    elif broken:
        what = f"{name} is {b}" if sides.a.is_specification else what
        what += f"; {listed(broken, 1)}"
    severity: Severity = "error" if broken else "info"
    lost = _lost_modules(sides, name)
    evidence = [*broken, *([f"lacks modules of {listed(lost)}"] if lost else [])]
    step = sides.bring([name], listed(broken, 1) or f"{sides.a_name} has {a}")
    return Difference("version", Group.VERSION, severity, name, what, tuple(evidence), step)


def _pairs(sides: Sides) -> Iterator[Difference]:
    known = {(pair, *versions) for pair, *versions in mixed_pairs(sides.a.versions)}
    for pair, one, other in mixed_pairs(sides.b.versions):
        if (pair, one, other) not in known:
            what = f"{pair.one} {one} stands beside {pair.other} {other}: {pair.source}"
            names = [name for name in (pair.one, pair.other) if name in sides.a.distributions]
            step = sides.bring(names, "both must be of one version") if names else NOTHING
            yield Difference("version-pair", Group.VERSION, "error", pair.one, what, (), step)


def _unmet(sides: Sides) -> Iterator[Difference]:
    """One difference for all that B's own distributions ask for and do not have."""
    known = {_asks(one) for one in sides.a.unmet}
    lines = [one for one in sides.b.unmet if _asks(one) not in known]
    if lines and not sides.a.is_specification:
        who = len({one.who for one in lines})
        what = (
            f"{counted(len(lines), 'requirement')} of {counted(who, 'distribution')} do not hold within "
            f"{sides.b_name} itself"
        )
        evidence = tuple(_in_words(sides.b, one) for one in lines)
        yield Difference("version-unmet", Group.VERSION, "warning", "", what, evidence)


def _asks(one: Unmet) -> tuple[str, str, str | None]:
    return one.who, one.asks, one.there


def _in_words(view: View, one: Unmet) -> str:
    there = f"{one.there} is here" if one.there else "which is not here"
    return f"{one.who} {view.versions[one.who]} requires {one.asks}, {there}"


def _brought(sides: Sides) -> set[str]:
    """What the stack's step settles, where torch itself is there and differs."""
    if sides.a.is_specification or not (sides.a.torch and sides.b.torch) or sides.a.torch == sides.b.torch:
        return set()
    return set(sides.stack.distributions) | ({*sides.a.distributions} if sides.rebuilt else set())
