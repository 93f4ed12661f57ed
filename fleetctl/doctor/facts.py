"""``doctor.facts`` on the controller: gathered from a host or from this machine, kept in files, looked up safely."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetctl.errors import FleetError
from fleetctl.files import save
from fleetctl.inventory.models import Host, Service
from fleetctl.services.sides import asked_slots

if TYPE_CHECKING:
    from fleetctl.transport.agent import Agent

Facts = dict[str, Any]
"""The JSON of ``doctor.facts`` in docs/architecture.md, and ``named``: paths by the inventory's names."""

OnEvent = Callable[[dict[str, Any]], None]

SCHEMA = 1
GATHER_S = 600.0
_NUMBERS = re.compile(r"\d+(?:\.\d+)*")


class Here:
    """The agent's calls on this machine, in this process."""

    def call(
        self, name: str, /, *, on_event: OnEvent | None = None, timeout: float | None = None, **args: Any
    ) -> Any:
        """As ``Agent.call``; a call's own deadlines hold, ``timeout`` does not."""
        from fleetctl.agent.calls import find
        from fleetctl.agent.errors import AgentError

        try:
            return find(name)(args, on_event or (lambda event: None))
        except AgentError as error:
            raise FleetError(error.what, error.where, error.fix, list(error.evidence)) from None


def gather(
    agent: Agent | Here,
    host: Host,
    *,
    services: Iterable[str] | None = None,
    environments: Iterable[str] = (),
    deep: bool = False,
    hashes: bool = False,
    on_event: OnEvent | None = None,
) -> Facts:
    """The facts of a host, in one answer: what its inventory's services stand on, or only the named ``services``.

    ``environments``: more paths. An environment of a specification that was never built there has no path: null in
    ``named``. FleetError (exit 3) where the link fails.
    """
    chosen = _chosen(host, services)
    used = {entry.environment for entry in chosen}
    built = any(host.environments[name].spec for name in used if name in host.environments)
    listed = agent.call("environment.list") if built else []
    named: dict[str, dict[str, str | None]] = {
        "environments": {
            name: entry.path or _built(entry.spec, listed)
            for name, entry in host.environments.items()
            if name in used
        },
        "models": {
            name: host.models[name].path
            for entry in chosen
            for name in (entry.model, entry.drafter)
            if name in host.models
        },
    }
    asked = _arguments(host, services, named, environments, deep, hashes)
    facts: Facts = agent.call("doctor.facts", on_event=on_event, timeout=GATHER_S, **asked)
    return {**facts, "named": named, "inventory": {"gpus": host.gpus.model_dump()}}


def gather_local(
    *,
    environments: Iterable[str] = (),
    models: Iterable[str] = (),
    deep: bool = False,
    hashes: bool = False,
    on_event: OnEvent | None = None,
) -> Facts:
    """The facts of this machine, by the agent's own code in this process; no ssh, no inventory."""
    from fleetctl.agent.host import doctor

    paths = [str(Path(path).expanduser().absolute()) for path in environments]
    asked = {
        "environments": paths,
        "models": [str(Path(path).expanduser().absolute()) for path in models],
        "deep": deep,
        "hashes": hashes,
        "python": _python(paths),
    }
    return {
        **doctor.facts(asked, on_event or (lambda event: None)),
        "named": {"environments": {}, "models": {}},
    }


def _chosen(host: Host, services: Iterable[str] | None) -> list[Service]:
    every = [entry for entry in host.services.values() if not entry.is_router]
    return [entry for entry in every if services is None or entry.name in set(services)]


def _arguments(
    host: Host,
    services: Iterable[str] | None,
    named: Mapping[str, Mapping[str, str | None]],
    environments: Iterable[str],
    deep: bool,
    hashes: bool,
) -> dict[str, Any]:
    chosen = _chosen(host, services)
    paths = [path for path in [*named["environments"].values(), *environments] if path]
    homes = [entry.env[key] for entry in chosen for key in ("CUDA_HOME", "CUDA_PATH") if key in entry.env]
    return {
        "environments": list(dict.fromkeys(paths)),
        "models": list(dict.fromkeys(named["models"].values())),
        "units": list(dict.fromkeys(entry.unit for entry in chosen)),
        "slots": asked_slots(host),
        "toolkits": list(dict.fromkeys(homes)),
        "deep": deep,
        "hashes": hashes,
        "python": _python(paths),
    }


