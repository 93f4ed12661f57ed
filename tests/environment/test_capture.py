"""What ``bom.capture`` says of real environments, whole and damaged."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fleetctl.agent.capture.bom import capture
from fleetctl.agent.capture.reader import ALONE_COST
from fleetctl.agent.errors import INPUT, AgentError
from fleetctl.environment.bom_text import screen
from tests.agent.pythons import pythons
from tests.environment.venvs import bom_by_agent, bom_of, distribution, make_venv, problems, site
from tests.environment.wheels import make_wheel

TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}"
VERSION = ".".join(map(str, sys.version_info[:3]))


@pytest.fixture(scope="module")
def alpha(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    return make_wheel(folder, "alpha", requires=("beta>=1; python_version>'3'",))


@pytest.fixture(scope="module")
def template(alpha: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    beta = make_wheel(alpha.parent, "beta", "2.0", blob=9000)
    return make_venv(tmp_path_factory.mktemp("template") / "venv", alpha, beta)


@pytest.fixture
def venv(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "venv", symlinks=True)


def test_a_sound_venv(venv: Path) -> None:
    bom = bom_of(venv)
    assert (bom["schema"], bom["kind"], bom["path"]) == (1, "venv", str(venv))
    assert bom["python"]["version"] == VERSION
    assert (bom["python"]["tag"], bom["python"]["runs"], bom["python"]["why"]) == (TAG, True, "")
    assert bom["python"]["real"] == str(Path(sys.executable).resolve())
    assert bom["site_packages"] == [str(site(venv).relative_to(venv))]
    assert [(one["name"], one["version"], one["installer"]) for one in bom["distributions"]] == [
        ("alpha", "1.0", "pip"),
        ("beta", "2.0", "pip"),
    ]
    alpha = distribution(bom, "alpha")
    assert alpha["requires"] == ["beta>=1; python_version>'3'"]
    assert alpha["imports"] == ["alpha"]
    assert alpha["record"]["state"] == "ok"
    assert (alpha["changed"], alpha["missing"], alpha["outside"]) == ([], [], [])
    assert distribution(bom, "beta")["bytes"] > 9000
    assert bom["unowned"] == {"count": 0, "bytes": 0, "files": [], "packages": []}
    assert (bom["twice"], bom["problems"]) == ([], [])
    json.dumps(bom)


def test_every_kind_of_drift_is_named(venv: Path) -> None:
    packages = site(venv)
    before = bom_of(venv)["digest"]
    (packages / "alpha" / "__init__.py").write_text("VALUE = 'x.y'\n")
    (packages / "beta" / "blob.bin").unlink()
    (packages / "stray.py").write_text("import os\n")
    bom = bom_of(venv)
    lead = bom["site_packages"][0]
    assert distribution(bom, "alpha")["changed"] == [f"{lead}/alpha/__init__.py"]
    assert distribution(bom, "beta")["missing"] == [f"{lead}/beta/blob.bin"]
    assert (distribution(bom, "alpha")["changed_count"], distribution(bom, "beta")["missing_count"]) == (1, 1)
    assert bom["unowned"]["files"] == [f"{lead}/stray.py"]
    assert bom["digest"] != before


@pytest.mark.parametrize("edit", ["alpha/__init__.py", "stray.py", "beta/blob.bin"])
def test_the_digest_tells_contents_apart(venv: Path, edit: str) -> None:
    before = bom_of(venv)["digest"]
    path = site(venv) / edit
    path.write_bytes((path.read_bytes() if path.exists() else b"") + b"\n# more\n")
    assert bom_of(venv)["digest"] != before


def test_without_hashes_a_file_of_another_size_still_counts(venv: Path) -> None:
    sound = bom_of(venv)
    assert bom_of(venv, hashes=False)["digest"] == sound["digest"]
    source = site(venv) / "alpha" / "__init__.py"
    source.write_text(source.read_text() + "# longer\n")
    assert distribution(bom_of(venv, hashes=False), "alpha")["changed_count"] == 1
    assert bom_of(venv, hashes=False)["digest"] == bom_of(venv)["digest"]


def test_it_says_how_fleetctl_made_it(venv: Path) -> None:
    before = bom_of(venv)
    assert before["made"] is None
    patches = [{"name": "tree\x1b[2J", "sha256": "0"}]
    origin = {"host": "ct129", "path": "/root/ml-env", "digest": "0" * 12}
    marker = {"schema": 1, "name": "serving", "origin": origin, "patches": patches}
    (venv / ".fleetctl-env.json").write_text(json.dumps(marker))
    bom = bom_of(venv)
    assert bom["made"]["origin"] == origin and bom["made"]["overlays"] == []
    assert "\x1b" not in bom["made"]["patches"][0]["name"]
    assert any("ct129:/root/ml-env, patch sets: tree" in line for line in screen(bom)[0])
    assert bom["digest"] == before["digest"]


def test_the_digest_is_of_the_content_and_of_nothing_else(venv: Path, tmp_path: Path) -> None:
    digest = bom_of(venv)["digest"]
    moved = tmp_path / "else where" / "copy"
    shutil.copytree(venv, moved, symlinks=True, copy_function=shutil.copyfile)
    subprocess.run([str(venv / "bin" / "python"), "-m", "compileall", "-q", str(site(moved))], check=True)
    assert bom_of(moved)["digest"] == digest
    shutil.rmtree(moved / "lib64", ignore_errors=True)
    folder = bom_of(site(venv).rename(tmp_path / "site-packages"))
    assert folder["kind"] == "folder"
    assert distribution(folder, "alpha")["record"] == distribution(bom_of(moved), "alpha")["record"]


def test_pip_and_uv_install_the_same_content(tmp_path: Path, alpha: Path, uv: Path) -> None:
    by_pip = bom_of(make_venv(tmp_path / "one", alpha))
    by_uv = bom_of(make_venv(tmp_path / "another", alpha, uv=uv))
    assert distribution(by_uv, "alpha")["installer"] == "uv"
    assert by_uv["digest"] == by_pip["digest"]
    assert by_uv["unowned"]["count"] == by_pip["unowned"]["count"] == 0
    assert by_uv["problems"] == []


def test_a_package_copied_into_itself(venv: Path) -> None:
    packages = site(venv)
    (packages / "alpha" / "srt").mkdir()
    (packages / "alpha" / "srt" / "server.py").write_text("")
    (packages / "alpha" / "srt" / "__init__.py").write_text("")
    shutil.copytree(packages / "alpha", packages / "alpha" / "alpha")
    (packages / "beta" / "beta").mkdir()
    (packages / "beta" / "beta" / "__init__.py").write_text("another thing of the same name")
    assert bom_of(venv)["unowned"]["packages"] == ["alpha/alpha"]


def test_two_versions_of_one_name(venv: Path) -> None:
    packages = site(venv)
    shutil.copytree(packages / "alpha-1.0.dist-info", packages / "Alpha-0.9.dist-info")
    metadata = packages / "Alpha-0.9.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("1.0", "0.9"))
    (found,) = bom_of(venv)["twice"]
    assert (found["name"], sorted(found["versions"])) == ("alpha", ["0.9", "1.0"])
    assert len(found["infos"]) == 2


def test_a_skeleton_says_why_it_does_not_run(tmp_path: Path) -> None:
    skeleton = make_venv(tmp_path / "skeleton")
    python = skeleton / "bin" / "python"
    python.unlink()
    python.symlink_to("/opt/python3.12/bin/python3.12")
    for hashes in (True, False):
        bom = bom_of(skeleton, hashes=hashes)
        assert (bom["python"]["runs"], bom["python"]["real"]) == (False, None)
        assert "/opt/python3.12/bin/python3.12, which is not there" in bom["python"]["why"]
        assert bom["python"]["tag"] == TAG


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("#!/bin/sh\nexec sleep 600\n", "has not answered within"),
        ("#!/bin/sh\necho no such module; exit 1\n", "no such module"),
        ("#!/bin/sh\nexec yes '[[[['\n", "does not answer|does not run"),
        ("#!/no/such/interpreter\n", "does not start"),
    ],
)
def test_an_interpreter_that_misbehaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, why: str
) -> None:
    import re

    monkeypatch.setattr("fleetctl.agent.capture.layout.ASK_S", 0.5 if "sleep" in program else 60.0)
    broken = make_venv(tmp_path / "broken")
    (broken / "bin" / "python").unlink()
    (broken / "bin" / "python").write_text(program)
    (broken / "bin" / "python").chmod(0o755)
    bom = bom_of(broken)
    assert bom["python"]["runs"] is False
    assert re.search(why, bom["python"]["why"]), bom["python"]["why"]


def test_nothing_of_the_environment_is_run(venv: Path, tmp_path: Path) -> None:
    trap = f"import pathlib; pathlib.Path({str(tmp_path / 'sprung')!r}).touch()\n"
    (site(venv) / "sitecustomize.py").write_text(trap)
    (site(venv) / "trap.pth").write_text(trap)
    (site(venv) / "alpha" / "__init__.py").write_text(trap)
    bom_of(venv)
    assert not (tmp_path / "sprung").exists()


def test_editable_installs_are_named(venv: Path) -> None:
    packages = site(venv)
    by_url = packages / "one-1.0.dist-info"
    by_url.mkdir()
    (by_url / "METADATA").write_text("Name: one\nVersion: 1.0\n")
    url = {"url": "file:///src/my%20one", "dir_info": {"editable": True}}
    (by_url / "direct_url.json").write_text(json.dumps(url))
    by_pth = packages / "two-1.0.dist-info"
    by_pth.mkdir()
    (by_pth / "METADATA").write_text("Name: two\nVersion: 1.0\n")
    (by_pth / "RECORD").write_text("_two.pth,,\n")
    (packages / "_two.pth").write_text("/src/two\n")
    (packages / "three.egg-link").write_text("/src/three\n.\n")
    bom = bom_of(venv)
    found = {one["name"]: one["editable"] for one in bom["distributions"] if one["editable"]}
    assert found == {"one": "/src/my one", "two": "/src/two", "three": "/src/three"}
    assert "puts /src/two on the module path" in problems(bom)


def test_a_password_in_a_direct_url_stays_on_the_host(venv: Path) -> None:
    path = site(venv) / "alpha-1.0.dist-info" / "direct_url.json"
    path.write_text(json.dumps({"url": "https://me:secret@index.test/alpha.whl", "x": "\ud800"}))
    said = distribution(bom_of(venv), "alpha")["direct_url"]
    assert said == {"url": "https://index.test/alpha.whl", "x": "\\ud800"}
    json.dumps(said, ensure_ascii=False).encode()


def test_system_packages_are_inherited_where_the_venv_says_so(venv: Path) -> None:
    settings = venv / "pyvenv.cfg"
    assert bom_of(venv)["inherited"] == []
    settings.write_text(settings.read_text().replace("= false", "= true"))
    bom = bom_of(venv)
    assert bom["python"]["system_site_packages"] is True
    assert "alpha" not in {one["name"] for one in bom["inherited"]}
    assert all(not one["info"].startswith(str(venv)) for one in bom["inherited"])
    base = subprocess.run(
        [str(venv / "bin" / "python"), "-m", "pip", "--version"], capture_output=True, check=False
    )
    assert ("pip" in {one["name"] for one in bom["inherited"]}) == (base.returncode == 0)


def test_packages_of_another_environment_that_a_pth_names_are_inherited(
    venv: Path, tmp_path: Path, alpha: Path
) -> None:
    other = make_venv(tmp_path / "torch", alpha)
    behind, sources = site(other), tmp_path / "sources"
    for name, version in (("torch", "2.11.0"), ("alpha", "9.0")):
        info = behind / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    (behind / "torch").mkdir()
    (behind / "torch/version.py").write_text("__version__ = '2.11.0+cu130'\ncuda = '13.0'\n")
    (sources / "beta-1.0.dist-info").mkdir(parents=True)
    before = bom_of(venv)
    (site(venv) / "torch.pth").write_text(f"{behind}\n{sources}\n/nowhere/site-packages\n")
    bom = bom_of(venv)
    assert {one["name"]: one["info"].rpartition("/")[0] for one in bom["inherited"]} == {"torch": str(behind)}
    assert distribution(bom, "alpha")["version"] == "1.0", "its own comes first"
    assert bom["abi"]["torch"] == "2.11.0+cu130"
    assert "torch2.11-cu130" in bom["abi"]["tag"]
    assert bom["digest"] != before["digest"]
    assert any(f"1 distributions of {behind}" in line for line in screen(bom)[0])


def test_the_system_python_and_its_dist_packages() -> None:
    bom = bom_of("/usr/bin/python3", native=False)
    assert (bom["kind"], bom["path"], bom["python"]["runs"]) == ("system", "/usr", True)
    assert any(site.endswith("dist-packages") for site in bom["site_packages"])
    assert bom["distributions"]


def test_a_venv_by_its_interpreter_or_its_site_packages(venv: Path) -> None:
    whole = bom_of(venv)
    for part in (venv / "bin" / "python", site(venv)):
        bom = bom_of(part)
        assert (bom["path"], bom["kind"], bom["digest"]) == (str(venv), "venv", whole["digest"])


def test_a_conda_environment(tmp_path: Path, alpha: Path) -> None:
    root = make_venv(tmp_path / "conda", alpha)
    (root / "pyvenv.cfg").unlink()
    (root / "lib" / "libzlib.so.1").write_bytes(b"zlib")
    (root / "conda-meta").mkdir()
    here = "f" * 64
    listed = [{"_path": "lib/libzlib.so.1", "sha256": "a" * 64, "sha256_in_prefix": here}]
    zlib = {"name": "zlib", "version": "1.3", "files": ["lib/libzlib.so.1"], "paths_data": {"paths": listed}}
    (root / "conda-meta" / "zlib-1.3-0.json").write_text(json.dumps(zlib))
    info = f"{site(root).relative_to(root)}/alpha-1.0.dist-info/METADATA"
    python = {"name": "alpha", "version": "1.0", "files": [info]}
    (root / "conda-meta" / "alpha-1.0-0.json").write_text(json.dumps(python))
    (root / "conda-meta" / "broken.json").write_text("[" * 100_000)
    bom = bom_of(root)
    assert bom["kind"] == "conda"
    assert [(one["name"], one["installer"]) for one in bom["distributions"]] == [
        ("alpha", "pip"),
        ("zlib", "conda"),
    ]
    assert distribution(bom, "zlib")["changed"] == ["lib/libzlib.so.1"]
    assert "conda-meta/broken.json: is not a package's description" in problems(bom)


@pytest.mark.parametrize("path", ["relative/venv", "/no/such/venv", "/etc", "/etc/passwd", "/a\0b"])
def test_what_is_no_environment_is_refused(path: str) -> None:
    with pytest.raises(AgentError) as caught:
        bom_of(path)
    assert caught.value.exit == INPUT
    assert caught.value.fix


def test_events_say_what_goes_on(venv: Path) -> None:
    events: list[dict[str, Any]] = []
    capture({"path": str(venv)}, events.append)
    steps = [event["step"] for event in events if event["state"] == "begin"]
    assert steps[:3] == ["capture-walk", "capture-read", "capture-hash"]
    assert [event["step"] for event in events if event["state"] == "ok"] == steps


@pytest.mark.parametrize("python", pythons())
def test_every_python_of_a_host_captures_the_same(venv: Path, tmp_path: Path, python: str) -> None:
    (tmp_path / "large.py").write_text("#" * 2 * ALONE_COST)
    (site(venv) / "large.py").symlink_to(tmp_path / "large.py")
    bom = bom_by_agent(tmp_path, python, venv)
    assert (bom["checked_bytes"] > ALONE_COST, bom["digest"]) == (True, bom_of(venv)["digest"])


def _more_in_bin(venv: Path) -> None:
    (venv / "bin" / "serve").write_text("#!/bin/sh\nexec true\n")


def _more_in_share(venv: Path) -> None:
    (venv / "share").mkdir()
    (venv / "share" / "kernels.json").write_text("{}")


def _sees_the_systems(venv: Path) -> None:
    settings = venv / "pyvenv.cfg"
    settings.write_text(settings.read_text().replace("packages = false", "packages = true"))


def _record_of_noise(venv: Path) -> None:
    (site(venv) / "beta-2.0.dist-info" / "RECORD").write_bytes(b"\xff\x00,noise")


def _no_record(venv: Path) -> None:
    (site(venv) / "beta-2.0.dist-info" / "RECORD").unlink()


def test_the_digest_tells_what_lies_beside_the_packages(template: Path, tmp_path: Path) -> None:
    changes = (_more_in_bin, _more_in_share, _sees_the_systems, _record_of_noise, _no_record)
    digests = {bom_of(template)["digest"]}
    for change in changes:
        changed = shutil.copytree(template, tmp_path / change.__name__, symlinks=True)
        change(changed)
        digests.add(bom_of(changed)["digest"])
    assert len(digests) == 1 + len(changes)


def test_a_script_that_names_its_environment_has_the_same_digest_elsewhere(
    venv: Path, tmp_path: Path
) -> None:
    (venv / "bin" / "serve").write_text(f"#!{venv}/bin/python\nprint('{venv}/share')\n")
    (venv / "run.log").write_text("a server's words")
    digest = bom_of(venv)["digest"]
    moved = shutil.copytree(venv, tmp_path / "moved", symlinks=True)
    (moved / "bin" / "serve").write_text(f"#!{moved}/bin/python\nprint('{moved}/share')\n")
    (moved / "run.log").write_text("other words")
    assert bom_of(moved)["digest"] == digest
    (moved / "bin" / "serve").write_text(f"#!{moved}/bin/python\nprint('{moved}/other')\n")
    assert bom_of(moved)["digest"] != digest
