"""Services as Kubernetes objects: a Deployment, or a LeaderWorkerSet for one over several hosts, and its Service. Pure.

LeaderWorkerSet: leaderworkerset.x-k8s.io/v1, whose pods get LWS_LEADER_ADDRESS, LWS_GROUP_SIZE, LWS_WORKER_INDEX.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fleetctl.agent.secrets import is_secret
from fleetctl.errors import FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Argument, Host, Service
from fleetctl.services.arguments import arguments, words
from fleetctl.services.engines import ENGINES

Json = dict[str, Any]

NAME_LENGTH = 50
"""Of 63: a LeaderWorkerSet's pods and sets add to it."""
LEAVES_S = 5
"""Between the pod's leaving the Service and SIGTERM, for requests that are on their way."""
PROBE_S = 5
OURS = ("LWS_", "ARGUMENT_")
"""What variables begin with that stand in arguments and are to be replaced."""
_PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(?::[0-9]+)?/)?{_PART}(?:/{_PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@[A-Za-z][A-Za-z0-9+._-]*:[0-9a-fA-F]{32,})?"
)
"""The OCI distribution specification's reference: registry, name, tag, digest."""
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
LWS = {
    "nnodes": "$(LWS_GROUP_SIZE)",
    "node-rank": "$(LWS_WORKER_INDEX)",
}


def export_services(
    fleet: Fleet, host: Host, services: list[str], image: str, namespace: str | None
) -> list[Json]:
    """The objects of the host's named services, in order, none of them for a router: a Service is that there.

    Raises FleetError (exit 2) for a service that only its own unit can start, and for names that become one.
    """
    found: list[Json] = []
    names: dict[str, str] = {}
    for name in services:
        service = host.services[name]
        if service.is_router or service.is_replica:
            continue
        ours = object_name(name)
        if ours in names:
            raise FleetError(
                f"the services {names[ours]} and {name} would both be called {ours} there",
                where=fleet.where(host.name, "services", name),
                fix="rename one, or export one at a time: --service",
            )
        names[ours] = name
        found += _objects(fleet, host, service, image, namespace)
    return found


def check_image(image: str) -> None:
    """FleetError (exit 2) for what no registry takes as an image's name."""
    if not _IMAGE.fullmatch(image):
        raise FleetError(
            f"{image!r} is no image's name",
            where="--image",
            fix="[REGISTRY[:PORT]/]NAME[:TAG][@DIGEST], NAME in lower case, such as lmsysorg/sglang:v0.5.11",
        )


def check_namespace(namespace: str) -> None:
    """FleetError (exit 2) for what Kubernetes takes as no namespace: a DNS label of RFC 1123."""
    if not _LABEL.fullmatch(namespace):
        raise FleetError(
            f"{namespace!r} is no namespace's name",
            where="--namespace",
            fix="at most 63 lower case letters, digits and -, a letter or digit first and last",
        )


def object_name(name: str) -> str:
    """A service's name as Kubernetes takes it (RFC 1123: lower case, digits and hyphens)."""
    text = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:NAME_LENGTH].strip("-")
    return text if text[:1].isalpha() else f"s-{text}".strip("-")


def secret_names(host: Host, service: Service) -> list[str]:
    """The variables whose values are left out: they are read from a Secret instead."""
    return [entry["name"] for entry in _variables(service, arguments(host, service)) if "valueFrom" in entry]


def as_yaml(objects: list[Json]) -> str:
    """The objects as one YAML stream, without anchors."""
    import yaml

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    return yaml.dump_all(objects, Dumper=Plain, sort_keys=False, width=110, explicit_start=True)


def _objects(fleet: Fleet, host: Host, service: Service, image: str, namespace: str | None) -> list[Json]:
    if not ENGINES[service.engine].module or service.keep_unit:
        raise FleetError(
            f"only its own unit knows how {service.name} is started",
            where=fleet.where(host.name, "services", service.name),
            fix="export the others: --service NAME",
        )
    name = object_name(service.name)
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "fleetctl"}
    head: Json = {"name": name, "labels": labels, "annotations": _annotations(host, service)}
    if namespace:
        head["namespace"] = namespace
    if service.nodes:
        return [_leader_worker_set(host, service, image, head), _service(host, service, head, leads=True)]
    return [_deployment(host, service, image, head), _service(host, service, head, leads=False)]


def _annotations(host: Host, service: Service) -> dict[str, str]:
    return {
        "fleetctl/host": host.name,
        "fleetctl/slot": service.slot,
        "fleetctl/mode": service.mode,
        "fleetctl/gpu": host.gpus.name or "any",
    }


