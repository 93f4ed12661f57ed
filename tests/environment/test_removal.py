"""What the agent takes out of a derived environment, and what it leaves; which modules a RECORD names."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.agent.capture.installed import Site
from fleetctl.agent.capture.modules import modules
from fleetctl.agent.environment.removal import remove
from fleetctl.agent.errors import INPUT, PREFLIGHT, AgentError

LEAD = "lib/python3.12/site-packages"


def install(root: Path, name: str, *files: str) -> None:
    for file in files:
        path = root / LEAD / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    info = root / LEAD / f"{name}-1.0.dist-info"
    info.mkdir()
    rows = [f"{file},," for file in (*files, f"{info.name}/RECORD")]
    (info / "RECORD").write_text("\n".join(rows) + "\n")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    install(tmp_path, "a", "shared/a.py", "shared/__init__.py", "a/deep/one.py", "../../../bin/a")
    install(tmp_path, "b", "shared/b.py", "shared/__init__.py")
    (tmp_path / LEAD / "a" / "deep" / "__pycache__").mkdir()
    (tmp_path / LEAD / "a" / "deep" / "__pycache__" / "one.cpython-312.pyc").write_text("")
    (tmp_path / LEAD / "shared" / "shared").mkdir()
    (tmp_path / LEAD / "shared" / "shared" / "b.py").write_text("copied")
    return Site(str(tmp_path), LEAD)


def left(site: Site) -> set[str]:
    return {str(path.relative_to(site.packages)) for path in Path(site.packages).rglob("*") if path.is_file()}


def test_what_a_record_names_goes_and_what_another_names_too_stays(site: Site) -> None:
    gone = remove(site, ["A"], ["shared/shared"])
    assert left(site) == {"shared/b.py", "shared/__init__.py", "b-1.0.dist-info/RECORD"}
    assert not Path(site.packages, "a").exists(), "folders that are empty now go too"
    assert {"bin/a", f"{LEAD}/shared/a.py", f"{LEAD}/shared/shared/b.py"} <= gone


@pytest.mark.parametrize(
    ("names", "paths", "words", "code"),
    [
        (["c"], [], "there is no c to remove", PREFLIGHT),
        ([], ["../../.."], "is no folder of", INPUT),
        ([], ["nowhere"], "is no folder of", INPUT),
        ([], ["shared"], "is not stray", PREFLIGHT),
    ],
)
def test_what_is_refused(site: Site, names: list[str], paths: list[str], words: str, code: int) -> None:
    before = left(site)
    with pytest.raises(AgentError) as caught:
        remove(site, names, paths)
    assert words in caught.value.what
    assert caught.value.exit == code
    assert left(site) == before


def test_a_link_is_not_followed_out(site: Site, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    Path(site.packages, "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AgentError, match="is no folder of"):
        remove(site, [], ["link"])
    assert (tmp_path / "elsewhere").is_dir()


def test_modules_by_package() -> None:
    paths = [
        "sglang/__init__.py",
        "sglang/srt/server_args.py",
        "sglang/srt/_C.cpython-312-x86_64-linux-gnu.so",
        "sglang/srt/tests/test_x.py",
        "sglang/data.json",
        "six.py",
        "odd-name/x.py",
        "../../../bin/run.py",
    ]
    assert modules(paths) == {"": ["sglang", "six"], "sglang.srt": ["_C", "server_args"]}
