"""Reading an environment's files: what is asked for, never anything outside."""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from fleetctl.agent.capture import contents
from fleetctl.agent.capture.contents import list_files, read
from fleetctl.agent.errors import AgentError
from fleetctl.agent.files import write_json

SITE = "lib/python3.11/site-packages"


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    folder = tmp_path / "env" / SITE
    (folder / "engine").mkdir(parents=True)
    (folder / "engine" / "info.py").write_bytes(b"A = 1\r\n")
    (folder / "engine" / "empty.py").write_bytes(b"")
    info = folder / "Engine_X-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: Engine.X\nVersion: 1.0+local\n\nVersion: 9\n"
    )
    (info / "RECORD").write_text(
        "engine/info.py,,\n../../../bin/x,,\nsingle.py,,\nEngine_X-1.0.dist-info/RECORD,,\n"
    )
    return folder


def ask(packages: Path, *files: str, **args: Any) -> dict[str, Any]:
    return read({"path": str(packages.parents[2]), "files": list(files), **args}, lambda event: None)


def refused(packages: Path, *files: str, **args: Any) -> AgentError:
    with pytest.raises(AgentError) as caught:
        ask(packages, *files, **args)
    return caught.value


def test_digests_contents_modes_and_what_is_not_there(packages: Path) -> None:
    (packages / "engine" / "info.py").chmod(0o755)
    answer = ask(packages, "engine/info.py", "engine/empty.py", "engine/none.py", "engine/info.py/x")
    assert answer["files"]["engine/info.py"] == {
        "sha256": hashlib.sha256(b"A = 1\r\n").hexdigest(),
        "bytes": 7,
        "mode": 0o755,
    }
    assert (answer["files"]["engine/none.py"], answer["files"]["engine/info.py/x"]) == (None, None)
    assert (answer["site_packages"], answer["marker"]) == (str(packages), None)
    held = ask(packages, "engine/info.py", "engine/empty.py", contents=True)["files"]
    assert [base64.b64decode(held[name]["content"]) for name in held] == [b"A = 1\r\n", b""]


def test_distributions_and_the_marker(packages: Path) -> None:
    write_json(packages.parents[2] / ".fleetctl-env.json", {"digest": "1"})
    answer = ask(packages, distributions=["engine-x", "ENGINE.X", "engine"])
    there = {"version": "1.0+local", "packages": ["engine", "single.py"]}
    assert answer["distributions"] == {"engine-x": there, "ENGINE.X": there, "engine": None}
    assert answer["marker"] == {"digest": "1"}
    (packages / "engine.x-2.0.dist-info").mkdir()
    assert "installed twice" in refused(packages, distributions=["engine-x"]).what


def test_a_folder_of_packages_alone(packages: Path) -> None:
    answer = read({"path": str(packages), "files": ["engine/empty.py"]}, lambda event: None)
    assert answer["files"]["engine/empty.py"]["bytes"] == 0


@pytest.mark.parametrize(
    "name", ["../x", "/etc/hostname", "engine/../../x", "", ".", "./x", "a//b", "a/", "a\nb", "a\0b", "a\\b"]
)
def test_paths_that_lead_elsewhere(packages: Path, name: str) -> None:
    assert "not a path within site-packages" in refused(packages, name).what


def test_links_are_followed_within_the_environment_only(packages: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    (tmp_path / "env2").mkdir()
    (tmp_path / "env2" / "x").write_text("s")
    links = {
        "in.py": packages / "engine" / "info.py",
        "out.py": tmp_path / "secret",
        "beside.py": tmp_path / "env2" / "x",
        "folder": tmp_path,
        "dangling.py": packages / "nothing",
    }
    for name, target in links.items():
        (packages / name).symlink_to(target)
    assert ask(packages, "in.py")["files"]["in.py"]["bytes"] == 7
    assert ask(packages, "dangling.py")["files"]["dangling.py"] is None
    for name in ("out.py", "beside.py", "folder/secret"):
        assert "a link that leads out" in refused(packages, name).what


def test_site_packages_that_is_itself_a_link_elsewhere(packages: Path, tmp_path: Path) -> None:
    (tmp_path / "other" / "lib" / "python3.11").mkdir(parents=True)
    (tmp_path / "other" / SITE).symlink_to(packages)
    with pytest.raises(AgentError, match="link to somewhere else"):
        read({"path": str(tmp_path / "other"), "files": []}, lambda event: None)


def test_what_is_no_file_is_refused_and_nothing_waits_for_it(packages: Path) -> None:
    os.mkfifo(packages / "pipe.py")
    for name in ("pipe.py", "engine"):
        assert refused(packages, name).what == "not a regular file"


def test_sizes_are_bounded(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "CONTENT_MAX", 6)
    assert "larger than" in refused(packages, "engine/info.py", contents=True).what
    assert ask(packages, "engine/info.py")["files"]["engine/info.py"]["bytes"] == 7
    monkeypatch.setattr(contents, "CONTENT_MAX", 100)
    monkeypatch.setattr(contents, "ANSWER_MAX", 10)
    (packages / "engine" / "more.py").write_bytes(b"A = 1\r\n")
    assert "at once" in refused(packages, "engine/info.py", "engine/more.py", contents=True).what


def test_listing_leaves_out_byte_code_and_names_what_it_cannot_read(packages: Path) -> None:
    (packages / "engine" / "__pycache__").mkdir()
    (packages / "engine" / "__pycache__" / "info.cpython-311.pyc").write_bytes(b"x")
    (packages / "single.py").write_bytes(b"S = 1\n")
    (packages / "engine" / "out.py").symlink_to("/etc/hostname")
    (packages / "engine" / os.fsdecode(b"odd\xff\n.py")).write_bytes(b"")
    answer = list_files(
        {"path": str(packages), "packages": ["engine", "single.py", "none"]}, lambda event: None
    )
    assert sorted(answer["files"]) == ["engine/empty.py", "engine/info.py", "single.py"]
    said = {entry["path"]: entry["why"] for entry in answer["left_out"]}
    assert said["engine/out.py"] == "a link that leads out of the environment"
    assert said["engine/odd\\udcff\\n.py"] == "not a path within site-packages: engine/odd\\udcff\\n.py"
    with pytest.raises(AgentError, match="not a package's name"):
        list_files({"path": str(packages), "packages": ["../x"]}, lambda event: None)


def test_places_that_are_no_environment(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="no environment there"):
        read({"path": str(tmp_path / "none"), "files": []}, lambda event: None)
    for version in ("11", "12"):
        (tmp_path / "lib" / f"python3.{version}" / "site-packages").mkdir(parents=True)
    with pytest.raises(AgentError, match=r"packages of 2 Pythons: python3\.11, python3\.12"):
        read({"path": str(tmp_path), "files": []}, lambda event: None)
