"""The small readers behind doctor.facts: kernel log, models, toolkits, mounts, deadlines, the kernel's child."""

from __future__ import annotations

import json
import struct
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.agent.host import deep, hardware, kernellog, toolkits
from fleetctl.agent.host.parts import Parts
from fleetctl.agent.model import modelfiles

LOG = """\
2026-03-01T10:00:00+0000 box kernel: NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05
2026-03-01T10:05:00,500000+00:00 NVRM: Xid (PCI:0000:21:00): 79, pid=1812, name=python3, GPU has fallen off the bus.
[  812.100000] NVRM: Xid (PCI:0000:21:00): 31, pid='<unknown>', name=<unknown>, Ch 00000010
2026-03-01T11:00:00+0000 box kernel: Memory cgroup out of memory: Killed process 977 (sglang::schedul) total-vm:1kB
2026-03-01T11:00:01+0000 box kernel: usb 1-1: new device
"""
texts = st.text(alphabet=st.characters(codec="utf-8"), max_size=300)


def test_the_kernels_words() -> None:
    found = kernellog.read(LOG.splitlines())
    assert [(one["code"], one["bus_id"], one["time"]) for one in found["xid"]] == [
        (79, "0000:21:00", "2026-03-01T10:05:00.500000+00:00"),
        (31, "0000:21:00", None),
    ]
    assert [(one["pid"], one["name"]) for one in found["oom"]] == [(977, "sglang::schedul")]
    assert found["nvrm"] == ["NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05"]


def test_a_flood_is_kept_to_its_newest_lines() -> None:
    found = kernellog.read(
        f"NVRM: Xid (PCI:0000:01:00): 13, n={number} " + "x" * 9999 for number in range(500)
    )
    assert len(found["xid"]) == kernellog.KEEP
    assert "n=499" in found["xid"][-1]["line"] and len(found["xid"][-1]["line"]) == kernellog.WIDTH


@given(texts)
def test_no_line_breaks_the_kernel_logs_reader(text: str) -> None:
    found = kernellog.read([text, "NVRM" + text, "Out of memory: Killed process 1 (" + text])
    assert len(found["nvrm"]) + len(found["xid"]) + len(found["oom"]) <= 3