def _python(environments: Sequence[str]) -> str | None:
    """The interpreter whose torch runs the kernel of ``--deep``."""
    return f"{environments[0]}/bin/python" if environments else None


def _built(spec: str | None, listed: Sequence[Mapping[str, Any]]) -> str | None:
    """Where a specification's environment is: one that a slot uses, else the newest; None where there is none."""
    named = [one for one in listed if one.get("name") == spec]
    named.sort(
        key=lambda one: ("current" in (one.get("slots") or {}).values(), str(one.get("built_at") or ""))
    )
    return str(named[-1]["path"]) if named else None


def load_facts(path: Path) -> Facts:
    """Facts that :func:`save_facts` wrote; FleetError (exit 2) where the file is none, or of another schema."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FleetError(
            f"cannot be read: {error.strerror}",
            where=str(path),
            fix="name a file that `fleetctl facts HOST --json` wrote",
        ) from None
    except (ValueError, RecursionError) as error:
        raise _no_facts(path, f"not JSON: {error}") from None
    if not isinstance(found, dict) or "schema" not in found:
        raise _no_facts(path, "not a host's facts: it has no schema")
    if found["schema"] != SCHEMA:
        raise FleetError(
            f"facts of schema {found['schema']}; this fleetctl reads {SCHEMA}",
            where=str(path),
            fix="gather them again: fleetctl facts HOST --json -o FILE",
        )
    if "distributions" in found:
        raise _no_facts(path, "a bill of materials, not a host's facts")
    return found


def save_facts(facts: Facts, path: Path) -> None:
    """Write facts in one step; FleetError (exit 2) where the file cannot be written."""
    try:
        save(path, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise FleetError(
            f"cannot be written: {error.strerror}", where=str(path), fix="name another file"
        ) from None


def _no_facts(path: Path, what: str) -> FleetError:
    return FleetError(what, where=str(path), fix="make them: fleetctl facts HOST --json -o FILE")


def pick(facts: Any, *keys: str | int, default: Any = None) -> Any:
    """The value under the keys, one after the other; ``default`` where one is missing, null or of another kind."""
    for key in keys:
        if isinstance(facts, Mapping):
            facts = facts.get(key)
        elif isinstance(facts, list) and isinstance(key, int) and -len(facts) <= key < len(facts):
            facts = facts[key]
        else:
            return default
    return default if facts is None else facts


def entries(facts: Any, *keys: str | int) -> list[dict[str, Any]]:
    """The list of objects under the keys; empty where there is none, and without what is no object."""
    found = pick(facts, *keys, default=[])
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def gpus(facts: Any, indexes: Iterable[int] | None = None) -> list[dict[str, Any]]:
    """The host's GPUs, dead ones too, or those of these indexes."""
    wanted = None if indexes is None else set(indexes)
    return [one for one in entries(facts, "gpus", "gpus") if wanted is None or one.get("index") in wanted]


def capabilities(facts: Any, indexes: Iterable[int] | None = None) -> list[str]:
    """The compute capabilities of those GPUs (``12.0``), each once."""
    return list(
        dict.fromkeys(str(one["compute_cap"]) for one in gpus(facts, indexes) if one.get("compute_cap"))
    )


def default_toolkit(facts: Any) -> dict[str, Any] | None:
    """The toolkit that a build on the host finds by itself; None where there is none."""
    return next((one for one in entries(facts, "toolkits") if one.get("default")), None)


def bom_of(facts: Any, path: str) -> dict[str, Any] | None:
    """The bill of materials of the environment at ``path``; None where it was not asked for or could not be read."""
    found = pick(facts, "environments", path)
    return found if isinstance(found, dict) and "distributions" in found else None


def version(text: Any) -> tuple[int, ...]:
    """The numbers that a version begins with, to compare by: ``12.8.93`` → (12, 8, 93); empty where it has none."""
    found = _NUMBERS.search(text) if isinstance(text, str) else None
    return tuple(map(int, found[0].split("."))) if found else ()
