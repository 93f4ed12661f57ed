"""What ``export k8s`` writes, against the schemas of Kubernetes and of LeaderWorkerSet."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.errors import Exit, FleetError
from fleetctl.export.k8s import as_yaml, check_image, check_namespace, export_services, object_name
from fleetctl.inventory.loader import Fleet, load_fleet
from fleetctl.inventory.models import Host

Json = dict[str, Any]

REPOSITORY = Path(__file__).parents[2]
LEADER_WORKER_SET = json.loads(Path(__file__).with_name("leaderworkerset.v1.json").read_text())
VERSIONS = ("1.33", "1.37")
OWN = load_fleet(REPOSITORY, "inventories")


def check(objects: list[Json]) -> None:
    """Each object by its schema, unknown fields refused; a LeaderWorkerSet's pods as a Deployment's."""
    for one in objects:
        if one["kind"] != "LeaderWorkerSet":
            for version in VERSIONS:
                kubernetes_validate.validate(one, version, strict=True)
            continue
        jsonschema.validate(one, LEADER_WORKER_SET)
        templates = one["spec"]["leaderWorkerTemplate"]
        for role in ("leaderTemplate", "workerTemplate"):
            name = {"app.kubernetes.io/name": one["metadata"]["name"]}
            spec = {"selector": {"matchLabels": name}, "template": templates[role]}
            whole = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": spec}
            for version in VERSIONS:
                kubernetes_validate.validate(whole, version, strict=True)


def with_service(**changes: Any) -> tuple[Fleet, Host]:
    """The inventory's ct200 with its service dflash changed."""
    host = OWN.hosts["ct200"]
    changed = host.services["dflash"].model_copy(update=changes)
    host = host.model_copy(update={"services": {**host.services, "dflash": changed}})
    return Fleet(OWN.root, OWN.inventory, {**OWN.hosts, "ct200": host}, OWN.sources), host


@pytest.mark.parametrize(("inventory", "host"), [(i, h) for i in ("", "/lab") for h in ("ct200", "ct129")])
def test_every_service_of_the_repository_is_valid_there(inventory: str, host: str) -> None:
    fleet = load_fleet(REPOSITORY, f"inventories{inventory}")
    objects = export_services(fleet, fleet.hosts[host], list(fleet.hosts[host].services), "image:1", None)
    assert len(objects) == 2 * len(fleet.hosts[host].services)
    check(objects)
    assert list(yaml.safe_load_all(as_yaml(objects))) == objects


