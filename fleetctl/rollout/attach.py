"""Rollouts that are under way on hosts, or were: found by host, slot or id, followed, and asked to undo themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Host
from fleetctl.inventory.nearest import hint
from fleetctl.inventory.select import select_host
from fleetctl.inventory.selectors import NAME
from fleetctl.transport.agent import Agent, open_agent
from fleetctl.transport.fleet import on_hosts

OnEvent = Callable[[dict[str, Any]], None]
Entry = dict[str, Any]

LIMIT = 200
UNSETTLED = ("running", "crashed")


@dataclass(frozen=True)
class Found:
    """A rollout and the host whose record it is in; ``entry`` as the agent's ``history`` gives it."""

    host: Host
    entry: Entry

    @property
    def words(self) -> str:
        """The rollout in a line: its id, what it does, where and by whom."""
        new = (self.entry.get("new") or {}).get("service")
        by = f", by {self.entry['operator']}" if self.entry.get("operator") else ""
        what = f"{self.entry.get('kind')} of {new} in slot {self.entry.get('slot')}{by}"
        return f"{self.host.name} {self.entry['id']} ({what}): {self.entry['outcome']}"


def ask(host: Host) -> list[Entry]:
    """A host's rollouts, newest first."""
    with open_agent(host) as agent:
        return list(agent.call("history", limit=LIMIT))


def survey(hosts: Sequence[Host]) -> tuple[list[Found], dict[str, FleetError]]:
    """Per slot of each host its last rollout, and all that run or were cut short; the errors of hosts not asked."""
    answers: Mapping[str, list[Entry] | FleetError] = on_hosts(hosts, ask)
    found, errors = [], {}
    for host in hosts:
        answer = answers[host.name]
        if isinstance(answer, FleetError):
            errors[host.name] = answer
        else:
            found += [Found(host, entry) for entry in latest(answer)]
    return found, errors


def latest(entries: Sequence[Entry]) -> list[Entry]:
    """The newest entry of each slot, and every one without a result; in the order given."""
    seen: set[Any] = set()
    kept = []
    for entry in entries:
        if entry.get("slot") not in seen or entry["outcome"] in UNSETTLED:
            kept.append(entry)
        seen.add(entry.get("slot"))
    return kept


def find_rollout(fleet: Fleet, host: str | None, rollout: str | None, slot: str | None) -> Found:
    """The rollout that is meant: by its id or a part of it, else the one that runs. A lone word may be an id.

    Raises :class:`FleetError`, exit 2, that lists what there is where none or several fit; exit 8 where none does on
    the hosts that answered, and others did not.
    """
    if host is not None and rollout is None and host not in fleet.hosts and _may_be_id(host):
        host, rollout = None, host
    hosts = [select_host(fleet, host)] if host is not None else list(fleet.hosts.values())
    answers = on_hosts(hosts, ask)
    errors = {name: answer for name, answer in answers.items() if isinstance(answer, FleetError)}
    if errors and len(errors) == len(hosts):
        raise next(iter(errors.values()))
    known = [
        Found(one, entry)
        for one in hosts
        for entry in _entries(answers[one.name])
        if slot is None or entry.get("slot") == slot
    ]
    if rollout is None:
        return _running(hosts, known, errors)
    return _named(rollout, known, errors)


def _may_be_id(word: str) -> bool:
    return any(map(str.isdigit, word)) and NAME.fullmatch(word) is not None


def _entries(answer: list[Entry] | FleetError) -> list[Entry]:
    return [] if isinstance(answer, FleetError) else answer


def _running(hosts: Sequence[Host], known: list[Found], errors: Mapping[str, FleetError]) -> Found:
    running = [one for one in known if one.entry["outcome"] == "running"]
    if len(running) == 1:
        return running[0]
    where = ", ".join(host.name for host in hosts)
    unasked = _unasked(errors)
    if running:
        raise FleetError(
            f"which rollout? {len(running)} are under way",
            where=where,
            fix="name its host, its id or --slot",
            evidence=[one.words for one in running] + unasked,
        )
    crashed = [one for one in known if one.entry["outcome"] == "crashed"]
    if errors:
        raise _perhaps_elsewhere(
            "no rollout is under way on the hosts that answered", errors, [one.words for one in crashed]
        )
    raise FleetError(
        "no rollout is under way",
        where=where,
        fix="the next deploy to its slot settles one that was cut short"
        if crashed
        else "fleetctl history lists those that ended, with their ids; fleetctl attach ID shows one of them",
        evidence=[one.words for one in crashed],
    )


