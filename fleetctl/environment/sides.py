"""The two environments of a comparison: A as it should be, B as it is, and how what A has comes to B."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from fleetctl.environment.closure import holds, in_words, requirements
from fleetctl.environment.difference import Step
from fleetctl.environment.stacks import in_stack
from fleetctl.environment.view import COPIED, View, dotted


class Sides:
    """A and B with their names in sentences."""

    def __init__(self, a: View, b: View) -> None:
        self.a, self.b = a, b
        self.a_name, self.b_name = _names(a, b)

    @cached_property
    def both(self) -> list[str]:
        """Distributions that both have."""
        return [name for name in self.a.distributions if name in self.b.distributions]

    @cached_property
    def only_a(self) -> list[str]:
        """Distributions that B lacks."""
        return [name for name in self.a.distributions if name not in self.b.distributions]

    @cached_property
    def only_b(self) -> list[str]:
        """Distributions that A does not have."""
        return [name for name in self.b.distributions if name not in self.a.distributions]

    def version_differs(self, name: str) -> bool:
        """Whether B's version is not A's; a pin without local part is met by any (``2.11.0`` by ``2.11.0+cu130``)."""
        a, b = self.a.versions[name], self.b.versions[name]
        if a == b:
            return False
        if not (self.a.is_specification or self.b.is_specification):
            return True
        pin, found = (a, b) if self.a.is_specification else (b, a)
        try:
            return not holds(Requirement(f"{name}=={pin}"), found)
        except InvalidRequirement:
            return True

    def is_older(self, name: str) -> bool:
        """Whether B's version is older than A's; False where one of them is no version."""
        try:
            return Version(self.b.versions[name]) < Version(self.a.versions[name])
        except InvalidVersion:
            return False

    def record_differs(self, name: str) -> bool:
        """Whether both have whole records of the same version that are not of the same files."""
        if self.version_differs(name):
            return False
        records = [view.distributions[name].get("record") or {} for view in (self.a, self.b)]
        whole = all(record.get("state") == "ok" and record.get("sha256") for record in records)
        return whole and records[0]["sha256"] != records[1]["sha256"]

    @cached_property
    def unlike(self) -> list[str]:
        """Distributions of A that B lacks, or has in another version or with other files."""
        return [
            name
            for name in self.a.distributions
            if name not in self.b.distributions or self.version_differs(name) or self.record_differs(name)
        ]

    def alike(self, owner: str) -> bool:
        """Whether both have the very same libraries of an owner."""
        return owner in self.a.by_owner and self.a.libraries(owner) == self.b.libraries(owner)

    @cached_property
    def asked_by(self) -> dict[str, list[tuple[str, Requirement]]]:
        """Who of A asks for each distribution, by its canonical name."""
        found: dict[str, list[tuple[str, Requirement]]] = defaultdict(list)
        for who, wanted in requirements(self.a.closure, self.a.markers):
            found[canonicalize_name(wanted.name)].append((who, wanted))
        return dict(found)

    def reasons(self, name: str) -> list[str]:
        """``sglang 0.5.11 requires soundfile==0.13.1``, for each that asks; a specification's own pin first."""
        pin = [f"{self.a_name} pins {name}=={self.a.versions[name]}"] if self.a.is_specification else []
        asked = [
            f"{who} {self.a.versions[who]} requires {in_words(wanted)}"
            for who, wanted in sorted(
                self.asked_by.get(name, []), key=lambda one: (not _exact(one[1]), one[0])
            )
        ]
        return [*pin, *asked]

    def is_root(self, name: str) -> bool:
        """Whether nothing in A asks for the distribution, so that it is there for its own sake."""
        return not self.asked_by.get(name)

    @cached_property
    def rebuilt(self) -> str:
        """Why nothing that is compiled can come from A to B; empty where it can."""
        a, b = self.a, self.b
        if a.is_specification or b.is_specification:
            return ""
        if a.bom["python"].get("runs", True) and not b.bom["python"].get("runs", True):
            return f"the interpreter of {self.b_name} does not run"
        if a.tag != b.tag:
            return f"{self.b_name} has Python {b.tag}, {self.a_name} {a.tag}"
        if a.arch != b.arch:
            return f"{self.b_name} is {b.arch}, {self.a_name} {a.arch}"
        return ""

    def too_new(self, name: str) -> str:
        """``glibc 2.38``: what A's distribution wants of B's host and does not find; empty where it fits."""
        for library in ("glibc", "glibcxx"):
            has = self.b.platform(library)
            wants = self.a.floor(name, library)
            if has and wants > has:
                return f"{library} {dotted(wants)}"
        return ""

    def bring(self, names: Iterable[str], why: str, remove: Iterable[str] = ()) -> Step:
        """The step by which A's distributions come to B, in place of those in ``remove``."""
        coming, going = tuple(sorted(set(names))), tuple(sorted(set(remove)))
        if self.rebuilt:
            return Step("rebuild", (), self.rebuilt)
        if self.b.is_specification:
            return Step("none", (), f"change the pins of {self.b_name}")
        if self.a.is_specification:
            return Step("install", coming, why, going)
        held = [name for name in coming if self.too_new(name)]
        if held:
            wants = "; ".join(f"{name} wants {self.too_new(name)}" for name in held)
            return Step("rebuild", coming, f"{wants}, and the host of {self.b_name} has less", going)
        return Step("overlay" if coming else "remove", coming or going, why, going if coming else ())

    @cached_property
    def stack(self) -> Step:
        """All that is of one toolkit and one torch, as A has it, in place of B's; what of B cannot follow goes."""
        return self._stack_with()

    def stack_for(self, owner: str) -> Step:
        """The stack's step, which brings ``owner`` from A too; where A has none, it goes."""
        stack = self.stack
        if owner in stack.distributions or owner in stack.remove or owner.startswith(COPIED):
            return stack
        return self._stack_with(owner)

    def _stack_with(self, *owners: str) -> Step:
        a = self.a
        whole = self._torch_differs()
        members = [name for name in a.distributions if in_stack(name)]
        coming = {name for name in members if whole or name in self.unlike or self.altered(name)}
        going = {name for name in self.only_b if in_stack(name)}
        for owner in (*self.unfit, *owners):
            (coming if owner in a.distributions else going).add(owner)
        return self.bring(
            coming,
            "libraries of one CUDA toolkit and one torch move together",
            {name for name in going if not name.startswith(COPIED)},
        )

    def _torch_differs(self) -> bool:
        a, b = self.a, self.b
        if "torch" not in self.both:
            return True
        flags = [view.bom.get("abi", {}).get("cxx11") for view in (a, b)]
        differs = self.version_differs("torch") or self.record_differs("torch") or self.altered("torch")
        return differs or a.cuda != b.cuda or (None not in flags and flags[0] != flags[1])

    def altered(self, owner: str) -> bool:
        """Whether libraries of an owner are not the same in both, whatever its records say."""
        return owner in self.both and self.a.libraries(owner) != self.b.libraries(owner)

    @cached_property
    def unfit(self) -> dict[str, str]:
        """Owners of libraries in B that do not fit A's torch, with the reason."""
        a, b = self.a, self.b
        found = {
            owner: f"wants CUDA {' and '.join(map(str, sorted(majors)))}"
            for owner, majors in b.wrong_majors(a.cuda).items()
            if not (owner in a.distributions and majors <= a.majors(owner))
        }
        if public(a.torch) != public(b.torch):
            linked = (owner for owner in b.by_owner if b.needs_torch(owner) and not in_stack(owner))
            for owner in linked:
                if owner not in self.both or owner in self.unlike:
                    found.setdefault(owner, f"is linked against torch {b.torch}")
        return found


def public(version: str | None) -> str:
    """A version without its local part; the text itself where it is no version."""
    try:
        return Version(version or "").public
    except InvalidVersion:
        return (version or "").partition("+")[0]


def _exact(wanted: Requirement) -> bool:
    return any(one.operator == "==" for one in wanted.specifier)


def _names(a: View, b: View) -> tuple[str, str]:
    """The shortest names that tell the two apart."""
    for names in (
        (_short(a), _short(b)),
        (a.path, b.path),
        (f"{a.hostname}:{a.path}", f"{b.hostname}:{b.path}"),
    ):
        if all(names) and names[0] != names[1]:
            return names
    return "A", "B"


def _short(view: View) -> str:
    return view.path if view.is_specification else view.hostname
