"""Services over several hosts: what one says of itself, and what the other hosts must have for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fleetctl.inventory.document import Problem
from fleetctl.inventory.models import Host, Service
from fleetctl.inventory.nearest import hint


def check_service(host: Any, name: str, service: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with a service's ``nodes``, ``tp`` and ``meet`` by themselves."""
    nodes, key = service.get("nodes"), ("services", name, "nodes")
    if not isinstance(nodes, list):
        for word in ("tp", "meet"):
            if service.get(word) is not None:
                yield Problem(
                    ("services", name, word),
                    f"the service {name} has {word} and no nodes",
                    "add nodes: [HOST, …]; on one host the slot's GPUs say it",
                )
        return
    if nodes and nodes[0] != host:
        what = f"the service {name} stands with {host} and its first node is {nodes[0]}"
        yield Problem(key, what, "write it into the file of its first node, which serves")
    if len({str(node) for node in nodes}) < len(nodes):
        yield Problem(key, f"the service {name} has a node twice", "a host is one node")
    if service.get("engine") != "sglang":
        what = f"the service {name} has nodes, and {service.get('engine')} cannot span hosts"
        yield Problem(("services", name, "engine"), what, "engine: sglang")
    meet = service.get("meet")
    if isinstance(meet, str) and not meet.rpartition(":")[2].isdigit():
        what = f"the service {name} cannot meet at {meet}"
        yield Problem(("services", name, "meet"), what, "write ADDRESS:PORT of its first node")


def check_fleet(hosts: Mapping[str, Host]) -> Iterator[tuple[str, Problem]]:
    """What a service's other nodes lack, each problem with the host in whose file it stands."""
    for host in hosts.values():
        for service in host.services.values():
            for node in (service.nodes or [])[1:]:
                for what, fix in _lacks(host, service, node, hosts):
                    yield host.name, Problem(("services", service.name, "nodes"), what, fix)


def _lacks(head: Host, service: Service, node: str, hosts: Mapping[str, Host]) -> Iterator[tuple[str, str]]:
    whose = f"the service {service.name} has the node {node}, which"
    host = hosts.get(node)
    if host is None:
        yield f"{whose} is no host", hint(node, hosts, "hosts")
        return
    models = [name for name in (service.model, service.drafter) if name]
    wanted: list[tuple[str, str, Mapping[str, Any]]]
    wanted = [("slot", service.slot, host.slots), ("environment", service.environment, host.environments)]
    wanted += [("model", name, host.models) for name in models]
    for kind, name, there in wanted:
        if name not in there:
            yield (
                f"{whose} has no {kind} {name}",
                f"add it to the file of {node}: {hint(name, there, f'{kind}s')}",
            )
    if service.slot in host.slots and host.slots[service.slot].spare:
        yield f"{whose} has a spare place in its slot", "take spare: out: nodes start and stop as one"
    for other in host.services.values():
        if other.unit == service.unit or other.name == service.name:
            yield (
                f"{whose} has a service of that name or unit ({other.name})",
                "give one of them another name",
            )
    if len(host.slots.get(service.slot, head.slots[service.slot]).gpus) != len(head.slots[service.slot].gpus):
        yield f"{whose} has another number of GPUs in its slot", "nodes need the same number of GPUs"


def node_host(hosts: Mapping[str, Host], head: Host, service: str, node: str) -> Host:
    """A node as the service sees it: the host with the first node's service among its own."""
    if node == head.name:
        return head
    host = hosts[node]
    return host.model_copy(update={"services": {**host.services, service: head.services[service]}})
