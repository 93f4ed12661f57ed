"""Environments and models on real hosts: built, found again, and every way a build can go wrong there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.environment.ship import ensure_environment, survey_environment
from fleetctl.environment.spec import EnvironmentSpec
from fleetctl.environment.weights import ensure_model, survey_model
from fleetctl.errors import Exit, FleetError
from fleetctl.inventory.loader import load_fleet
from fleetctl.inventory.models import Host, ModelRef
from fleetctl.transport.agent import open_agent
from tests.conftest import Lab
from tests.environment.wheels import make_wheel

pytestmark = pytest.mark.lab

REPOSITORY = Path(__file__).parents[2]
STATE = "/var/lib/fleetctl"
FLAG = "/run/fleetctl-test-slow"
SLOW = f"import os, time\nwhile os.path.exists({FLAG!r}):\n    time.sleep(0.02)\n"


class Controller:
    """A fleet folder whose one environment is ``tiny``, and what it does to the lab's hosts."""

    def __init__(self, root: Path, index: Path, lab: Lab) -> None:
        self.root = root
        self.index = index
        self.lab = lab
        self.hosts = load_fleet(REPOSITORY, "inventories/lab").hosts
        self.events: list[dict[str, Any]] = []

    def spec(self, *pins: str, imports: list[str] | None = None) -> EnvironmentSpec:
        fields = {"name": "tiny", "python": ">=3.9", "requirements": list(pins), "imports": imports or []}
        return EnvironmentSpec.model_validate(fields)

    def ensure(self, spec: EnvironmentSpec, host: str = "ct200") -> Any:
        self.events.clear()
        with open_agent(self.hosts[host]) as agent:
            return ensure_environment(agent, self.hosts[host], spec, self.root, self.events.append)

    def refused(self, spec: EnvironmentSpec, host: str = "ct200") -> FleetError:
        with pytest.raises(FleetError) as caught:
            self.ensure(spec, host)
        return caught.value

    def on(self, command: str, host: str = "ct200") -> str:
        return self.lab.run(host, command).stdout.strip()

    def envs(self, host: str = "ct200") -> list[str]:
        return self.on(f"ls -A {STATE}/envs 2>/dev/null | grep ^tiny- || true", host).split()

    def wait_for(self, step: str) -> None:
        deadline = time.monotonic() + 200
        while not any(event["step"] == step for event in self.events):
            assert time.monotonic() < deadline, self.events
            time.sleep(0.02)


@pytest.fixture
def controller(lab: Lab, tmp_path: Path, index: Path) -> Iterator[Controller]:
    controller = Controller(tmp_path / "fleet", index, lab)
    mounts = f"umount -l {STATE}/envs {STATE}/uv-cache 2>/dev/null"
    clean = f"rm -f {FLAG}; {mounts}; rm -rf {STATE}/envs/tiny-* {STATE}/models/test-*; true"
    for host in controller.hosts:
        controller.on(clean, host)
    yield controller
    for host in controller.hosts:
        controller.on(clean, host)


def test_built_once_and_the_same_on_two_hosts(controller: Controller) -> None:
    make_wheel(controller.index, "alpha", requires=("beta",))
    make_wheel(controller.index, "beta")
    spec = controller.spec("alpha==1.0", "beta==1.0", imports=["alpha"])
    first = controller.ensure(spec)
    assert first.built
    assert controller.on(f"{first.path}/bin/python -c 'import alpha; print(alpha.VALUE)'") == "1.0"
    second = controller.ensure(spec)
    assert (second.path, second.built) == (first.path, False)
    assert controller.events == []
    other = controller.ensure(spec, "ct129")
    assert (other.digest, other.built) == (first.digest, True)
    listed = controller.on(f"cat {first.path}/.fleetctl-env.json")
    assert first.digest in listed


