"""Command lines of each engine and mode."""

from __future__ import annotations

import argparse

import pytest

from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.loader import Fleet
from fleetctl.inventory.models import Argument, Engine, Host, Mode, Service
from fleetctl.services.arguments import command, engine_args, metrics, setting_names, variables


def changed(host: Host, service: str, **fields: object) -> Service:
    """A service with other fields."""
    return host.services[service].model_copy(update=fields)


def options(host: Host, service: Service) -> dict[str, str | None]:
    """The command's options, with the last value of each."""
    words = command(host, service, "/venv")[3:]
    found: dict[str, str | None] = {}
    for index, word in enumerate(words):
        if word.startswith("--"):
            following = words[index + 1] if index + 1 < len(words) else "--"
            found[word] = None if following.startswith("--") else following
    return found


def test_the_standalone_server_is_told_all_it_needs(lab_fleet: Fleet) -> None:
    host = lab_fleet.hosts["ct200"]
    words = command(host, host.services["dflash"], "/envs/x")
    assert words == [
        "/envs/x/bin/python",
        "-m",
        "fleetctl.standalone",
        "--model",
        "/var/lib/fleetctl/models/smollm2-135m",
        "--drafter",
        "/var/lib/fleetctl/models/smollm2-135m-dflash",
        "--mode",
        "linear",
        "--served-model-name",
        "smollm2-135m",
        "--host",
        "0.0.0.0",
        "--port",
        "30001",
    ]
    assert "--drafter" not in command(host, host.services["autoregressive"], "/envs/x")


@pytest.mark.parametrize(
    ("service", "has", "lacks"),
    [
        ("autoregressive", {}, {"--speculative-algorithm", "--speculative-draft-model-path"}),
        (
            "dflash",
            {
                "--speculative-algorithm": "DFLASH",
                "--speculative-draft-model-path": "/dev/shm/Qwen3.6-27B-DFlash",
            },
            {"--speculative-ddtree-mode", "--tp-size"},
        ),
        (
            "shadow",
            {"--speculative-algorithm": "DDTREE", "--speculative-ddtree-mode": "shadow"},
            set(),
        ),
        (
            "ddtree",
            {
                "--speculative-algorithm": "DDTREE",
                "--speculative-ddtree-mode": "tree",
                "--speculative-ddtree-budget": "15",
                "--speculative-ddtree-allow-hybrid-unsafe": None,
                "--port": "30001",
            },
            {"--tp-size"},
        ),
        ("dflash-tp4", {"--tp-size": "4", "--port": "30004"}, set()),
    ],
)
def test_each_mode_of_sglang_has_its_flags(
    own_fleet: Fleet, service: str, has: dict[str, str | None], lacks: set[str]
) -> None:
    host = own_fleet.hosts["ct200"]
    found = options(host, host.services[service])
    assert {**found, **has} == found
    assert not lacks & set(found)


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        (15, ["--x", "15"]),
        (0.3, ["--x", "0.3"]),
        ("triton", ["--x", "triton"]),
        ("", ["--x", ""]),
        (True, ["--x"]),
        (False, []),
        ([1, 2, 4], ["--x", "1", "2", "4"]),
        ("-verbose", ["--x=-verbose"]),
    ],
)
def test_an_argument_becomes_its_words(own_fleet: Fleet, argument: Argument, words: list[str]) -> None:
    host = own_fleet.hosts["ct200"]
    without = command(host, changed(host, "dflash", args={}), "/venv")
    assert command(host, changed(host, "dflash", args={"x": argument}), "/venv") == [*without, *words]


def test_what_the_inventory_says_wins(own_fleet: Fleet) -> None:
    host = own_fleet.hosts["ct200"]
    args: dict[str, Argument] = {"host": "127.0.0.1", "tp-size": 2, "enable-metrics": False}
    words = command(host, changed(host, "dflash-tp4", args=args), "/venv")
    assert words[-4:] == ["--host", "127.0.0.1", "--tp-size", "2"]
    assert words.count("--host") == words.count("--tp-size") == 1
    assert "--enable-metrics" not in words


def test_metrics_are_named_where_the_engine_serves_them(lab_fleet: Fleet, own_fleet: Fleet) -> None:
    host = own_fleet.hosts["ct200"]
    assert "--enable-metrics" in command(host, host.services["dflash"], "/venv")
    assert metrics(host, host.services["dflash"]) == {
        "running": "sglang:num_running_reqs",
        "queued": "sglang:num_queue_reqs",
    }
    assert metrics(host, changed(host, "dflash", args={"enable-metrics": False})) == {}
    lab = lab_fleet.hosts["ct200"]
    assert metrics(lab, lab.services["ddtree"]) == {
        "running": "fleetctl_requests_running",
        "queued": "fleetctl_requests_queued",
    }