def shard(path: Path, *tensors: str, lack: int = 0) -> None:
    header = {
        name: {"dtype": "U8", "shape": [8], "data_offsets": [8 * place, 8 * place + 8]}
        for place, name in enumerate(tensors)
    }
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    data = struct.pack("<Q", len(text)) + text + bytes(8 * len(tensors))
    path.write_bytes(data[: len(data) - lack])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A whole model of two shards."""
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    shard(tmp_path / names[0], "a", "b")
    shard(tmp_path / names[1], "c")
    places = {"a": names[0], "b": names[0], "c": names[1]}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    config = {"model_type": "qwen3_5", "secret_note": 1, "text_config": {"num_hidden_layers": 4, "other": 2}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


def test_a_whole_model(model: Path) -> None:
    found = modelfiles.look(str(model))
    assert found["problems"] == []
    assert found["index"] == {"shards": 2, "missing": [], "short": []}
    assert found["config"] == {"model_type": "qwen3_5", "text_config": {"num_hidden_layers": 4}}
    assert found["bytes"] == sum(file.stat().st_size for file in model.iterdir())
    assert found["fs"]


def test_a_shard_cut_short_one_gone_and_one_of_another_model(model: Path) -> None:
    second = "model-00002-of-00002.safetensors"
    shard(model / second, "c", lack=3)
    found = modelfiles.look(str(model))
    assert found["index"] == {"shards": 2, "missing": [], "short": [second]}
    assert "its header asks for" in found["problems"][0]
    shard(model / second, "x")
    assert "holds c (1 in all), it does not" in modelfiles.look(str(model))["problems"][0]
    (model / second).unlink()
    found = modelfiles.look(str(model))
    assert (found["index"]["missing"], found["problems"]) == ([second], [f"{second}: not there"])
    (model / "model.safetensors.index.json").unlink()
    assert modelfiles.look(str(model))["index"]["missing"] == [second]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "git-lfs pointer"),
        (b"<html>not here</html>", "not a safetensors file"),
        (b"abc", "no header"),
        (struct.pack("<Q", 50) + b"{}", "cut short in its header"),
        (struct.pack("<Q", 2) + b"[]", "header is damaged"),
        (struct.pack("<Q", 12) + b'{"a": "what"', "header is damaged"),
    ],
)
def test_files_that_are_not_what_they_say(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    found = modelfiles.look(str(tmp_path))
    assert found["index"]["short"] == ["model.safetensors"]
    assert any(words in problem for problem in found["problems"])
    assert "config.json is not there" in found["problems"]


def test_no_folder_no_weights_and_broken_json(tmp_path: Path) -> None:
    assert modelfiles.look(str(tmp_path / "none"))["exists"] is False
    (tmp_path / "file").write_text("")
    assert modelfiles.look(str(tmp_path / "file"))["problems"] == ["it is a file, not a folder"]
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{torn")
    (folder / "gone.safetensors").symlink_to("/nowhere/blob")
    found = modelfiles.look(str(folder))
    assert (found["config"], found["index"]) == (None, None)
    assert len(found["problems"]) == 2


@given(st.binary(max_size=120))
def test_no_bytes_break_the_header_reader(data: bytes) -> None:
    path = Path("/dev/shm") / f"fleetctl-test-{data.__hash__() & 0xFFFFFF:x}.safetensors"
    try:
        for content in (data, struct.pack("<Q", len(data)) + data):
            path.write_bytes(content)
            try:
                assert modelfiles.read_header(path).size >= 8
            except ValueError as error:
                assert str(error)
    finally:
        path.unlink()


def toolkit(root: Path, name: str, *, said: object = None, nvcc: str | None = None) -> Path:
    folder = root / name
    (folder / "bin").mkdir(parents=True)
    if said is not None:
        (folder / "version.json").write_text(json.dumps(said))
    if nvcc is not None:
        (folder / "bin/nvcc").write_text(f"#!/bin/sh\n{nvcc}\n")
        (folder / "bin/nvcc").chmod(0o755)
    return folder


def test_toolkits_by_file_by_compiler_and_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"cuda": {"version": "12.8.1"}, "cuda_nvcc": {"version": "12.8.93"}}
    first = toolkit(tmp_path, "cuda-12.8", said=said, nvcc="exit 1")
    toolkit(tmp_path, "cuda-13.0", nvcc="echo 'Cuda compilation tools, release 13.0, V13.0.88'")
    toolkit(tmp_path, "cuda-11.4", nvcc="echo nothing")
    toolkit(tmp_path, "cuda-12.1", said=["odd"])
    (tmp_path / "cuda").symlink_to(first)
    (tmp_path / "cuda-samples").mkdir()
    monkeypatch.setattr(toolkits, "LOCAL", tmp_path)
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setattr(toolkits.shutil, "which", lambda name: None)
    found = {Path(one["path"]).name: one for one in toolkits.toolkits(seconds=60)}
    assert {name: (one["version"], one["nvcc"]) for name, one in found.items()} == {
        "cuda-12.8": ("12.8", "12.8.93"),
        "cuda-13.0": ("13.0", "13.0.88"),
        "cuda-11.4": ("11.4", None),
        "cuda-12.1": ("12.1", None),
    }
    assert [name for name, one in found.items() if one["default"]] == ["cuda-12.8"]
    assert found["cuda-12.8"]["links"] == [str(tmp_path / "cuda")]
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda-13.0"))
    assert [Path(one["path"]).name for one in toolkits.toolkits() if one["default"]] == ["cuda-13.0"]


def test_a_compiler_that_hangs_costs_its_time_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolkit(tmp_path, "cuda-11.4", nvcc="exec sleep 600")
    monkeypatch.setattr(toolkits, "LOCAL", tmp_path)
    begin = time.monotonic()
    (found,) = [one for one in toolkits.toolkits(seconds=0.5) if one["path"] == str(tmp_path / "cuda-11.4")]
    assert time.monotonic() - begin < 60
    assert (found["version"], found["nvcc"]) == ("11.4", None)


def test_ptxas_of_an_environment_is_read_and_not_run(tmp_path: Path) -> None:
    tools = tmp_path / "lib/python3.12/site-packages/triton/backends/nvidia/bin"
    tools.mkdir(parents=True)
    (tools / "ptxas").write_bytes(
        b"\x7fELF\0" + b"\0" * 5000 + b"Cuda compilation tools, release 12.8, V12.8.93\0"
    )
    (tools / "ptxas-blackwell").write_bytes(b"\0Build cuda_12.9.r12.9/compiler.36037853_0\0")
    (tools / "ptxas-odd").write_bytes(b"")
    found = toolkits.ptxas([str(tmp_path)])
    assert {Path(path).name: version for path, version in found.items()} == {
        "ptxas": "12.8.93",
        "ptxas-blackwell": "12.9",
        "ptxas-odd": None,
    }


def test_mounts_by_the_longest_and_the_last() -> None:
    text = (
        "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "21 20 0:5 / /srv/my\\040models rw shared:2 - nfs4 box:/m rw\n"
        "22 20 0:6 / /srv rw - xfs /dev/sdb rw\ntorn line\n"
    )
    known = hardware.mounts(text)
    assert [mount.fstype for mount in known] == ["ext4", "nfs4", "xfs"]
    named = {path: hardware.mount_of(path, known) for path in ("/srv/my models/a", "/srv/b", "/srvx")}
    assert [mount and mount.fstype for mount in named.values()] == ["nfs4", "xfs", "ext4"]


@given(texts)
def test_no_text_breaks_the_mounts_reader(text: str) -> None:
    assert len(hardware.mounts(text + " - " + text)) <= len((text + text).splitlines()) + 1


def test_a_part_that_is_late_or_fails_is_empty_and_says_why() -> None:
    parts = Parts()
    parts.ask_within(0.1, "late", [], time.sleep, 600)
    parts.ask_within(60, "wrong", {}, lambda: 1 / 0)
    parts.ask("fine", None, lambda: 3)
    begin = time.monotonic()
    assert [parts.answer(name) for name in parts.names()] == [[], {}, 3]
    assert time.monotonic() - begin < 60
    assert parts.errors == {"late": "no answer within 0.1 s", "wrong": "ZeroDivisionError: division by zero"}


def fake_python(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


GPU = {"index": 3, "uuid": "GPU-3", "state": "ok", "said": ""}


def test_the_kernel_by_an_environments_torch(tmp_path: Path) -> None:
    python = fake_python(
        tmp_path / "python", 'echo noise; echo "fleetctl-ok torch 2.11 $CUDA_VISIBLE_DEVICES"'
    )
    (found,) = deep.look([GPU], python)
    assert (found["gpu"], found["ok"], found["error"], found["by"]) == (3, True, None, "torch 2.11 GPU-3")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("exec sleep 600", "has not ended within 1 s"),
        ("echo 'CUDA error: unspecified launch failure' >&2; exit 1", "unspecified launch failure"),
        ("kill -SEGV $$", "signal 11"),
        ("exit 4", "status 4"),
    ],
)
def test_a_kernel_that_hangs_or_fails(tmp_path: Path, body: str, words: str) -> None:
    (found,) = deep.look([GPU], fake_python(tmp_path / "python", body), 1 if "sleep" in body else 60)
    assert (found["ok"], words in found["error"], found["by"]) == (False, True, "torch")
    assert found["driver_ok"] in (False, True)


def test_without_torch_the_driver_is_asked_and_a_dead_card_is_not(tmp_path: Path) -> None:
    python = fake_python(tmp_path / "python", "echo fleetctl-no-torch: none; exit 1")
    dead = {"index": 0, "uuid": None, "state": "lost", "said": "GPU is lost"}
    first, second, third = deep.look([dead, GPU, GPU], python)[:3]
    assert (first["ok"], first["error"], first["by"]) == (False, "GPU is lost", "nvidia-smi")
    assert second["by"].startswith("driver") and third["by"].startswith("driver")
    assert deep.look([GPU], str(tmp_path / "none"))[0]["by"].startswith("driver")
    assert deep.look([], sys.executable) == []