def _deployment(host: Host, service: Service, image: str, head: Json) -> Json:
    labels = {"app.kubernetes.io/name": head["name"]}
    surge = 1 if host.slots[service.slot].spare else 0
    pod = _pod(host, service, image, arguments(host, service), serves=True)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": head,
        "spec": {
            "replicas": 1 + len(service.replicas),
            "selector": {"matchLabels": labels},
            # A spare place means what a surge does: the old pod serves until the new one is ready.
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": surge, "maxUnavailable": 1 - surge},
            },
            "progressDeadlineSeconds": round(service.deadlines.ready + service.deadlines.stop + 600),
            "template": {"metadata": {"labels": dict(head["labels"])}, "spec": pod},
        },
    }


def _leader_worker_set(host: Host, service: Service, image: str, head: Json) -> Json:
    assert service.nodes
    port = service.meet.rpartition(":")[2]
    given = {**arguments(host, service), **LWS, "dist-init-addr": f"$(LWS_LEADER_ADDRESS):{port}"}
    labels = dict(head["labels"])
    templates = {
        f"{role}Template": {
            "metadata": {"labels": {**labels, "role": role}},
            "spec": _pod(host, service, image, given, serves=role == "leader"),
        }
        for role in ("leader", "worker")
    }
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": head,
        "spec": {
            "replicas": 1,
            "startupPolicy": "LeaderCreated",
            "leaderWorkerTemplate": {
                "size": len(service.nodes),
                "restartPolicy": "RecreateGroupOnPodRestart",
                **templates,
            },
        },
    }


def _service(host: Host, service: Service, head: Json, *, leads: bool) -> Json:
    router = host.router_of(service.slot)
    port = host.slots[service.slot].port
    selector = {"app.kubernetes.io/name": head["name"]}
    if leads:
        selector["role"] = "leader"
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": head,
        "spec": {
            "selector": selector,
            "ports": [{"name": "http", "port": router.port if router else port, "targetPort": "http"}],
        },
    }


def _pod(host: Host, service: Service, image: str, given: Mapping[str, Argument], *, serves: bool) -> Json:
    limits = service.deadlines
    grace = round(max(limits.stop, limits.drain)) + LEAVES_S
    volumes, mounts = _volumes(host, service)
    container: Json = {
        "name": "server",
        "image": image,
        "command": ["python3", "-m", ENGINES[service.engine].module],
        "args": [_literal(word) for word in words({**given, **_hidden(given)})],
        "volumeMounts": mounts,
    }
    if variables := _variables(service, given):
        container["env"] = variables
    if gpus := len(host.slots[service.slot].gpus):
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    if serves:
        port = host.slots[service.slot].port
        asked = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": PROBE_S}
        container["ports"] = [{"name": "http", "containerPort": port}]
        container["startupProbe"] = {**asked, "failureThreshold": max(1, round(limits.ready / PROBE_S))}
        container["readinessProbe"] = {**asked, "failureThreshold": 2}
        container["lifecycle"] = {"preStop": {"exec": {"command": ["sleep", str(LEAVES_S)]}}}
    return {"terminationGracePeriodSeconds": grace, "containers": [container], "volumes": volumes}


def _volumes(host: Host, service: Service) -> tuple[list[Json], list[Json]]:
    """The models' folders of the node, read only, where they lie on the host too; and memory for NCCL."""
    volumes: list[Json] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    mounts: list[Json] = [{"name": "shm", "mountPath": "/dev/shm"}]
    paths = dict.fromkeys(host.models[name].path for name in (service.model, service.drafter) if name)
    for number, path in enumerate(paths):
        volumes.append({"name": f"model-{number}", "hostPath": {"path": path, "type": "Directory"}})
        mounts.append({"name": f"model-{number}", "mountPath": path, "readOnly": True})
    return volumes, mounts


def _variables(service: Service, given: Mapping[str, Argument]) -> list[Json]:
    """The container's variables; secrets, and what looks like one in them or in an argument, come from a Secret."""
    found: list[Json] = []
    hidden = [*service.secrets, *(name for name, value in service.env.items() if is_secret(name, value))]
    for name in [*hidden, *(_hidden_variable(name) for name in _hidden(given))]:
        key = {"name": object_name(service.name), "key": name}
        found.append({"name": name, "valueFrom": {"secretKeyRef": key}})
    for name, value in service.env.items():
        if name not in hidden:
            found.append({"name": name, "value": value.replace("$(", "$$(")})
    return found


def _hidden(given: Mapping[str, Argument]) -> dict[str, Argument]:
    """The arguments that look like secrets, each with the variable in its place."""
    return {
        name: f"$({_hidden_variable(name)})"
        for name, value in given.items()
        if isinstance(value, str) and is_secret(name, value)
    }


def _hidden_variable(argument: str) -> str:
    return f"{OURS[1]}{argument.replace('-', '_').upper()}"


def _literal(word: str) -> str:
    """A word of a command line: ``$(NAME)`` would be replaced there, where it is none of ours."""
    return word if word.startswith(tuple(f"$({prefix}" for prefix in OURS)) else word.replace("$(", "$$(")
