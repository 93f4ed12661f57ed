"""Reads the fleet folder's inventory: every host, or one error that names all that is wrong."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fleetctl.errors import FleetError
from fleetctl.inventory.check import check_host
from fleetctl.inventory.document import GROUP_FILES, Document, Problem, read
from fleetctl.inventory.groups import read_groups, unmeant
from fleetctl.inventory.models import Host
from fleetctl.inventory.nodes import check_fleet
from fleetctl.inventory.problems import structure

INVENTORIES = "inventories"


@dataclass(frozen=True)
class Source:
    """The file a host was read from, as it is shown to the operator, and its lines."""

    path: Path
    shown: str
    document: Document


@dataclass(frozen=True)
class Fleet:
    """The fleet folder, the inventory's folder in it, the hosts by name, and the groups' selectors."""

    root: Path
    inventory: Path
    hosts: Mapping[str, Host]
    sources: Mapping[str, Source] = field(repr=False)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def where(self, host: str, *key: str | int) -> str:
        """``file:line`` of a key of ``host``: ``where("ct200", "services", "ddtree", "slot")``."""
        source = self.sources[host]
        return f"{source.shown}:{source.document.line(key)}"


def load_fleet(root: Path | None = None, inventory: str | None = None) -> Fleet:
    """Read the ``*.yaml`` and ``*.yml`` files of ``root/inventory``: a host each, but for ``groups.yaml``.

    ``root`` defaults to ``$FLEETCTL_FLEET``, then the nearest folder upwards with ``inventories/``, then the
    checkout fleetctl runs from; ``inventory`` to ``$FLEETCTL_INVENTORY``, then ``inventories``.
    Raises FleetError (exit 2) naming every error of every file.
    """
    root = find_root(root)
    folder = root / (inventory or os.environ.get("FLEETCTL_INVENTORY") or INVENTORIES)
    if not folder.is_dir():
        raise FleetError(
            "no such inventory folder",
            where=str(folder),
            fix="name a folder of *.yaml files within the fleet folder: --inventory or $FLEETCTL_INVENTORY",
        )
    files = sorted(path for suffix in ("*.yaml", "*.yml") for path in folder.glob(suffix))
    hosts_files = [path for path in files if path.name not in GROUP_FILES]
    if not hosts_files:
        raise FleetError(
            "the inventory describes no host",
            where=str(folder),
            fix="write <host>.yaml files there, or name another folder: --inventory or $FLEETCTL_INVENTORY",
        )
    hosts: dict[str, Host] = {}
    sources: dict[str, Source] = {}
    errors: list[FleetError] = []
    for path in hosts_files:
        source = Source(path, _shown(path, root), read(path))
        host, problems = _parse(source)
        if host and host.host in hosts:
            first = sources[host.host]
            problems = [
                Problem(
                    ("host",),
                    f"the host {host.host} stands in two files, {first.shown} too",
                    "give one of them another name, or delete its file",
                )
            ]
        elif host:
            hosts[host.host] = host
            sources[host.host] = source
        errors += [_error(source, problem) for problem in problems]
    groups: dict[str, tuple[str, ...]] = {}
    for path in (path for path in files if path.name in GROUP_FILES):
        source = Source(path, _shown(path, root), read(path))
        found, problems = read_groups(source.document.data)
        groups |= found
        problems += [] if errors else unmeant(found, hosts)
        errors += [_error(source, problem) for problem in (source.document.problems or problems)]
    errors += [] if errors else [_error(sources[name], problem) for name, problem in check_fleet(hosts)]
    if errors:
        raise _together(errors)
    return Fleet(root, folder, hosts, sources, groups)


def find_root(root: Path | None = None) -> Path:
    """The fleet folder; FleetError where there is none."""
    named = root or (Path(text) if (text := os.environ.get("FLEETCTL_FLEET")) else None)
    if named:
        if not named.is_dir():
            raise FleetError(
                "no such fleet folder", where=str(named), fix="correct --fleet or $FLEETCTL_FLEET"
            )
        return named.resolve()
    here = Path.cwd()
    checkout = Path(__file__).resolve().parents[2]
    for folder in (here, *here.parents, checkout):
        if (folder / INVENTORIES).is_dir():
            return folder
    raise FleetError(
        "no fleet folder here: neither this folder nor one above it has inventories/",
        where=str(here),
        fix="go to the fleet folder, or name it: --fleet or $FLEETCTL_FLEET",
    )


def _parse(source: Source) -> tuple[Host | None, list[Problem]]:
    document = source.document
    if document.data is None and document.problems:
        return None, document.problems
    host, problems = structure(document.data)
    broken = {problem.key for problem in document.problems}
    problems = [problem for problem in problems if problem.key not in broken]
    problems = [*document.problems, *problems, *check_host(document.data)]
    return (None if problems else host), problems


def _error(source: Source, problem: Problem) -> FleetError:
    line = problem.line or source.document.line(problem.key)
    return FleetError(problem.what, where=f"{source.shown}:{line}", fix=problem.fix)


def _together(errors: list[FleetError]) -> FleetError:
    errors.sort(key=lambda error: (error.where.rpartition(":")[0], int(error.where.rpartition(":")[2])))
    if len(errors) == 1:
        return errors[0]
    return FleetError(
        f"{len(errors)} errors in the inventory",
        where=errors[0].where,
        fix="correct the lines above",
        evidence=[f"{error}" + (f"; {error.fix}" if error.fix else "") for error in errors],
    )


def _shown(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