def _named(rollout: str, known: list[Found], errors: Mapping[str, FleetError]) -> Found:
    fitting = [one for one in known if one.entry["id"] == rollout]
    fitting = fitting or [one for one in known if rollout in one.entry["id"]]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise FleetError(
            f"which rollout? {len(fitting)} have {rollout} in their ids",
            fix="give the whole id",
            evidence=[one.words for one in fitting[:10]],
        )
    if errors:
        raise _perhaps_elsewhere(f"the hosts that answered have no rollout {rollout}", errors)
    raise FleetError(
        f"there is no rollout {rollout}",
        fix=hint(rollout, [one.entry["id"] for one in known[:20]], "rollouts"),
    )


def _perhaps_elsewhere(
    what: str, errors: Mapping[str, FleetError], evidence: Sequence[str] = ()
) -> FleetError:
    """The error for a rollout that may be on a host which did not answer."""
    silent = ", ".join(errors)
    return FleetError(
        f"{what}; it may be on {silent}, which could not be asked",
        where=silent,
        fix="make what did not answer reachable and run it again, or name a host that answers",
        evidence=[*evidence, *_unasked(errors)],
        exit=Exit.PARTIAL,
    )


def _unasked(errors: Mapping[str, FleetError]) -> list[str]:
    return [f"not asked: {error}" for error in errors.values()]


def follow(found: Found, on_event: OnEvent) -> dict[str, Any]:
    """Every event of the rollout from the first on, and its result; waits as long as the link lives."""
    with open_agent(found.host) as agent:
        return _follow(agent, found, on_event)


def _follow(agent: Agent, found: Found, on_event: OnEvent) -> dict[str, Any]:
    result: dict[str, Any] = agent.call(
        "rollout.follow", id=found.entry["id"], on_event=on_event, timeout=None
    )
    return result


def abort(found: Found, on_event: OnEvent) -> dict[str, Any]:
    """Have the rollout undo itself, and follow it to its result.

    Raises :class:`FleetError`: exit 5 where it had ended, or was committing already.
    """
    with open_agent(found.host) as agent:
        if found.entry["outcome"] == "crashed":
            raise FleetError(
                "nobody is at work on it: it was cut short",
                where=found.words,
                fix=f"the next deploy to slot {found.entry['slot']} settles it first; so does a boot",
                exit=Exit.PREFLIGHT,
            )
        asked = agent.call("rollout.abort", id=found.entry["id"], timeout=30)
        result = _follow(agent, found, on_event)
    if not asked["asked"] or result["outcome"] == "done":
        why = "it was committing already" if asked["asked"] else asked["why"]
        raise FleetError(
            f"too late to abort, {why}: {result['reason']}",
            where=found.words,
            fix=f"fleetctl rollback {found.host.name} --slot {found.entry['slot']}",
            exit=Exit.PREFLIGHT,
        )
    return result


def failure(found: Found, result: dict[str, Any]) -> FleetError:
    """The error of a rollout that ended otherwise than done."""
    step = f"at {result['failed_step']}: " if result.get("failed_step") else ""
    service = (found.entry.get("new") or {}).get("service")
    left = result.get("left") or "nothing was changed"
    return FleetError(
        f"{found.entry.get('kind')} of {service} {result['outcome']} {step}{result['reason']}; {left}",
        where=f"{found.host.name}, slot {found.entry.get('slot')}, rollout {found.entry['id']}",
        fix=result.get("fix") or f"fleetctl logs {found.host.name} {service}",
        evidence=[str(line) for line in result.get("evidence") or []],
        exit=Exit(result["exit"]),
    )
