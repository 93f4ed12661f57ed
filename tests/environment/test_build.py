"""Building on this machine, in a folder of its own: the agent's functions with the real uv."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from fleetctl.agent.environment.build import build
from fleetctl.agent.environment.environments import MARKER, list_environments, status
from fleetctl.agent.environment.staging import building
from fleetctl.agent.errors import LOCKED, PREFLIGHT, AgentError
from fleetctl.environment.wheelhouse import describe
from tests.agent.pythons import pythons
from tests.environment.wheels import make_wheel
from tests.transport.sshd import wait_for

REPOSITORY = Path(__file__).parents[2]
TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}"


class Host:
    """A host's ``/var/lib/fleetctl`` in a folder, and what a controller would ask of it."""

    def __init__(self, root: Path, builder: Path) -> None:
        self.root = root
        self.events: list[dict[str, Any]] = []
        self.wheelhouse.mkdir(parents=True)
        self.builder = self.wheelhouse / builder.name
        self.builder.hardlink_to(builder)

    @property
    def wheelhouse(self) -> Path:
        return self.root / "wheelhouse"

    @property
    def envs(self) -> list[str]:
        return sorted(path.name for path in (self.root / "envs").iterdir())

    def args(self, *wheels: Path, digest: str = "0123456789ab", **more: Any) -> dict[str, Any]:
        return {
            "name": "tiny",
            "digest": digest,
            "python": TAG,
            "abi": TAG,
            "imports": [],
            "wheels": [asdict(describe(wheel)) for wheel in wheels],
            "builder": asdict(describe(self.builder)),
            "root": str(self.root),
            **more,
        }

    def build(self, *wheels: Path, **more: Any) -> dict[str, Any]:
        return build(self.args(*wheels, **more), self.events.append)

    def refused(self, *wheels: Path, **more: Any) -> AgentError:
        with pytest.raises(AgentError) as caught:
            self.build(*wheels, **more)
        return caught.value


@pytest.fixture
def host(tmp_path: Path, builder_wheel: Path) -> Host:
    return Host(tmp_path / "fleetctl", builder_wheel)


def python(environment: str, code: str) -> str:
    argv = [f"{environment}/bin/python", "-I", "-c", code]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def test_builds_and_says_what_it_built(host: Host) -> None:
    alpha = make_wheel(host.wheelhouse, "alpha", requires=("beta",))
    beta = make_wheel(host.wheelhouse, "beta")
    result = host.build(alpha, beta, imports=["alpha", "beta"])
    path = Path(result["path"])
    assert (path.name, result["built"]) == ("tiny-0123456789ab", True)
    assert python(result["path"], "import alpha, beta; print(alpha.VALUE, alpha.__file__)").endswith(
        f"{path}/lib/python3.{sys.version_info[1]}/site-packages/alpha/__init__.py"
    )
    script = subprocess.run([path / "bin" / "alpha-cmd"], capture_output=True, text=True, check=False)
    assert script.returncode == 0, script.stderr
    marker = json.loads((path / MARKER).read_text())
    assert [wheel["name"] for wheel in marker["wheels"]] == ["alpha", "beta"]
    assert marker["bytes"] > 0
    assert host.envs == ["tiny-0123456789ab"]
    steps = [event["step"] for event in host.events if event["state"] == "ok"]
    assert steps == [f"build-{step}" for step in ("builder", "venv", "install", "compile", "check", "commit")]


