"""A service with replicas: its slots are changed one after the other, so that the others serve meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.models import Host, replica_name
from fleetctl.rollout.outcome import Outcome

DeployOne = Callable[[str, str | None], Outcome]


def deploy_replicas(host: Host, service_name: str, leaving: str | None, deploy: DeployOne) -> Outcome:
    """``deploy(service, leaving)`` in each of the service's slots in turn; the first failure ends it.

    Raises ``FleetError``: the first one's own where nothing was changed before it; exit 8 where some were: those
    stay with the new service, the failed one is as before, the rest was not touched.
    """
    service = host.services[service_name]
    if leaving is not None and (gone := set(service.replicas) ^ set(host.services[leaving].replicas)):
        raise FleetError(
            f"{leaving} and {service_name} do not have the same replicas: {', '.join(sorted(gone))}",
            where=host.name,
            fix=f"give both the same replicas:, or fleetctl deploy {host.name} --service {service_name}",
        )
    done: list[Outcome] = []
    for slot in [service.slot, *service.replicas]:
        name = service_name if slot == service.slot else replica_name(service_name, slot)
        before = leaving if slot == service.slot or leaving is None else replica_name(leaving, slot)
        try:
            done.append(deploy(name, before))
        except FleetError as error:
            raise _after(done, host, slot, error) from error
    return _together(service_name, done)


def _after(done: list[Outcome], host: Host, slot: str, error: FleetError) -> FleetError:
    changed = [outcome.slot for outcome in done if outcome.verdict == "done"]
    if not changed or error.exit in (Exit.NOT_RESTORED, Exit.INTERRUPTED):
        return error
    return FleetError(
        f"{error.what}; already changed: {', '.join(changed)}",
        where=error.where or f"{host.name}, slot {slot}",
        fix=f"{error.fix}; then run it again (what is done is not done twice), or swap back",
        evidence=error.evidence,
        exit=Exit.PARTIAL,
    )


def _together(service: str, ends: list[Outcome]) -> Outcome:
    verdicts = {end.verdict for end in ends}
    first = ends[0]
    whole = Outcome(
        first.host,
        ", ".join(end.slot for end in ends),
        service,
        first.mode,
        next(verdict for verdict in ("planned", "done", "unchanged") if verdict in verdicts),
        emptied=first.emptied,
    )
    for end in ends:
        whole.changes += [f"{end.slot}: {change}" for change in end.changes]
        whole.diff += end.diff
        whole.findings += end.findings
    results = [end.result for end in ends if end.result]
    if results:
        seconds: dict[str, float] = {}
        for result in results:
            for step, spent in result["seconds"].items():
                seconds[step] = seconds.get(step, 0.0) + spent
        whole.result = {**results[-1], "seconds": seconds}
    return whole