def test_plan_says_what_would_be_sent_and_changes_nothing(controller: Controller) -> None:
    size = make_wheel(controller.index, "alpha", blob=300_000).stat().st_size
    spec = controller.spec("alpha==1.0")
    controller.on(f"rm -f {STATE}/wheelhouse/alpha-*")
    with open_agent(controller.hosts["ct200"]) as agent:
        _, plan = survey_environment(agent, spec, controller.root, controller.events.append)
        assert not plan.is_there
        assert [wheel.size for wheel in plan.send if wheel.name == "alpha"] == [size]
        assert plan.needed > 300_000
    assert controller.envs() == []
    controller.ensure(spec)
    with open_agent(controller.hosts["ct200"]) as agent:
        _, plan = survey_environment(agent, spec, controller.root, controller.events.append)
    assert (plan.is_there, plan.send, plan.send_bytes) == (True, (), 0)


def test_a_killed_agent_leaves_no_environment_and_the_next_build_starts_clean(
    controller: Controller,
) -> None:
    make_wheel(controller.index, "slow", code=SLOW)
    spec = controller.spec("slow==1.0", imports=["slow"])
    controller.on(f"touch {FLAG}")
    caught = in_background(lambda: controller.ensure(spec))
    controller.wait_for("build-check")
    (half,) = controller.envs()
    assert half.endswith(".building")
    controller.on("pkill -KILL -f '[.]pyz serve'")
    error = caught()
    assert isinstance(error, FleetError)
    assert error.exit == Exit.UNREACHABLE
    controller.on(
        f"for i in $(seq 1200); do pgrep -f '{STATE}/envs/[t]iny' || exit 0; sleep 0.1; done; exit 1"
    )
    assert controller.envs() == []
    controller.on(f"rm {FLAG}")
    assert controller.ensure(spec).built
    assert any(event["step"] == "build-prune" for event in controller.events)
    assert controller.envs() == [half.removesuffix(".building")]


def test_two_controllers_build_it_once(controller: Controller, lab: Lab) -> None:
    make_wheel(controller.index, "slow", code=SLOW)
    spec = controller.spec("slow==1.0", imports=["slow"])
    controller.on(f"touch {FLAG}")
    other = Controller(controller.root, controller.index, lab)
    first = in_background(lambda: controller.ensure(spec))
    controller.wait_for("build-check")
    second = in_background(lambda: other.ensure(spec))
    other.wait_for("build-lock")
    controller.on(f"rm {FLAG}")
    assert (first().built, second().built) == (True, False)


def test_a_disk_too_small_is_refused_before_anything_is_sent(controller: Controller) -> None:
    make_wheel(controller.index, "alpha", blob=20_000_000)
    controller.on(f"mkdir -p {STATE}/envs && mount -t tmpfs -o size=8m tmpfs {STATE}/envs")
    error = controller.refused(controller.spec("alpha==1.0"))
    assert error.exit == Exit.PREFLIGHT
    assert "needed" in error.what and "free" in error.what
    assert f"{STATE}/envs/tiny-" in error.where
    assert controller.envs() == []


def test_a_disk_that_fills_up_in_the_middle_leaves_nothing(controller: Controller) -> None:
    make_wheel(controller.index, "alpha", blob=20_000_000)
    spec = controller.spec("alpha==1.0")
    controller.on(f"mkdir -p {STATE}/uv-cache && mount -t tmpfs -o size=8m tmpfs {STATE}/uv-cache")
    error = controller.refused(spec)
    assert error.exit == Exit.PREFLIGHT
    assert "no space left" in error.what
    assert controller.envs() == []
    assert int(controller.on(f"du -sk {STATE}/uv-cache | cut -f1")) < 1000
    controller.on(f"umount {STATE}/uv-cache")
    assert controller.ensure(spec).built


def test_a_disk_without_inodes_leaves_nothing(controller: Controller) -> None:
    make_wheel(controller.index, "alpha")
    controller.on(f"mkdir -p {STATE}/envs && mount -t tmpfs -o size=64m,nr_inodes=30 tmpfs {STATE}/envs")
    error = controller.refused(controller.spec("alpha==1.0"))
    assert error.exit == Exit.PREFLIGHT
    assert "no space left" in error.what and "inodes free" in error.what
    assert controller.envs() == []


