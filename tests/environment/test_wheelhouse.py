"""Resolving against a folder of wheels: no network, pip is the real one."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fleetctl.environment.platform import HostPlatform
from fleetctl.environment.spec import EnvironmentSpec
from fleetctl.environment.wheelhouse import BUILDER, CACHE, resolve
from fleetctl.errors import Exit, FleetError
from tests.environment.wheels import make_wheel
from tests.transport.sshd import wait_for


def spec(*requirements: str, **more: Any) -> EnvironmentSpec:
    fields = {"name": "tiny", "python": ">=3.9", "requirements": list(requirements), **more}
    return EnvironmentSpec.model_validate(fields)


def silent(event: dict[str, Any]) -> None:
    del event


def test_finds_and_downloads_the_pins(index: Path, platform: HostPlatform, tmp_path: Path) -> None:
    make_wheel(index, "alpha", requires=("beta>=1",))
    make_wheel(index, "beta", "1.5")
    killed = tmp_path / "c" / CACHE / ".download-killed"
    killed.mkdir(parents=True)
    house = resolve(spec("alpha==1.0", "beta==1.5", local=["standalone"]), platform, tmp_path / "c", silent)
    assert [wheel.name for wheel in house.wheels] == ["alpha", "beta", "fleetctl-standalone"]
    assert house.builder.name == "uv"
    for wheel in (*house.wheels, house.builder):
        assert (house.folder / wheel.filename).stat().st_size == wheel.size
        assert wheel.unpacked > 0
    assert not list(house.folder.glob(".*"))


def test_second_time_asks_no_index(index: Path, platform: HostPlatform, tmp_path: Path) -> None:
    make_wheel(index, "alpha")
    first = resolve(spec("alpha==1.0"), platform, tmp_path / "c", silent)
    for path in index.iterdir():
        path.unlink()
    events: list[dict[str, object]] = []
    second = resolve(spec("alpha==1.0"), platform, tmp_path / "c", events.append)
    assert second == first
    assert second.digest == first.digest
    assert events == []


def test_a_damaged_cached_wheel_is_fetched_again(index: Path, platform: HostPlatform, tmp_path: Path) -> None:
    make_wheel(index, "alpha")
    first = resolve(spec("alpha==1.0"), platform, tmp_path / "c", silent)
    cached = first.folder / first.wheels[0].filename
    whole = cached.read_bytes()
    cached.write_bytes(whole[:-1] + b"?")
    assert resolve(spec("alpha==1.0"), platform, tmp_path / "c", silent).digest == first.digest
    assert cached.read_bytes() == whole


def test_an_environment_may_hold_uv_itself(index: Path, platform: HostPlatform, tmp_path: Path) -> None:
    make_wheel(index, "alpha")
    house = resolve(spec("alpha==1.0", BUILDER), platform, tmp_path / "c", silent)
    assert [wheel.name for wheel in house.wheels] == ["alpha", "uv"]
    assert house.builder == house.wheels[1]


def test_digest_is_of_the_content_alone(index: Path, platform: HostPlatform, tmp_path: Path) -> None:
    make_wheel(index, "alpha")
    make_wheel(index, "beta")
    one = resolve(spec("alpha==1.0", "beta==1.0"), platform, tmp_path / "a", silent)
    two = resolve(spec("beta==1.0", "alpha==1.0", imports=["alpha"]), platform, tmp_path / "b", silent)
    assert one.digest == two.digest
    assert len(one.digest) == 12
    make_wheel(index, "beta", code="VALUE = 'other'\n")
    three = resolve(spec("alpha==1.0", "beta==1.0"), platform, tmp_path / "d", silent)
    assert three.digest != one.digest
    other = resolve(spec("alpha==1.0"), HostPlatform("3.12.1", "x86_64", "2.39"), tmp_path / "a", silent)
    assert other.digest != resolve(spec("alpha==1.0"), platform, tmp_path / "a", silent).digest


def test_wheels_are_the_hosts_not_the_controllers(index: Path, tmp_path: Path) -> None:
    for tag in ("cp310-cp310-manylinux_2_17_x86_64", "cp312-cp312-manylinux_2_34_x86_64", "py3-none-any"):
        make_wheel(index, "alpha", tag=tag)
    for python, glibc, expected in (
        ("3.10.2", "2.31", "cp310"),
        ("3.12.3", "2.39", "cp312"),
        ("3.12.3", "2.31", "py3-none-any"),
    ):
        house = resolve(spec("alpha==1.0"), HostPlatform(python, "x86_64", glibc), tmp_path / "c", silent)
        assert expected in house.wheels[0].filename


def test_two_at_once_ask_once(index: Path, platform: HostPlatform, tmp_path: Path) -> None:
    make_wheel(index, "alpha")
    events: list[dict[str, Any]] = []
    tiny = spec("alpha==1.0", local=["standalone"])

    def said(event: dict[str, Any]) -> None:
        events.append(event)
        if event["text"].startswith("resolve"):
            wait_for(lambda: any("another fleetctl" in other["text"] for other in events))

    with ThreadPoolExecutor(2) as pool:
        houses = list(pool.map(lambda _: resolve(tiny, platform, tmp_path / "c", said), range(2)))
    assert houses[0] == houses[1]
    assert sum(event["text"].startswith("resolve") for event in events) == 1


def failing(spec_: EnvironmentSpec, platform: HostPlatform, cache: Path) -> FleetError:
    with pytest.raises(FleetError) as caught:
        resolve(spec_, platform, cache, silent)
    assert not list(cache.rglob(".download*"))
    return caught.value


def test_a_version_that_does_not_exist(index: Path, platform: HostPlatform, tmp_path: Path) -> None:
    for version in ("1.0", "1.2", "2.0"):
        make_wheel(index, "alpha", version)
    error = failing(spec("alpha==1.3"), platform, tmp_path / "c")
    assert (error.exit, error.what) == (Exit.INPUT, "alpha has no version 1.3")
    assert "1.0, 1.2, 2.0" in error.fix


def test_a_version_without_a_wheel_for_the_host(index: Path, platform: HostPlatform, tmp_path: Path) -> None:
    make_wheel(index, "alpha", "1.0")
    make_wheel(index, "alpha", "2.0", tag="cp312-cp312-manylinux_2_34_x86_64")
    (index / "alpha-2.0.tar.gz").write_bytes(b"")
    error = failing(spec("alpha==2.0"), platform, tmp_path / "c")
    assert error.what == "alpha==2.0 has no wheel for the host (cp311, x86_64, glibc 2.36)"
    assert "1.0" in error.fix


def test_pins_that_are_not_complete(index: Path, platform: HostPlatform, tmp_path: Path) -> None:
    make_wheel(index, "alpha", requires=("beta", "gamma"))
    make_wheel(index, "beta", "3.0")
    make_wheel(index, "gamma", "4.0")
    error = failing(spec("alpha==1.0", "gamma==4.0"), platform, tmp_path / "c")
    assert error.what == "the pins are not all that they need: alpha needs beta, which is not pinned"
    assert error.fix == "add to requirements: beta==3.0"


def test_pins_that_contradict(index: Path, platform: HostPlatform, tmp_path: Path) -> None:
    make_wheel(index, "alpha", requires=("beta>=2",))
    make_wheel(index, "beta", "1.0")
    error = failing(spec("alpha==1.0", "beta==1.0"), platform, tmp_path / "c")
    assert "alpha needs beta>=2, pinned is 1.0" in error.what


def test_another_python(index: Path, platform: HostPlatform, tmp_path: Path) -> None:
    error = failing(spec("alpha==1.0", python="3.12"), platform, tmp_path / "c")
    assert error.exit == Exit.PREFLIGHT
    assert "3.11.2" in error.what


def test_another_abi(index: Path, platform: HostPlatform, tmp_path: Path) -> None:
    make_wheel(index, "torch", "2.13.0+cpu")
    house = resolve(spec("torch==2.13.0+cpu", abi="torch2.13-cpu"), platform, tmp_path / "c", silent)
    assert house.abi == "cp311-torch2.13-cpu-glibc2.36"
    error = failing(spec("torch==2.13.0+cpu", abi="torch2.13-cu130"), platform, tmp_path / "c")
    assert "cu130" in error.fix


def test_an_index_that_does_not_answer_costs_little(
    index: Path, platform: HostPlatform, tmp_path: Path
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/simple"
        make_wheel(index, "alpha")
        events: list[dict[str, Any]] = []
        began = time.monotonic()
        resolve(spec("alpha==1.0", indexes={"silent": url}), platform, tmp_path / "c", events.append)
    assert time.monotonic() - began < 60
    assert {"step": "resolve", "state": "info", "text": f"index does not answer, left out: {url}"} in events


def test_no_index_answers(platform: HostPlatform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{closed.getsockname()[1]}/simple")
        error = failing(spec("alpha==1.0"), platform, tmp_path / "c")
    assert error.exit == Exit.PREFLIGHT
    assert "no index that answers" in error.what
