"""``environment.verify`` on real environments: sound ones pass, each fault is a finding."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fleetctl.agent.capture.verify import verify
from tests.environment.test_capture_native import compile_library
from tests.environment.venvs import bom_of, distribution, make_venv, site
from tests.environment.wheels import make_wheel
from tests.standins.stack import reference, training


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, uv: Path) -> Path:
    folder = tmp_path_factory.mktemp("verify")
    wheels = make_wheel(folder, "alpha", blob=500), make_wheel(folder, "beta")
    return make_venv(folder / "venv", *wheels, uv=uv)


@pytest.fixture
def venv(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "venv", symlinks=True)


def findings(venv: Path) -> dict[str, dict[str, Any]]:
    """Findings by their id; the answer's ``ok`` is checked to agree with them."""
    result = verify({"path": str(venv)}, lambda event: None)
    assert result["ok"] == all(found["severity"] != "error" for found in result["findings"])
    return {found["id"]: found for found in result["findings"]}


def test_a_sound_environment_passes(venv: Path) -> None:
    result = verify({"path": str(venv)}, lambda event: None)
    assert (result["ok"], result["findings"]) == (True, [])
    assert result["files"] > 10 and result["bytes"] > 500


def test_changed_and_missing_files(venv: Path) -> None:
    (site(venv) / "alpha" / "__init__.py").write_text("patched by hand\n")
    (site(venv) / "alpha" / "blob.bin").unlink()
    found = findings(venv)
    assert found["env-changed"]["evidence"] == [f"{site(venv).relative_to(venv)}/alpha/__init__.py"]
    assert "1 file is missing of what alpha 1.0 installed" in found["env-missing"]["what"]
    assert {one["severity"] for one in found.values()} == {"error"}


def test_a_skeleton(venv: Path) -> None:
    python = venv / "bin" / "python"
    python.unlink()
    python.symlink_to("/opt/gone/python3")
    found = findings(venv)["env-python"]
    assert (found["severity"], "/opt/gone/python3" in found["what"]) == ("error", True)


def test_copies(venv: Path) -> None:
    (site(venv) / "alpha" / "part.py").write_text("")
    shutil.copytree(site(venv) / "alpha", site(venv) / "alpha" / "alpha")
    shutil.copytree(site(venv) / "beta-1.0.dist-info", site(venv) / "beta-2.0.dist-info")
    found = findings(venv)
    assert "remove alpha/alpha" in found["env-nested"]["fix"]
    assert "beta is installed twice" in found["env-twice"]["what"]


def test_a_library_that_nothing_gives(venv: Path, tmp_path: Path) -> None:
    gone = compile_library(
        tmp_path / "libcudart.so.97", "int thing(void) { return 1; }", "-Wl,-soname,libcudart.so.97"
    )
    compile_library(
        site(venv) / "alpha" / "ops.so", "int thing(void); int go(void) { return thing(); }", str(gone)
    )
    found = findings(venv)
    assert found["env-library"]["what"] == "nothing gives libcudart.so.97"
    assert found["env-library"]["severity"] == "error"


def test_the_driver_may_be_absent(venv: Path, tmp_path: Path) -> None:
    driver = compile_library(
        tmp_path / "libcuda.so.1", "int cu(void) { return 1; }", "-Wl,-soname,libcuda.so.1"
    )
    compile_library(
        site(venv) / "alpha" / "ops.so", "int cu(void); int go(void) { return cu(); }", str(driver)
    )
    assert findings(venv)["env-library"]["severity"] == "warning"


def test_two_cuda_majors(venv: Path, tmp_path: Path) -> None:
    for major in (12, 13):
        soname = f"libcudart.so.{major}"
        code = f"int thing{major}(void) {{ return 1; }}"
        given = compile_library(site(venv) / "alpha" / "lib" / soname, code, f"-Wl,-soname,{soname}")
        user = f"int thing{major}(void); int go(void) {{ return thing{major}(); }}"
        rpath = "-Wl,-rpath,$ORIGIN/lib"
        compile_library(site(venv) / "alpha" / f"ops{major}.so", user, str(given), rpath)
    found = findings(venv)
    assert (found["env-cuda"]["severity"], "12 and 13" in found["env-cuda"]["what"]) == ("error", True)
    assert "env-library" not in found


def test_records_that_are_not_the_markers(venv: Path) -> None:
    records = {one["name"]: one["record"]["sha256"] for one in bom_of(venv)["distributions"]}
    marker = venv / ".fleetctl-env.json"
    marker.write_text(json.dumps({"schema": 1, "records": records}))
    assert findings(venv) == {}
    marker.write_text(json.dumps({"schema": 1, "records": {**records, "alpha": "0" * 64, "gamma": "1" * 64}}))
    assert findings(venv)["env-marker"]["evidence"] == ["alpha is another one", "gamma is gone"]
    del records["beta"]
    marker.write_text(json.dumps({"schema": 1, "records": records}))
    assert findings(venv)["env-marker"]["evidence"] == ["beta came later"]


def test_a_copied_venv_names_the_place_it_came_from(tmp_path: Path) -> None:
    source = make_venv(tmp_path / "source", make_wheel(tmp_path, "alpha"))
    assert findings(source) == {}
    copy = shutil.copytree(source, tmp_path / "copy", symlinks=True)
    found = findings(copy)["env-other-path"]
    assert (found["severity"], f"{source}/bin/python" in str(found["evidence"])) == ("warning", True)
    (copy / ".fleetctl-env.json").write_text(json.dumps({"schema": 1}))
    assert findings(copy)["env-other-path"]["severity"] == "error"
    shutil.rmtree(source)
    assert findings(copy)["env-old-path"]["severity"] == "error"


def test_the_origin_is_named_nowhere(venv: Path) -> None:
    (venv / ".fleetctl-env.json").write_text(json.dumps({"schema": 1, "origin": {"path": "/root/ml-env"}}))
    assert findings(venv) == {}
    (site(venv) / "more.pth").write_text("/root/ml-env/src\n")
    found = findings(venv)["env-old-path"]
    assert "more.pth names /root/ml-env" in found["what"]


def test_warnings_alone_are_no_failure(venv: Path) -> None:
    with (site(venv) / "alpha-1.0.dist-info" / "RECORD").open("a") as record:
        record.write("/etc/passwd,,\nhalf a line\n")
    found = findings(venv)
    assert {name: one["severity"] for name, one in found.items()} == {
        "env-outside": "warning",
        "env-record": "warning",
    }
    assert distribution(bom_of(venv), "alpha")["record"]["state"] == "malformed"


def test_the_two_environments_of_the_brief(tmp_path: Path, uv: Path) -> None:
    """The reference holds one CUDA; in the training one a kernel of another CUDA was copied in."""
    made = {}
    for name, distributions in (("reference", reference()), ("training", training())):
        wheels = [one.write(tmp_path / f"{name}-wheels") for one in distributions]
        made[name] = make_venv(tmp_path / name, *wheels, uv=uv)
    assert findings(made["reference"]) == {}
    sound, mixed = bom_of(made["reference"]), bom_of(made["training"])
    assert (sorted(sound["abi"]["cuda"]), sorted(mixed["abi"]["cuda"])) == (["13"], ["12", "13"])
    assert "torch2.11-cu130" in sound["abi"]["tag"] and "torch2.11-cu128" in mixed["abi"]["tag"]
    kernel = next(one for one in mixed["extensions"] if one["distribution"] == "sglang-kernel")
    assert (kernel["cuda"], kernel["tag"]) == (13, "abi3")
    assert findings(made["training"])["env-cuda"]["severity"] == "error"