def test_a_read_only_folder_is_named(controller: Controller) -> None:
    make_wheel(controller.index, "alpha")
    controller.on(f"mkdir -p {STATE}/envs && mount -t tmpfs -o ro tmpfs {STATE}/envs")
    error = controller.refused(controller.spec("alpha==1.0"))
    assert error.exit == Exit.PREFLIGHT
    assert "read-only" in error.what
    assert f"{STATE}/envs" in error.where
    assert controller.envs() == []


def test_the_command(controller: Controller) -> None:
    make_wheel(controller.index, "alpha")
    shutil.copytree(REPOSITORY / "inventories" / "lab", controller.root / "inventories")
    (controller.root / "envs").mkdir()
    tiny = 'name: tiny\npython: ">=3.9"\nrequirements: [alpha==1.0]\n'
    (controller.root / "envs" / "tiny.yaml").write_text(tiny)

    def fleetctl(*words: str) -> tuple[int, str]:
        argv = [sys.executable, "-m", "fleetctl", "--fleet", str(controller.root), "env", *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout

    assert fleetctl("build", "ct200", "tinny")[0] == Exit.INPUT
    code, said = fleetctl("build", "ct200", "tiny", "--plan", "--json")
    assert code == Exit.PLAN_CHANGES
    planned = json.loads(said.splitlines()[-1])
    assert (planned["is_there"], controller.envs()) == (False, [])
    code, said = fleetctl("build", "ct200", "tiny")
    assert (code, f"built {planned['path']} in" in said) == (Exit.OK, True)
    code, said = fleetctl("build", "ct200", "tiny")
    assert (code, "nothing to do" in said) == (Exit.OK, True)
    code, said = fleetctl("list", "--json")
    assert code == Exit.OK
    listed = json.loads(said)["hosts"]["ct200"]
    assert planned["path"] in [environment["path"] for environment in listed]
    assert planned["digest"] in fleetctl("list", "ct200")[1]


def source(root: Path, **files: str) -> ModelRef:
    folder = root / "models" / "small"
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return ModelRef(path=f"{STATE}/models/test-small", source="models/small")


def bring(controller: Controller, ref: ModelRef, host: Host | None = None) -> Any:
    host = host or controller.hosts["ct200"]
    with open_agent(host) as agent:
        return ensure_model(agent, host, ref, controller.root, controller.events.append)


def test_a_model_is_sent_once_and_never_changed(controller: Controller) -> None:
    ref = source(controller.root, config="{}", sub__weights="w" * 100_000)
    assert bring(controller, ref).sent
    assert controller.on(f"wc -c < {ref.path}/sub/weights") == "100000"
    controller.events.clear()
    assert not bring(controller, ref).sent
    assert controller.events == []
    source(controller.root, config='{"new": 1}')
    with pytest.raises(FleetError, match="another one") as caught:
        bring(controller, ref)
    assert caught.value.exit == Exit.PREFLIGHT
    assert controller.on(f"cat {ref.path}/config") == "{}"
    other = ref.model_copy(update={"path": f"{ref.path}-2"})
    assert bring(controller, other).sent
    found = controller.on(f"cd {other.path} && find . -type f | sort").split()
    assert found == ["./.fleetctl-model.json", "./config", "./sub/weights"]


@pytest.mark.parametrize("damage", ["truncate -s 3 {}/weights", "rm {}/weights"])
def test_a_damaged_model_is_named_and_comes_back(controller: Controller, damage: str) -> None:
    ref = source(controller.root, config="{}", weights="w" * 1000)
    bring(controller, ref)
    controller.on(damage.format(ref.path))
    with pytest.raises(FleetError, match="model on the host is damaged") as caught:
        bring(controller, ref)
    assert caught.value.exit == Exit.PREFLIGHT
    assert f"rm -rf {ref.path}" in caught.value.fix
    assert f"{ref.path}/weights" in caught.value.evidence[0]
    assert [one["id"] for one in preflight(controller, "", ref.path)] == ["model-damaged"]
    controller.on(f"rm -rf {ref.path}")
    assert bring(controller, ref).sent
    controller.on(f"echo '{{}}' > {ref.path}/.fleetctl-model.json")
    assert preflight(controller, "", ref.path) == []


@pytest.mark.parametrize("damage", ["alpha", "alpha*"], ids=["package", "package-and-record"])
def test_a_damaged_environment_is_named_and_comes_back(controller: Controller, damage: str) -> None:
    make_wheel(controller.index, "alpha")
    spec = controller.spec("alpha==1.0")
    path = controller.ensure(spec).path
    assert preflight(controller, path) == []
    controller.on(f"find {path} -name '*.pyc' -delete")
    assert preflight(controller, path) == []
    controller.on(f"rm -r {path}/lib/python3.*/site-packages/{damage}")
    (found,) = preflight(controller, path)
    assert found["id"] == "environment-damaged"
    assert f"rm -rf {path}" in found["fix"]
    with open_agent(controller.hosts["ct200"]) as agent:
        survey_environment(agent, spec, controller.root, controller.events.append)
        with pytest.raises(FleetError, match="environment is damaged") as caught:
            survey_environment(agent, spec, controller.root, controller.events.append, whole=True)
    assert caught.value.exit == Exit.PREFLIGHT
    controller.on(f"rm -rf {path}")
    assert controller.ensure(spec).built
    assert preflight(controller, path) == []


def preflight(controller: Controller, environment: str, *models: str) -> list[dict[str, Any]]:
    """The host's findings on a plan for an empty slot that needs these."""
    new = {
        "unit": "test-damage.service",
        "unit_text": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=a.target\n",
    }
    new |= {"environment": environment, "model_paths": list(models)}
    plan = {"id": "x", "slot": "test-damage", "port": 33999, "gpus": [], "new": new, "old": None}
    with open_agent(controller.hosts["ct200"]) as agent:
        found: list[dict[str, Any]] = agent.call("preflight", plan=plan)["findings"]
    return found


def test_an_interrupted_transfer_goes_on(controller: Controller) -> None:
    ref = source(controller.root, config="{}", weights="w" * 3_000_000)
    partial = f"{ref.path}.partial"
    with open_agent(controller.hosts["ct200"]) as agent:
        whole = survey_model(agent, ref, controller.root)
        controller.on(f"mkdir -p {partial}/.fleetctl-partial; touch {partial}/stale")
        controller.on(f"head -c 2000000 /dev/zero | tr '\\0' w > {partial}/.fleetctl-partial/weights")
        resumed = survey_model(agent, ref, controller.root)
    assert resumed.send_bytes == whole.send_bytes - 2_000_000
    assert bring(controller, ref).sent
    assert controller.on(f"ls -A {ref.path}").split() == [".fleetctl-model.json", "config", "weights"]
    assert controller.on(f"tr -d w < {ref.path}/weights | wc -c") == "0"


def test_a_stranger_at_the_models_path_is_left_alone(controller: Controller) -> None:
    ref = source(controller.root, config="{}")
    controller.on(f"mkdir -p {ref.path} && echo mine > {ref.path}/precious")
    with pytest.raises(FleetError) as caught:
        bring(controller, ref)
    assert caught.value.exit == Exit.PREFLIGHT
    assert controller.on(f"cat {ref.path}/precious") == "mine"
    as_it_is = ModelRef(path=ref.path)
    assert not bring(controller, as_it_is).sent


def test_a_model_that_is_nowhere_is_an_error(controller: Controller) -> None:
    with pytest.raises(FleetError) as caught:
        bring(controller, ModelRef(path=f"{STATE}/models/test-nowhere"))
    assert caught.value.exit == Exit.PREFLIGHT
    with pytest.raises(FleetError) as caught:
        bring(controller, ModelRef(path=f"{STATE}/models/test-nowhere", source="models/none"))
    assert caught.value.exit == Exit.INPUT


def in_background(work: Callable[[], Any]) -> Callable[[], Any]:
    """Start ``work``; what is returned waits for its result or its error."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(work())
        except FleetError as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def wait() -> Any:
        thread.join(280)
        return results[0]

    return wait