def test_the_schemas_refuse_what_is_wrong() -> None:
    fleet, host = with_service(nodes=["ct200", "ct129"], meet="10.0.0.1:20000")
    good = export_services(fleet, host, ["dflash"], "image:1", None)
    check(good)
    for breaking in ({"sizes": 2}, {"size": "two"}, {"restartPolicy": "Never"}):
        bad = copy.deepcopy(good)
        bad[0]["spec"]["leaderWorkerTemplate"].update(breaking)
        with pytest.raises(jsonschema.ValidationError):
            check(bad)
    bad = copy.deepcopy(good)
    bad[0]["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]["arg"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        check(bad)


def test_nodes_become_a_set_whose_pods_find_each_other() -> None:
    fleet, host = with_service(nodes=["ct200", "ct129"], tp=16, meet="10.0.0.1:20000")
    work, service = export_services(fleet, host, ["dflash"], "image:1", "models")
    assert (work["kind"], work["metadata"]["namespace"]) == ("LeaderWorkerSet", "models")
    template = work["spec"]["leaderWorkerTemplate"]
    assert template["size"] == 2
    for role in ("leaderTemplate", "workerTemplate"):
        (container,) = template[role]["spec"]["containers"]
        words = container["args"]
        at = {
            name: words[words.index(name) + 1]
            for name in words
            if name.startswith("--") and name != words[-1]
        }
        assert at["--nnodes"] == "$(LWS_GROUP_SIZE)"
        assert at["--node-rank"] == "$(LWS_WORKER_INDEX)"
        assert at["--dist-init-addr"] == "$(LWS_LEADER_ADDRESS):20000"
        assert at["--tp-size"] == "16"
    assert "readinessProbe" not in template["workerTemplate"]["spec"]["containers"][0]
    assert service["spec"]["selector"]["role"] == "leader"


def test_a_spare_place_is_a_surge_and_replicas_are_replicas() -> None:
    fleet = load_fleet(Path(__file__).parent / "fleet", ".")
    objects = export_services(fleet, fleet.hosts["alpha"], list(fleet.hosts["alpha"].services), "i:1", None)
    check(objects)
    specs = {one["metadata"]["name"]: one["spec"] for one in objects if one["kind"] == "Deployment"}
    assert set(specs) == {"spared", "many"}, "neither routers nor a replica's twin"
    assert specs["spared"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert specs["many"]["replicas"] == 3
    ports = [one["spec"]["ports"][0]["port"] for one in objects if one["kind"] == "Service"]
    assert ports == [30000, 31000], "clients go on using the routers' ports"


def test_secrets_are_not_written() -> None:
    token, key = "hf_abcdefghijklmnopqrstuvwx", "sk-0123456789abcdef0123"
    fleet, host = with_service(
        env={"HF_TOKEN": token, "PLAIN": "$(x) text"}, args={"api-key": key}, secrets={"KEY": "env:KEY"}
    )
    objects = export_services(fleet, host, ["dflash"], "image:1", None)
    check(objects)
    assert token not in as_yaml(objects) and key not in as_yaml(objects)
    (container,) = objects[0]["spec"]["template"]["spec"]["containers"]
    found = {entry["name"]: entry for entry in container["env"]}
    assert found["HF_TOKEN"]["valueFrom"]["secretKeyRef"] == {"name": "dflash", "key": "HF_TOKEN"}
    assert found["KEY"]["valueFrom"]["secretKeyRef"] == {"name": "dflash", "key": "KEY"}
    assert found["ARGUMENT_API_KEY"]["valueFrom"]["secretKeyRef"]["key"] == "ARGUMENT_API_KEY"
    assert container["args"][container["args"].index("--api-key") + 1] == "$(ARGUMENT_API_KEY)"
    assert found["PLAIN"]["value"] == "$$(x) text"


@pytest.mark.parametrize(
    "image",
    [
        "lmsysorg/sglang:v0.5.11",
        "sglang",
        "localhost:5000/a/b__c:latest",
        "Registry.example:443/x@sha256:" + "a" * 64,
        "[::1]:5000/x:1@sha256:" + "0" * 64,
    ],
)
def test_an_image_by_its_name(image: str) -> None:
    check_image(image)


@pytest.mark.parametrize(
    "image", ["a b", "", "Sglang", "a:b:c", "a/", "a:", "a@sha256:12", "a\nb", "https://a/b"]
)
def test_what_is_no_image_is_refused(image: str) -> None:
    with pytest.raises(FleetError, match="is no image's name") as caught:
        check_image(image)
    assert caught.value.exit == Exit.INPUT


def test_what_cannot_be_exported_is_named_with_its_line() -> None:
    fleet, host = with_service(keep_unit=True)
    with pytest.raises(FleetError) as caught:
        export_services(fleet, host, ["dflash"], "image:1", None)
    assert (caught.value.exit, "dflash" in caught.value.what) == (Exit.INPUT, True)
    assert caught.value.where.startswith("inventories/ct200.yaml:")
    same = host.model_copy(
        update={"services": dict.fromkeys(("a.b", "a-b"), OWN.hosts["ct200"].services["dflash"])}
    )
    with pytest.raises(FleetError, match=r"both be called a-b"):
        export_services(fleet, same, ["a.b", "a-b"], "image:1", None)


@settings(deadline=None, max_examples=60)
@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", fullmatch=True))
def test_any_name_is_one_there(name: str) -> None:
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", object_name(name))


@settings(deadline=None, max_examples=25)
@given(
    args=st.dictionaries(
        st.from_regex(r"[a-z][a-z-]{0,8}", fullmatch=True), st.text(max_size=20), max_size=3
    ),
    env=st.dictionaries(st.from_regex(r"[A-Z][A-Z_]{0,8}", fullmatch=True), st.text(max_size=20), max_size=3),
)
def test_any_text_of_the_inventory_is_valid_there(args: dict[str, str], env: dict[str, str]) -> None:
    fleet, host = with_service(args=args, env=env)
    objects = export_services(fleet, host, ["dflash"], "image:1", None)
    kubernetes_validate.validate(objects[0], VERSIONS[-1], strict=True)


@pytest.mark.parametrize("namespace", ["models", "a", "0", "team-1", "a" * 63])
def test_a_namespace_is_a_dns_label(namespace: str) -> None:
    check_namespace(namespace)


@pytest.mark.parametrize("namespace", ["", "Bad_NS", "a b", "-a", "a-", "a.b", "a" * 64, "a\n"])
def test_what_is_no_dns_label_is_refused(namespace: str) -> None:
    with pytest.raises(FleetError, match="is no namespace's name") as caught:
        check_namespace(namespace)
    assert caught.value.exit == Exit.INPUT
