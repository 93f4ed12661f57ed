"""What is seen on a host, as the fleet that its inventory describes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleetctl.adoption.words import parse
from fleetctl.errors import FleetError
from fleetctl.inventory.loader import load_fleet
from fleetctl.services.arguments import command
from fleetctl.services.unit import render_unit
from tests.adoption.conftest import Adopt
from tests.adoption.recorded import DDTREE, DFLASH, VENV, seen, server, text_of, unit

LAB = load_fleet(Path(__file__).parents[2], "inventories/lab")
SMOKE = "sglang-dflash-smoke.service"
WRAPPER = "/root/venv/bin/python -m fleetctl.standalone --model /dev/shm/Qwen3.6-27B --drafter /dev/shm/D --budget 8"
PLAIN = "/v/bin/python -m sglang.launch_server --model-path /m/Qwen3 --port 30002"


def one(adopt: Adopt, *args: Any, **kwargs: Any) -> tuple[Any, Any, str]:
    """The only host with its only service."""
    fleet, text = adopt(seen(*args, **kwargs))
    host = fleet.hosts["box"]
    (service,) = host.services.values()
    return host, service, text


def test_a_unit_renders_byte_for_byte_and_its_arguments_are_the_rest(adopt: Adopt) -> None:
    text = text_of(DFLASH)
    fleet, _ = adopt(seen(server(DFLASH, unit=SMOKE, gpus=[1]), units={SMOKE: unit(text, SMOKE)}))
    host = fleet.hosts["box"]
    service = host.services["sglang-dflash-smoke"]
    assert render_unit(fleet, host, service.name, "/elsewhere").text == text
    assert (service.engine, service.mode, service.slot, service.unit) == ("sglang", "linear", "gpu1", SMOKE)
    assert service.args == {
        "attention-backend": "triton",
        "grammar-backend": "none",
        "page-size": 1,
        "disable-cuda-graph": True,
        "served-model-name": False,
        "enable-metrics": False,
    }
    assert host.models[service.model].path == "/dev/shm/Qwen3.6-27B"
    assert service.drafter and host.models[service.drafter].path == "/dev/shm/Qwen3.6-27B-DFlash"
    assert host.environments[service.environment].path == VENV["path"]
    assert service.model_id == "/dev/shm/Qwen3.6-27B"


@pytest.mark.parametrize(
    "line",
    [
        DFLASH,
        DDTREE,
        WRAPPER,
        PLAIN,
        PLAIN + " --served-model-name a --enable-metrics --host 0.0.0.0",
        PLAIN + " --tp 2 --mem-fraction-static 0.30 --random-seed -1 --json-model-override-args '{\"a\": 1}'",
        PLAIN + " --lora-paths a=/x b=/y --trust-remote-code --context-length=32768",
        PLAIN + " --speculative-algorithm EAGLE --speculative-draft-model-path /d --speculative-eagle-topk 4",
        PLAIN + " --speculative-algorithm NEXTN --speculative-num-steps 3",
    ],
)
def test_the_service_of_a_bare_process_is_started_with_its_command_line(adopt: Adopt, line: str) -> None:
    found = server(line, gpus=[2, 3])
    host, service, text = one(adopt, found)
    rendered = command(host, service, "/v")
    wanted = parse(found["arguments"], found["engine"])
    again = parse(rendered[3:], found["engine"])
    assert again.given == wanted.given
    assert rendered[1:3] == [
        "-m",
        "sglang.launch_server" if service.engine == "sglang" else "fleetctl.standalone",
    ]
    assert "no unit starts pid 100" in text


@pytest.mark.parametrize(
    ("more", "mode"),
    [
        ("", "autoregressive"),
        (" --speculative-algorithm DFLASH --speculative-draft-model-path /d", "linear"),
        (
            " --speculative-algorithm dflash --speculative-draft-model-path /d --speculative-ddtree-budget 15",
            "tree",
        ),
        (" --speculative-algorithm DDTREE --speculative-draft-model-path /d", "tree"),
        (
            " --speculative-algorithm DDTREE --speculative-draft-model-path /d --speculative-ddtree-mode shadow",
            "shadow",
        ),
        (" --speculative-algorithm EAGLE3 --speculative-draft-model-path /d", "linear"),
        (
            " --speculative-algorithm EAGLE --speculative-draft-model-path /d --speculative-eagle-topk 8",
            "tree",
        ),
        (" --speculative-algorithm NGRAM", "autoregressive"),
    ],
)
def test_modes_of_sglang(adopt: Adopt, more: str, mode: str) -> None:
    _, service, text = one(adopt, server(PLAIN + more))
    assert service.mode == mode
    assert ("NGRAM" in text) == ("NGRAM" in more)


def test_modes_of_the_standalone_server(adopt: Adopt) -> None:
    assert one(adopt, server(WRAPPER))[1].mode == "tree"
    assert one(adopt, server(WRAPPER + " --mode shadow"))[1].mode == "shadow"


def test_a_unit_of_fleetctl_needs_no_template(adopt: Adopt) -> None:
    fleet, host = LAB, LAB.hosts["ct200"]
    text = render_unit(fleet, host, "ddtree", "/var/lib/fleetctl/envs/standalone-1").text
    name = host.services["ddtree"].unit
    line = " ".join(command(host, host.services["ddtree"], "/var/lib/fleetctl/envs/standalone-1"))
    environment = {**VENV, "path": "/var/lib/fleetctl/envs/standalone-1"}
    found = server(line, unit=name, gpus=[1], environment=environment)
    described = unit(text, name)
    adopted, written = adopt(seen(found, units={name: described}))
    box = adopted.hosts["box"]
    service = box.services["ddtree"]
    assert (service.template, service.slot) == ("standalone.service.j2", "native")
    assert render_unit(adopted, box, "ddtree", environment["path"]).text == text
    assert "template:" not in written


def test_units_of_one_port_are_services_of_one_slot(adopt: Adopt) -> None:
    tree = "sglang-ddtree-tree.service"
    units = {SMOKE: unit(text_of(DFLASH), SMOKE)}
    units[tree] = unit(text_of(DDTREE), tree, active="inactive", enabled="disabled")
    fleet, text = adopt(seen(server(DFLASH, unit=SMOKE, gpus=[1]), units=units))
    services = fleet.hosts["box"].services
    assert {entry.slot for entry in services.values()} == {"gpu1"}
    assert services["sglang-ddtree-tree"].mode == "tree"
    assert "not running when it was looked at" in text
    assert "a deploy would enable it" in text


def test_secrets_are_named_and_never_written(adopt: Adopt) -> None:
    line = PLAIN + " --api-key sk-1234567890abcdef"
    text = text_of(line) + "Environment=HF_TOKEN=hf_abcdefghijklmnop A=1\n"
    found = unit(text, "x.service", variables={"HF_TOKEN": None, "A": "1"})
    host, service, written = one(adopt, server(line, unit="x.service"), units={"x.service": found})
    assert service.keep_unit
    assert service.env == {"A": "1"}
    assert "api-key" not in service.args
    assert "HF_TOKEN" in written
    assert "api-key" in written
    assert "sk-1234" not in written
    assert "hf_abc" not in written
    assert host.slots


def test_servers_of_one_gpu_get_slots_with_the_gpu_in_one(adopt: Adopt) -> None:
    fleet, text = adopt(seen(server(DFLASH, gpus=[1]), server(PLAIN, gpus=[1], pid=101)))
    slots = fleet.hosts["box"].slots
    assert sorted((slot.port, slot.gpus) for slot in slots.values()) == [(30001, [1]), (30002, [])]
    assert "runs on GPU 1 too" in text


def test_two_processes_on_one_port(adopt: Adopt) -> None:
    fleet, text = adopt(seen(server(PLAIN), server(PLAIN, pid=101)))
    assert set(fleet.hosts["box"].services) == {"sglang-30002", "sglang-30002-2"}
    assert len(fleet.hosts["box"].slots) == 1
    assert "another process runs on the same port" in text


@pytest.mark.parametrize(
    ("variables", "gpus", "says"),
    [
        (
            {"CUDA_VISIBLE_DEVICES": "3,2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
            [2, 3],
            "as CUDA_VISIBLE_DEVICES says",
        ),
        ({"CUDA_VISIBLE_DEVICES": "0"}, [0], "they may be others"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-5a1b"}, [], "GPU-5a1b"),
        ({"CUDA_VISIBLE_DEVICES": "9"}, [], "names GPU 9"),
        ({}, [], "not known"),
    ],
)
def test_gpus_that_nvidia_smi_does_not_tell(
    adopt: Adopt, variables: dict[str, str], gpus: list[int], says: str
) -> None:
    host, service, text = one(adopt, server(PLAIN, variables=variables))
    assert host.slots[service.slot].gpus == gpus
    assert says in text.replace("\n  # ", " ")


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (server(PLAIN, container=True), "runs in a container"),
        (server("/usr/bin/docker-proxy -host-port 8000", port=8000), "runs in a container"),
        (server("/opt/vllm/bin/vllm serve /m/x"), "no unit starts it"),
        (server("/usr/bin/llama-server -m x.gguf", port=None), "name no port"),
        (server(PLAIN, environment=None), "could not be found out"),
        (server(PLAIN, environment={**VENV, "path": "/my venv"}), "would have to quote"),
    ],
)
def test_what_no_service_can_say_is_a_comment(adopt: Adopt, found: Any, says: str) -> None:
    fleet, text = adopt(seen(found))
    assert fleet.hosts["box"].services == {}
    assert says in text.replace("\n# ", " ")


def test_a_unit_that_starts_several_servers(adopt: Adopt) -> None:
    units = {"all.service": unit(text_of("/root/start.sh"), "all.service")}
    fleet, text = adopt(
        seen(server(DFLASH, unit="all.service"), server(PLAIN, unit="all.service", pid=101), units=units)
    )
    assert fleet.hosts["box"].services == {}
    assert text.count("starts several servers at once") == 2


def test_wrappers_drop_ins_and_files_are_said(adopt: Adopt) -> None:
    described = unit(
        text_of("/root/start.sh") + "[Service]\nExecStart=/bin/true\n",
        "x.service",
        shell="/root/start.sh",
        drop_ins=["/etc/systemd/system/x.service.d/override.conf"],
        environment_files=["/etc/default/x"],
    )
    _, service, text = one(adopt, server(PLAIN, unit="x.service"), units={"x.service": described})
    flat = text.replace("\n  # ", " ")
    for says in ("through a shell: /root/start.sh", "2 ExecStart lines", "override.conf", "/etc/default/x"):
        assert says in flat
    assert service.template == "box-x.service.j2"


def test_a_model_by_its_name_in_a_hub(adopt: Adopt) -> None:
    folder = "/root/.cache/huggingface/hub/models--zai-org--GLM-4.7-FP8/snapshots/abc"
    line = "/v/bin/python -m sglang.launch_server --model zai-org/GLM-4.7-FP8"
    host, service, _ = one(adopt, server(line, hub={"zai-org/GLM-4.7-FP8": folder}))
    assert service.model == "glm-4.7-fp8"
    assert host.models[service.model].path == folder
    assert service.args["model-path"] == "zai-org/GLM-4.7-FP8"
    assert service.model_id == "zai-org/GLM-4.7-FP8"


def test_relative_paths_of_a_bare_process_are_read_from_where_it_was_started(adopt: Adopt) -> None:
    line = (
        "/v/bin/python -m fleetctl.standalone --model small --drafter ./draft --log-file out/log.txt --port 7"
    )
    paths = {
        word: {"path": f"/srv/models/{name}", "exists": True, "kind": "folder", "bytes": 1}
        for word, name in (("small", "small"), ("./draft", "draft"))
    }
    host, service, text = one(adopt, server(line, cwd="/srv/models", paths=paths))
    assert host.models[service.model].path == "/srv/models/small"
    assert {"model", "drafter"}.isdisjoint(service.args)
    rendered = command(host, service, "/v")
    assert rendered[rendered.index("--model") + 1] == "/srv/models/small"
    assert rendered[rendered.index("--drafter") + 1] == "/srv/models/draft"
    said = " ".join(text.replace("#", " ").split())
    assert "log-file may name files in /srv/models, where it was started" in said


def test_a_host_where_nothing_serves(adopt: Adopt) -> None:
    fleet, text = adopt(seen(unseen=["who holds port 5: a process of another user"], unasked=[29500]))
    host = fleet.hosts["box"]
    assert (host.slots, host.services, host.gpus.count, host.gpus.arch) == ({}, {}, 8, "sm120")
    for says in ("nothing that serves models", "who holds port 5", "29500"):
        assert says in text


def test_gpus_that_are_gone_or_of_another_kind(adopt: Adopt) -> None:
    answer = seen()
    cards = answer["gpus"]["gpus"]
    cards[0].update(name=None, compute_cap=None, memory_total_mib=None)
    cards[3].update(name="NVIDIA H200")
    answer["gpus"]["error"] = "nvidia-smi ended with status 255: Unknown Error"
    fleet, text = adopt(answer)
    assert fleet.hosts["box"].gpus.name == "NVIDIA RTX PRO 6000"
    for says in ("GPU 0 does not answer", "GPU 3 is another kind: NVIDIA H200", "status 255"):
        assert says in text


def test_a_name_that_clashes_with_a_unit_that_is_there(adopt: Adopt) -> None:
    other = "fleetctl-sglang-30002.service"
    units = {other: unit(text_of(PLAIN), other, active="inactive")}
    fleet, _ = adopt(seen(server(PLAIN), units=units))
    assert {entry.unit for entry in fleet.hosts["box"].services.values()} == {
        "fleetctl-sglang-30002-2.service",
        other,
    }


def test_a_template_that_is_there_is_not_overwritten(adopt: Adopt) -> None:
    def answer(text: str) -> Any:
        return seen(server(PLAIN, unit="x.service"), units={"x.service": unit(text, "x.service")})

    adopt(answer(text_of(PLAIN)))
    with pytest.raises(FleetError) as said:
        adopt(answer("# changed\n" + text_of(PLAIN)))
    assert "box-x.service.j2" in said.value.what
    assert "+# changed" in said.value.evidence