@pytest.mark.parametrize("interpreter", pythons())
def test_builds_with_each_python_that_is_here(host: Host, interpreter: str) -> None:
    tag, version = subprocess.check_output(
        [interpreter, "-c", "import sys; v = sys.version_info; print('cp%d%d %d.%d.%d' % (v[:2] + v[:3]))"],
        text=True,
    ).split()
    args = host.args(make_wheel(host.wheelhouse, "alpha"), python=tag, imports=["alpha"])
    code = (
        f"import json, sys; sys.path.insert(0, {str(REPOSITORY)!r})\n"
        "from fleetctl.agent.environment.build import build\n"
        "print(json.dumps(build(json.load(sys.stdin), lambda event: None)))"
    )
    done = subprocess.run(
        [interpreter, "-I", "-S", "-c", code],
        input=json.dumps(args),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert made["built"]
    assert python(made["path"], "import sys, alpha; print(sys.version.split()[0])") == version


def test_second_build_does_nothing(host: Host) -> None:
    alpha = make_wheel(host.wheelhouse, "alpha")
    first = host.build(alpha)
    stamp = Path(first["path"]).stat().st_mtime_ns
    host.events.clear()
    second = host.build(alpha)
    assert (second["path"], second["built"]) == (first["path"], False)
    assert host.events == []
    assert Path(first["path"]).stat().st_mtime_ns == stamp


def test_no_file_names_the_folder_it_was_built_in(host: Host) -> None:
    result = host.build(make_wheel(host.wheelhouse, "alpha"))
    path = Path(result["path"])
    files = [file for file in path.rglob("*") if file.is_file() and not file.is_symlink()]
    assert any(file.suffix == ".pyc" for file in files)
    naming = [file for file in files if str(building(path)).encode() in file.read_bytes()]
    assert naming == []
    links = [link for link in path.rglob("*") if link.is_symlink()]
    assert links and not [link for link in links if ".building" in str(link.readlink())]


def test_an_environment_like_another_shares_its_files(host: Host) -> None:
    alpha = make_wheel(host.wheelhouse, "alpha")
    one = Path(host.build(alpha)["path"])
    two = Path(host.build(alpha, make_wheel(host.wheelhouse, "beta"), digest="ba9876543210")["path"])
    packages = Path("lib") / f"python3.{sys.version_info[1]}" / "site-packages"
    for name in ("alpha/__init__.py", f"alpha/__pycache__/__init__.{sys.implementation.cache_tag}.pyc"):
        assert (one / packages / name).samefile(two / packages / name)
    assert list((two / packages / "beta" / "__pycache__").iterdir())
    assert python(str(two), "import alpha, beta; print(alpha.VALUE)") == "1.0"


def test_a_failing_import_leaves_nothing(host: Host) -> None:
    error = host.refused(
        make_wheel(host.wheelhouse, "alpha", code="import nothing_like_it"), imports=["alpha"]
    )
    assert error.exit == PREFLIGHT
    assert "No module named 'nothing_like_it'" in error.evidence[-1]
    assert host.envs == []


def test_wheels_that_lack_another_are_refused(host: Host) -> None:
    error = host.refused(make_wheel(host.wheelhouse, "alpha", requires=("beta>=2",)))
    assert error.exit == PREFLIGHT
    assert any("beta" in line for line in error.evidence)
    assert host.envs == []


def test_a_damaged_wheel_is_removed_and_named(host: Host) -> None:
    alpha = make_wheel(host.wheelhouse, "alpha")
    args = host.args(alpha)
    make_wheel(host.wheelhouse, "alpha", code="VALUE = 'not what was sent'\n")
    with pytest.raises(AgentError) as caught:
        build(args, host.events.append)
    assert (caught.value.exit, alpha.name in caught.value.what) == (PREFLIGHT, True)
    assert not alpha.exists()
    assert host.envs == []
    asked = status({**args, "wheels": args["wheels"]}, host.events.append)
    assert asked["missing"] == [alpha.name]


def test_a_damaged_builder_is_removed_and_named(host: Host) -> None:
    args = host.args(make_wheel(host.wheelhouse, "alpha"))
    host.builder.unlink()
    host.builder.write_bytes(b"no zip")
    with pytest.raises(AgentError) as caught:
        build(args, host.events.append)
    assert host.builder.name in caught.value.what
    assert not host.builder.exists()
    assert host.envs == []


def test_another_python_is_refused(host: Host) -> None:
    error = host.refused(make_wheel(host.wheelhouse, "alpha"), python="cp27")
    assert error.exit == PREFLIGHT
    assert "cp27" in error.what


def test_someone_elses_folder_is_not_touched(host: Host) -> None:
    theirs = host.root / "envs" / "tiny-0123456789ab"
    theirs.mkdir(parents=True)
    (theirs / "precious").write_text("x")
    error = host.refused(make_wheel(host.wheelhouse, "alpha"))
    assert error.exit == PREFLIGHT
    assert (theirs / "precious").read_text() == "x"


def test_too_little_space_is_refused_before_anything(host: Host) -> None:
    args = host.args(make_wheel(host.wheelhouse, "alpha"))
    args["wheels"][0]["unpacked"] = 10**15
    with pytest.raises(AgentError) as caught:
        build(args, host.events.append)
    assert caught.value.exit == PREFLIGHT
    assert "1,000,000,000,000,000 bytes needed" in caught.value.what
    assert host.envs == []


def test_leftovers_of_killed_builds_go(host: Host) -> None:
    alpha = make_wheel(host.wheelhouse, "alpha")
    for name in ("tiny-0123456789ab.building", "other-000000000000.building"):
        (host.root / "envs" / name / "lib").mkdir(parents=True)
        (host.root / "envs" / name / MARKER).write_text("{}")
    host.build(alpha)
    assert host.envs == ["tiny-0123456789ab"]


def slow_wheel(host: Host) -> tuple[Path, Path]:
    """A wheel whose import lasts as long as the file that is returned with it exists."""
    flag = host.root / "slow"
    flag.touch()
    code = f"import os, time\nwhile os.path.exists({str(flag)!r}):\n    time.sleep(0.02)\n"
    return make_wheel(host.wheelhouse, "slow", code=code), flag


def wait_for_step(host: Host, step: str) -> None:
    wait_for(lambda: any(event["step"] == step for event in host.events))


def test_two_builds_of_one_environment_make_it_once(host: Host) -> None:
    wheel, flag = slow_wheel(host)
    results: list[dict[str, Any]] = []
    threads = [
        threading.Thread(target=lambda: results.append(host.build(wheel, imports=["slow"]))) for _ in range(2)
    ]
    for thread, step in zip(threads, ("build-check", "build-lock"), strict=True):
        thread.start()
        wait_for_step(host, step)
    flag.unlink()
    for thread in threads:
        thread.join()
    assert sorted(result["built"] for result in results) == [False, True]
    assert host.envs == ["tiny-0123456789ab"]


def test_a_build_that_waits_too_long_says_who_is_at_it(host: Host) -> None:
    wheel, flag = slow_wheel(host)
    thread = threading.Thread(target=lambda: host.build(wheel, imports=["slow"]))
    thread.start()
    wait_for_step(host, "build-check")
    error = host.refused(wheel, wait_s=0.2)
    assert error.exit == LOCKED
    assert "another process is making tiny-0123456789ab" in error.what
    other = host.build(make_wheel(host.wheelhouse, "alpha"), digest="ba9876543210")
    assert other["built"]
    flag.unlink()
    thread.join()
    assert host.envs == ["tiny-0123456789ab", "tiny-ba9876543210"]


def test_lists_environments_and_who_uses_them(host: Host) -> None:
    path = host.build(make_wheel(host.wheelhouse, "alpha"))["path"]
    (host.root / "slots").mkdir()
    (host.root / "slots" / "native.json").write_text(json.dumps({"environment": path}))
    (host.root / "slots" / "other.json").write_text(json.dumps({"previous": {"environment": path}}))
    (host.root / "envs" / "half.building").mkdir()
    (found,) = list_environments({"root": str(host.root)}, host.events.append)
    assert (found["path"], found["digest"]) == (path, "0123456789ab")
    assert found["slots"] == {"native": "current", "other": "previous"}
