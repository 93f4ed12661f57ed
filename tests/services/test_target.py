"""Targets of plans: from the inventory, and from what a host has kept."""

from __future__ import annotations

import json

from fleetctl.inventory.loader import Fleet
from fleetctl.services.target import build_target, recorded_target
from fleetctl.services.unit import render_unit

KEYS = {
    "service", "mode", "engine", "unit", "unit_text", "environment", "environment_digest", "model_id",
    "model_paths", "metrics", "probe", "deadlines", "adopted", "remedies", "port", "rungs", "nodes", "rank",
    "api_key",
}  # fmt: skip


def test_a_service_of_the_inventory_becomes_a_target(lab_fleet: Fleet) -> None:
    host = lab_fleet.hosts["ct200"]
    target = build_target(lab_fleet, host, "ddtree", "/envs/standalone-cpu-0123", "0123")
    found = target.to_dict()
    assert set(found) == KEYS
    assert json.loads(json.dumps(found)) == found
    assert found["unit_text"] == render_unit(lab_fleet, host, "ddtree", "/envs/standalone-cpu-0123").text
    assert (found["service"], found["mode"], found["engine"]) == ("ddtree", "tree", "standalone")
    assert found["model_paths"] == [
        "/var/lib/fleetctl/models/smollm2-135m",
        "/var/lib/fleetctl/models/smollm2-135m-dflash",
    ]
    assert found["probe"]["max_tokens"] == 16 and found["probe"]["prompt"]
    assert found["adopted"] is False


def test_what_a_host_kept_is_what_is_gone_back_to(lab_fleet: Fleet) -> None:
    host = lab_fleet.hosts["ct200"]
    kept = build_target(lab_fleet, host, "dflash", "/envs/old", "old").to_dict()
    target = recorded_target(
        host, "native", {**kept, "model_id": "as-it-was", "unit_sha256": "…"}, adopted=False
    )
    assert target.to_dict() == {**kept, "model_id": "as-it-was"}


def test_what_comes_back_has_the_longer_of_its_old_and_new_time_to_prove_itself(lab_fleet: Fleet) -> None:
    host = lab_fleet.hosts["ct200"]
    kept = build_target(lab_fleet, host, "dflash", "/envs/old", "old").to_dict()
    now = host.services["dflash"].deadlines.model_dump()
    had = {"drain": now["drain"] + 1, "ready": now["ready"] + 100, "generate": now["generate"] - 1}
    target = recorded_target(host, "native", {**kept, "deadlines": had}, adopted=False)
    assert target.deadlines == {**now, "ready": now["ready"] + 100}
    stranger = recorded_target(host, "native", {"unit": "other.service", "deadlines": had}, adopted=True)
    assert stranger.deadlines == had


def test_a_state_without_the_units_text_keeps_the_file_on_the_host(lab_fleet: Fleet) -> None:
    host = lab_fleet.hosts["ct200"]
    target = recorded_target(
        host, "native", {"unit": "fleetctl-dflash.service", "service": "dflash"}, adopted=False
    )
    assert target.unit_text is None
    assert target.model_id == "smollm2-135m"


def test_a_found_unit_that_the_inventory_names_is_that_service(own_fleet: Fleet) -> None:
    host = own_fleet.hosts["ct200"]
    target = recorded_target(host, "native", {"unit": "sglang-dflash-smoke.service"}, adopted=True)
    assert (target.service, target.mode, target.engine) == ("dflash", "linear", "sglang")
    assert target.metrics["running"] == "sglang:num_running_reqs"
    assert target.adopted


def test_a_strangers_unit_is_its_own_service(lab_fleet: Fleet) -> None:
    target = recorded_target(lab_fleet.hosts["ct200"], "native", {"unit": "other.service"}, adopted=True)
    assert (target.service, target.mode, target.engine, target.model_id) == ("other", "", "", "")
    assert target.metrics == {}
    assert target.probe["max_tokens"] > 0, "it is still asked for a generation"


def test_a_unit_of_another_slot_is_a_stranger_in_this_one(lab_fleet: Fleet) -> None:
    host = lab_fleet.hosts["ct200"]
    target = recorded_target(host, "wrapper", {"unit": "fleetctl-dflash.service"}, adopted=True)
    assert (target.service, target.engine) == ("fleetctl-dflash", "")