def test_a_service_sees_its_slots_gpus_and_its_own_variables(own_fleet: Fleet) -> None:
    host = own_fleet.hosts["ct200"]
    seen = variables(host, changed(host, "dflash-tp4", env={"NCCL_P2P_DISABLE": "1"}))
    assert seen == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "4,5,6,7",
        "NCCL_P2P_DISABLE": "1",
    }


def test_one_name_of_a_setting_becomes_each_engines_own() -> None:
    settings: dict[str, Argument] = {"budget": 15, "topk": 8, "min_prob": 0.01}
    assert engine_args("sglang", "tree", settings) == {
        "speculative-ddtree-budget": 15,
        "speculative-ddtree-topk": 8,
        "speculative-ddtree-min-prob": 0.01,
    }
    assert engine_args("standalone", "shadow", settings) == {"budget": 15, "top-k": 8, "min-prob": 0.01}
    assert engine_args("sglang", "linear", {"block-size": 8, "tp": 2}) == {
        "speculative-dflash-block-size": 8,
        "tp-size": 2,
    }
    assert engine_args("sglang", "tree", {"spine": True, "hybrid": "fork"}) == {
        "speculative-ddtree-spine": True,
        "speculative-ddtree-hybrid": "fork",
    }
    assert engine_args("other", "tree", {}) == {}


@pytest.mark.parametrize(
    ("engine", "mode", "settings", "what", "fix"),
    [
        ("sglang", "linear", {"budget": 15}, "the mode linear of sglang takes no budget", "shadow and tree"),
        ("standalone", "autoregressive", {"topk": 1}, "takes no topk", "shadow and tree"),
        ("sglang", "autoregressive", {"block_size": 8}, "takes no block_size", "linear and shadow and tree"),
        ("sglang", "tree", {"top-k": 8}, "sglang has no setting top-k", "did you mean topk?"),
        ("standalone", "tree", {"spine": True}, "standalone has no setting spine", "budget, min-prob, topk"),
        ("other", "tree", {"budget": 15}, "other has no setting budget", "there are no settings"),
        ("sglang", "tree", {"budget": 256}, "budget is 256 for sglang", "from 1 to 255"),
        ("sglang", "tree", {"budget": 0}, "budget is 0", "from 1 to 255"),
        ("sglang", "tree", {"budget": True}, "budget is True", "whole number"),
        ("sglang", "tree", {"budget": 8.0}, "budget is 8.0", "whole number"),
        ("sglang", "tree", {"budget": "8"}, "budget is '8'", "whole number"),
        ("standalone", "tree", {"min-prob": 1}, "min-prob is 1", "at least 0 and below 1"),
        ("sglang", "tree", {"hybrid": "yes"}, "hybrid is 'yes'", "fork, unsafe, refuse"),
        ("sglang", "tree", {"spine": 1}, "spine is 1", "true or false"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused(
    engine: Engine, mode: Mode, settings: dict[str, Argument], what: str, fix: str
) -> None:
    with pytest.raises(FleetError) as raised:
        engine_args(engine, mode, settings)
    assert raised.value.exit is Exit.INPUT
    assert what in raised.value.what and fix in raised.value.fix


def test_settings_are_those_of_the_engines_own_flags(own_fleet: Fleet) -> None:
    """The names are read out of both engines' parsers, so that a flag renamed there fails here."""
    from fleetctl.standalone.__main__ import _parser
    from tests.patches_sglang.modules import module

    parser = argparse.ArgumentParser()
    module("ddtree_args").add_cli_args(parser)
    sglang = {f"--{engine_name}" for engine_name in engine_args("sglang", "tree", ALL_OF_SGLANG)}
    own = set(parser._option_string_actions)
    assert {flag for flag in sglang if "-ddtree-" in flag} <= own
    standalone = engine_args("standalone", "tree", {"budget": 1, "topk": 1, "min-prob": 0.5})
    assert {f"--{name}" for name in standalone} <= set(_parser()._option_string_actions)
    assert set(ALL_OF_SGLANG) == set(setting_names("sglang", "tree"))
    assert setting_names("sglang", "linear") == ("block-size", "tp")
    assert setting_names("sglang", "autoregressive") == ("tp",)
    assert setting_names("standalone", "linear") == ()


ALL_OF_SGLANG: dict[str, Argument] = {
    "budget": 255,
    "topk": 64,
    "max-depth": 15,
    "min-prob": 0,
    "spine": False,
    "hybrid": "unsafe",
    "builder": "torch",
    "metrics": True,
    "block-size": 16,
    "tp": 4,
}
