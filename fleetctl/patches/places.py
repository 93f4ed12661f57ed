"""Trees as an operator names them: an environment on a host, a wheel's file, or a folder here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fleetctl.environment.place import host_place
from fleetctl.inventory.loader import Fleet
from fleetctl.patches.environment import Environment
from fleetctl.patches.kept import wheels
from fleetctl.patches.trees import Read, Tree, Wheel
from fleetctl.transport.agent import open_agent


@contextmanager
def open_environment(fleet: Fleet, text: str) -> Iterator[Environment]:
    """The environment on a host that ``text`` names, its agent open."""
    place = host_place(fleet, text)
    assert place.host is not None
    with open_agent(place.host) as agent:
        yield Environment(agent, place)


@contextmanager
def open_tree(fleet: Fleet, text: str) -> Iterator[Tree]:
    """``FILE.whl``, a folder here (as site-packages, or a venv), or a place on a host."""
    path = Path(text).expanduser()
    if path.suffix == ".whl":
        yield Wheel(path)
    elif path.is_dir() and text not in fleet.hosts:
        yield Read(text, str(path))
    else:
        with open_environment(fleet, text) as environment:
            yield environment.tree


@contextmanager
def bases(fleet: Fleet, environment: Environment, names: Sequence[str]) -> Iterator[list[Tree]]:
    """Where files as they were before may be: the places named, the environment's parent, wheels kept here."""
    with ExitStack() as stack:
        trees: list[Tree] = [stack.enter_context(open_tree(fleet, name)) for name in names]
        parent = environment.parent()
        if parent is not None:
            trees.append(parent.tree)
        yield trees


def kept_wheels(fleet: Fleet, distribution: str, versions: Sequence[str]) -> list[Tree]:
    """The distribution's wheels that fleetctl keeps from earlier builds."""
    return [Wheel(path) for path in wheels(fleet.root, distribution, versions)]
