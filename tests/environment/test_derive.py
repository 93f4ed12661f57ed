"""Deriving on this machine, in a folder of its own: clone, relocate, overlay, patch, and what is refused."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.agent.capture import mentions
from fleetctl.agent.capture.installed import Site
from fleetctl.agent.capture.mentions import Paths
from fleetctl.agent.environment import elfpath, linktree
from fleetctl.agent.environment.derive import derive
from fleetctl.agent.environment.environments import MARKER, list_environments
from fleetctl.agent.environment.examine import examine
from fleetctl.agent.environment.prune import prune
from fleetctl.agent.environment.staging import free_bytes
from fleetctl.agent.errors import INPUT, PREFLIGHT, AgentError
from tests.environment.handmade import PYTHON, install, make_venv, naming, packages, snapshot, wrong_records

DIGEST = "0123456789ab"


class Host:
    """A host's state folder, a venv ``base`` that somebody made by hand, and what a controller would ask."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "state"
        self.base = folder / "base"
        self.events: list[dict[str, Any]] = []

    def derive(self, name: str = "copy", base: Path | str | None = None, **more: Any) -> dict[str, Any]:
        args = {
            "name": name,
            "digest": DIGEST,
            "base": str(base or self.base),
            "root": str(self.root),
            **more,
        }
        return derive(args, self.events.append)

    def path(self, name: str = "copy") -> Path:
        return self.root / "envs" / f"{name}-{DIGEST}"

    def marker(self, name: str = "copy") -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.path(name) / MARKER).read_text())
        return content

    def refused(self, **more: Any) -> AgentError:
        with pytest.raises(AgentError) as caught:
            self.derive(**more)
        assert list((self.root / "envs").glob("copy*")) == []
        return caught.value


@pytest.fixture(scope="session")
def plain_venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_venv(tmp_path_factory.mktemp("plain") / "base")


@pytest.fixture
def host(tmp_path: Path, plain_venv: Path) -> Host:
    host = Host(tmp_path)
    shutil.copytree(plain_venv, host.base, symlinks=True)
    for file in [*host.base.glob("bin/[aA]ctivate*"), host.base / "pyvenv.cfg"]:
        file.write_text(file.read_text().replace(str(plain_venv), str(host.base)))
    install(host.base, "alpha")
    install(host.base, "beta", files={"beta/deep/__init__.py": "", "beta/deep/one.py": "ONE = 1\n"})
    return host


def run(path: Path, *argv: str) -> str:
    return subprocess.run([str(path), *argv], capture_output=True, text=True, check=True).stdout.strip()


def test_a_foreign_venv_is_copied_relocated_and_proved(host: Host) -> None:
    before = snapshot(host.base)
    made = host.derive(imports=["alpha"])
    assert made["built"] and made["method"] in ("copy", "reflink")
    copy = host.path()
    assert snapshot(host.base) == before
    assert naming(copy, str(host.base)) == [] and naming(copy, ".building") == []
    assert run(copy / "bin/alpha-cmd") == "1.0"
    assert run(copy / "bin/python", "-c", "import sys; print(sys.prefix)") == str(copy)
    shell = f". {copy}/bin/activate && echo $VIRTUAL_ENV"
    assert run(Path("/bin/sh"), "-c", shell) == str(copy)
    assert wrong_records(copy) == []
    assert (packages(copy) / "alpha/__pycache__").is_dir()
    marker = host.marker()
    assert marker["named_in"] and set(marker["records"]) == {"alpha", "beta"}
    assert host.derive() == {"path": str(copy), "built": False, "method": None, "seconds": {}}


def test_a_clone_of_an_environment_of_fleetctl_shares_its_files(host: Host) -> None:
    host.derive("first")
    before = snapshot(host.path("first"))
    made = host.derive("second", host.path("first"), imports=["beta.deep.one"])
    first, second = host.path("first"), host.path("second")
    assert made["method"] == "hardlink"
    assert snapshot(first) == before
    shared = packages(second) / "beta/deep/one.py"
    assert shared.samefile(packages(first) / "beta/deep/one.py")
    cached = next((packages(second) / "beta/deep/__pycache__").glob("one.*.pyc"))
    assert cached.samefile(packages(first) / "beta/deep/__pycache__" / cached.name)
    assert naming(second, str(first)) == []
    assert run(second / "bin/beta-cmd") == "1.0"
    assert host.marker("second")["stamp"] != host.marker("first")["stamp"]


def test_one_edited_in_place_is_not_trusted_any_more(host: Host) -> None:
    host.derive("first")
    edited = packages(host.path("first")) / "alpha/__init__.py"
    edited.write_text(f"PLACE = {str(host.path('first'))!r}\nVALUE = 2\n")
    made = host.derive("second", host.path("first"))
    assert made["method"] != "hardlink"
    assert naming(host.path("second"), str(host.path("first"))) == []
    assert run(host.path("second") / "bin/python", "-c", "import alpha; print(alpha.PLACE)") == str(
        host.path("second")
    )


def test_byte_code_that_a_server_wrote_stays_behind(host: Host) -> None:
    host.derive("first")
    folder = packages(host.path("first")) / "late"
    cache = folder / "__pycache__"
    for path, text in ((cache / "run.cpython-311.pyc", str(folder)),):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    assert host.derive("second", host.path("first"))["method"] == "hardlink"
    assert naming(host.path("second"), str(host.path("first"))) == []


def test_scripts_paths_and_editable_installs(host: Host, tmp_path: Path) -> None:
    base, site = host.base, packages(host.base)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "apart.py").write_text("APART = 1\n")
    (base / "src").mkdir()
    (base / "src" / "within.py").write_text("WITHIN = 1\n")
    url = {"url": f"file://{base}/src", "dir_info": {"editable": True}}
    install(
        base,
        "inner",
        files={"inner.pth": f"{base}/src\n", "inner-1.0.dist-info/direct_url.json": json.dumps(url)},
    )
    url = {"url": f"file://{outside}", "dir_info": {"editable": True}}
    install(
        base,
        "outer",
        files={"outer.pth": f"{outside}\n", "outer-1.0.dist-info/direct_url.json": json.dumps(url)},
    )
    long = f"#!/bin/sh\n'''exec' {base}/bin/python3 -I \"$0\" \"$@\"\n' '''\nimport sys\nprint(sys.prefix)\n"
    (base / "bin" / "long").write_text(long)
    (base / "bin" / "long").chmod(0o755)
    (base / "bin" / "notes").write_text(
        f"{base}-old and {base}.bak, {tmp_path}{base} stay; {base}/lib goes\n"
    )
    (base / "share").symlink_to(base / "src")
    made = host.derive()
    copy = host.path()
    assert made["editable"] == {"outer-1.0.dist-info": str(outside)}
    said = "import within, apart; print(within.__file__, apart.__file__)"
    assert run(copy / "bin/python", "-c", said) == f"{copy}/src/within.py {outside}/apart.py"
    assert run(copy / "bin/long") == str(copy)
    notes = (copy / "bin/notes").read_text()
    assert notes == f"{base}-old and {base}.bak, {tmp_path}{base} stay; {copy}/lib goes\n"
    assert os.readlink(copy / "share") == "src"  # noqa: PTH115
    direct = json.loads((packages(copy) / "inner-1.0.dist-info/direct_url.json").read_text())
    assert direct["url"] == f"file://{copy}/src"
    assert wrong_records(copy) == []
    assert (site / "inner.pth").read_text() == f"{base}/src\n"


def test_search_paths_of_libraries(host: Host, tmp_path: Path) -> None:
    site = packages(host.base)
    source = tmp_path / "one.c"
    source.write_text(f'const char *where(void) {{ return "{host.base}/include"; }}\n')
    library = site / "alpha" / "one.so"
    argv = ["gcc", "-shared", "-fPIC", f"-Wl,-rpath,/opt/x:{site}/beta", "-o", str(library), str(source)]
    subprocess.run(argv, check=True)
    made = host.derive()
    said = subprocess.run(
        ["readelf", "-d", str(packages(host.path()) / "alpha/one.so")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "[/opt/x:$ORIGIN/../beta]" in said
    assert list(made["kept"]) == [str((packages(host.path()) / "alpha/one.so").relative_to(host.path()))]
    assert str(host.base) in library.read_bytes().decode("latin-1")


def test_a_binary_file_that_names_the_old_place_is_refused(host: Host) -> None:
    (packages(host.base) / "alpha" / "state.bin").write_bytes(b"\0\1" + str(host.base).encode() + b"/x\0")
    error = host.refused()
    assert error.exit == PREFLIGHT
    assert "alpha/state.bin" in error.what


def test_what_cannot_be_cloned_is_refused(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skeleton = tmp_path / "skeleton"
    shutil.copytree(host.base, skeleton, symlinks=True)
    for link in skeleton.glob("bin/python*"):
        link.unlink()
    (skeleton / "bin/python").symlink_to("python3")
    (skeleton / "bin/python3").symlink_to("/opt/python3.12/bin/python3")
    error = host.refused(base=skeleton)
    assert "skeleton" in error.what and "/opt/python3.12/bin/python3" in error.what
    (tmp_path / "folder").mkdir()
    assert "no venv" in host.refused(base=tmp_path / "folder").what
    assert "not there" in host.refused(base=tmp_path / "nothing").what
    assert host.refused(base="relative/path").exit == INPUT
    (host.base / "bin" / "loop").symlink_to("loop")
    (host.base / "out").symlink_to("/etc/passwd")
    listener = socket.socket(socket.AF_UNIX)
    monkeypatch.chdir(host.base)
    listener.bind("sock")
    os.mkfifo("fifo")
    error = host.refused()
    assert error.exit == PREFLIGHT
    for text in ("bin/loop", "out -> /etc/passwd", "sock", "fifo"):
        assert text in error.what
    assert "inside" in host.refused(base=host.base, root=str(host.base / "state")).what


def test_the_base_of_a_hand_moved_venv_is_found_in_activate(host: Host, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    host.base.rename(moved)
    host.derive(base=moved)
    assert naming(host.path(), str(host.base)) == []
    assert run(host.path() / "bin/alpha-cmd") == "1.0"


def test_odd_file_names_come_along(host: Host) -> None:
    folder = os.fsencode(packages(host.base) / "alpha")
    for name in (b"new\nline.py", b"\xff\xfe.txt", "ä.txt".encode(), b"[x].py"):
        Path(os.fsdecode(folder + b"/" + name)).write_text("X = 1\n")
    host.derive()
    assert host.derive("again", host.path())["method"] == "hardlink"
    names = os.listdir(os.fsencode(packages(host.path("again")) / "alpha"))  # noqa: PTH208
    assert {b"new\nline.py", b"\xff\xfe.txt", "ä.txt".encode(), b"[x].py"} <= set(names)


def test_a_base_that_is_written_to_is_refused(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    bring = linktree.bring
    written = packages(host.base) / "alpha" / "growing.txt"
    count = 0

    def slow(*args: Any) -> None:
        nonlocal count
        bring(*args)
        count += 1
        if count <= times:
            written.write_text("x" * count)

    monkeypatch.setattr("fleetctl.agent.environment.derive.bring", slow)
    times = 1
    host.derive("once")
    assert (packages(host.path("once")) / "alpha/growing.txt").read_text() == "x"
    count, times = 1, 9
    error = host.refused()
    assert "being written to" in error.what and "alpha/growing.txt" in error.what


def test_two_at_once_make_it_once(host: Host) -> None:
    results: list[bool] = []
    threads = [threading.Thread(target=lambda: results.append(host.derive()["built"])) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [False, False, True]


def test_a_strangers_folder_is_left_alone(host: Host) -> None:
    host.path().mkdir(parents=True)
    (host.path() / "precious").write_text("mine")
    with pytest.raises(AgentError) as caught:
        host.derive()
    assert caught.value.exit == PREFLIGHT
    assert (host.path() / "precious").read_text() == "mine"


def test_a_module_that_does_not_load_leaves_nothing(host: Host) -> None:
    (packages(host.base) / "alpha" / "broken.py").write_text("import nowhere\n")
    error = host.refused(imports=["alpha", "alpha.broken"])
    assert "alpha.broken does not load" in error.what
    assert any("No module named 'nowhere'" in line for line in error.evidence)


def test_an_overlay_replaces_a_distribution(host: Host, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(host.base, other, symlinks=True)
    install(host.base, "gamma", files={"common/__init__.py": "", "gamma/old/only.py": "OLD = 1\n"})
    install(host.base, "delta", files={"common/__init__.py": ""})
    install(other, "gamma", "2.0", files={"common/__init__.py": "", "gamma/new.py": "NEW = 1\n"})
    before, source = snapshot(host.base), snapshot(other)
    overlays = [{"distribution": "gamma", "from": str(other)}]
    host.derive(overlays=overlays, imports=["gamma.new", "common"])
    site = packages(host.path())
    assert (snapshot(host.base), snapshot(other)) == (before, source)
    assert run(host.path() / "bin/gamma-cmd") == "2.0"
    assert not (site / "gamma/old").exists() and not (site / "gamma-1.0.dist-info").exists()
    assert (site / "common/__init__.py").exists()
    assert wrong_records(host.path()) == [] and naming(host.path(), str(other)) == []
    assert host.marker()["overlays"][0]["info"] == "gamma-2.0.dist-info"
    host.derive("without", overlays=[], base=host.path())
    assert set(host.marker("without")["records"]) == {"alpha", "beta", "delta", "gamma"}


def test_an_overlay_from_a_part_and_between_environments(host: Host) -> None:
    part = host.root / "parts" / "alpha-3.0-0123456789ab"
    install(part, "alpha", "3.0", part=True)
    host.derive("first")
    overlays = [{"distribution": "alpha", "from": str(part), "path": str(part)}]
    made = host.derive("second", host.path("first"), overlays=overlays, imports=["alpha"])
    assert made["method"] == "hardlink"
    assert run(host.path("second") / "bin/alpha-cmd") == "3.0"
    assert run(host.path("first") / "bin/alpha-cmd") == "1.0"
    host.derive(
        "third", host.path("first"), overlays=[{"distribution": "alpha", "from": str(host.path("second"))}]
    )
    assert run(host.path("third") / "bin/alpha-cmd") == "3.0"
    compiled = next((packages(host.path("third")) / "alpha/__pycache__").glob("*.pyc"))
    assert compiled.samefile(packages(host.path("second")) / "alpha/__pycache__" / compiled.name)


def test_overlays_that_are_refused(host: Host, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(host.base, other, symlinks=True)
    record = packages(other) / "alpha-1.0.dist-info" / "RECORD"
    text = record.read_text()
    overlays = [{"distribution": "alpha", "from": str(other)}]
    for content, word in (
        (text + "../../../../../etc/passwd,,\n", "points out"),
        (text + "/etc/passwd,,\n", "points out"),
        (text + '"unclosed\n', "malformed"),
        (text + "alpha/gone.py,,\n", "missing"),
    ):
        record.write_text(content)
        assert word in " ".join([host.refused(overlays=overlays).what])
    record.unlink()
    assert "is missing" in host.refused(overlays=overlays).what
    record.write_text(text)
    nested = packages(other) / "alpha" / "alpha"
    nested.mkdir()
    (nested / "__init__.py").write_text("")
    assert "nested copy" in host.refused(overlays=overlays).what
    assert "not there" in host.refused(overlays=[{"distribution": "nowhere", "from": str(other)}]).what


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("../../../bin/python,,", "what makes a venv"),
        ("../../../bin/python3.11,,", "what makes a venv"),
        ("../../../pyvenv.cfg,,", "what makes a venv"),
        ("../../../bin/activate,,", "what makes a venv"),
        ("../../../bin/activate.fish,,", "what makes a venv"),
        ("alpha/unhashed.py,,", "no hash of"),
    ],
)
def test_a_record_that_names_more_than_its_own_files_is_refused(
    host: Host, tmp_path: Path, line: str, word: str
) -> None:
    other = tmp_path / "other"
    shutil.copytree(host.base, other, symlinks=True)
    place = packages(other) / line.partition(",")[0]
    place.unlink(missing_ok=True)
    place.write_text("#!/bin/sh\necho hostile\n")
    record = packages(other) / "alpha-1.0.dist-info/RECORD"
    record.write_text(f"{record.read_text()}{line}\n")
    error = host.refused(overlays=[{"distribution": "alpha", "from": str(other)}])
    assert error.exit == PREFLIGHT and word in error.what


def test_scripts_that_only_begin_like_the_venvs_own_may_come(host: Host, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(host.base, other, symlinks=True)
    more = {"../../../bin/activate-global-python-argcomplete": "#!/bin/sh\n"}
    install(other, "argcomplete", files=more)
    host.derive(overlays=[{"distribution": "argcomplete", "from": str(other)}])
    assert (host.path() / "bin/activate-global-python-argcomplete").exists()


def test_a_base_whose_record_names_its_interpreter_keeps_it(host: Host, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(host.base, other, symlinks=True)
    record = packages(host.base) / "alpha-1.0.dist-info/RECORD"
    record.write_text(record.read_text() + "../../../bin/python,,\n../../../pyvenv.cfg,,\n")
    host.derive(overlays=[{"distribution": "alpha", "from": str(other)}], imports=["alpha"])
    host.derive("without", removes={"distributions": ["alpha"]})
    assert run(host.path("without") / "bin/python", "-c", "print(1)") == "1"


@pytest.mark.parametrize("of_fleetctl", [False, True])
def test_a_file_that_is_not_what_its_record_says_does_not_come(
    host: Host, tmp_path: Path, of_fleetctl: bool
) -> None:
    other = tmp_path / "other"
    shutil.copytree(host.base, other, symlinks=True)
    install(other, "gamma", files={"gamma/one.py": "ONE = 1\n"})
    if of_fleetctl:
        host.derive("other", other)
        other = host.path("other")
    changed = packages(other) / "gamma/one.py"
    stat = changed.stat()
    changed.write_text("ONE = 2\n")
    os.utime(changed, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    error = host.refused(overlays=[{"distribution": "gamma", "from": str(other)}])
    assert (
        error.exit == PREFLIGHT and "gamma/one.py" in error.what and "not what its RECORD says" in error.what
    )


def test_another_record_than_planned_does_not_come(host: Host, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(host.base, other, symlinks=True)
    install(other, "gamma", files={"gamma/one.py": "ONE = 1\n"})
    planned = Site(str(other), f"lib/{PYTHON}/site-packages").digest("gamma-1.0.dist-info")
    overlays = [{"distribution": "gamma", "from": str(other), "record": planned}]
    install(other, "gamma", files={"gamma/one.py": "ONE = 2\n"})
    assert "was changed since this was planned" in host.refused(overlays=overlays).what


def patch(path: str, before: str | None, after: str | None, **more: Any) -> dict[str, Any]:
    write = {
        "path": path,
        "before": None if before is None else hashlib.sha256(before.encode()).hexdigest(),
        "after": None if after is None else hashlib.sha256(after.encode()).hexdigest(),
        "content": None if after is None else base64.b64encode(after.encode()).decode(),
    }
    return {"name": "fix", "distribution": "beta", "writes": [write], **more}


def test_patches_are_written_recorded_compiled_and_checked(host: Host) -> None:
    host.derive("first")
    before = snapshot(host.path("first"))
    patches = [
        patch("beta/deep/one.py", "ONE = 1\n", "ONE = 2\n", imports=["beta.deep.one"]),
        patch("beta/deep/one.py", "ONE = 2\n", "ONE = 3\n"),
        patch(
            "beta/more/two.py", None, "TWO = 2\n", checks=[["-c", "import beta.more.two as t; print(t.TWO)"]]
        ),
        patch("beta/__init__.py", "VALUE = '1.0'\n", None),
    ]
    made = host.derive("second", host.path("first"), patches=patches)
    site = packages(host.path("second"))
    assert snapshot(host.path("first")) == before
    assert (site / "beta/deep/one.py").read_text() == "ONE = 3\n"
    assert not (site / "beta/__init__.py").exists()
    assert wrong_records(host.path("second")) == []
    record = (site / "beta-1.0.dist-info/RECORD").read_text()
    assert "beta/more/two.py,sha256=" in record and "beta/__init__.py" not in record
    assert made["checks"] == [{"patch": "fix", "argv": patches[2]["checks"][0], "status": 0, "output": ["2"]}]
    assert len(list((site / "beta/more/__pycache__").glob("two.*.pyc"))) == 1
    marker = host.marker("second")
    assert [one["name"] for one in marker["patches"]] == ["fix"] * 4
    assert marker["records"]["alpha"] == host.marker("first")["records"]["alpha"]
    assert marker["records"]["beta"] != host.marker("first")["records"]["beta"]
    says = "import beta.deep.one as one; print(one.ONE)"
    assert run(host.path("second") / "bin/python", "-c", says) == "3"


def test_patches_that_are_refused(host: Host) -> None:
    fits = patch("beta/deep/one.py", "ONE = 1\n", "ONE = 2\n")
    assert "patch is for" in host.refused(patches=[fits, patch("beta/deep/one.py", "ONE = 9\n", "X\n")]).what
    assert "is for no file" in host.refused(patches=[patch("beta/deep/one.py", None, "X\n")]).what
    assert host.refused(patches=[patch("../../../bin/python", None, "X\n")]).exit == INPUT
    assert host.refused(patches=[patch("../../../../../x", None, "X\n")]).exit == INPUT
    fits["writes"][0]["after"] = "0" * 64
    assert "digest" in host.refused(patches=[fits]).what
    failing = patch(
        "beta/deep/one.py", "ONE = 1\n", "ONE = 2\n", checks=[["python", "-c", "print('why'); 1/0"]]
    )
    error = host.refused(patches=[failing])
    assert "check of the patch fix failed" in error.what and "why" in error.evidence


def test_prune_keeps_what_is_used(host: Host, tmp_path: Path) -> None:
    host.derive("first")
    for name in ("slot", "unit", "process", "idle"):
        host.derive(name, host.path("first"))
    (host.root / "slots").mkdir()
    state = {"environment": str(host.path("slot"))}
    (host.root / "slots" / "native.json").write_text(json.dumps(state))
    units = tmp_path / "units"
    units.mkdir()
    (units / "x.service").write_text(f"ExecStart={host.path('unit')}/bin/python -m http.server\n")
    sleeper = subprocess.Popen(
        [str(host.path("process") / "bin/python"), "-c", "import time; time.sleep(6000)"]
    )
    try:
        args: dict[str, Any] = {"root": str(host.root), "units": [str(units)]}
        planned = prune({**args, "plan": True}, host.events.append)
        assert {one["name"] for one in planned["removed"]} == {"first", "idle"}
        used = {one["name"]: one["used_by"] for one in planned["kept"]}
        assert used["slot"] == ["slot native (current)"]
        assert used["unit"] == [f"unit {units}/x.service"]
        assert used["process"] == [f"process {sleeper.pid}"]
        with pytest.raises(AgentError, match="in use"):
            prune({**args, "names": ["idle", "slot"]}, host.events.append)
        assert host.path("idle").exists()
        assert {one["name"] for one in prune({**args, "keep": 1}, host.events.append)["removed"]} == set()
        listed = {one["name"]: one for one in list_environments({**args, "sizes": True}, host.events.append)}
        assert 0 < listed["idle"]["own_bytes"] < listed["idle"]["shared_bytes"]
        broken, going_on = host.root / "incoming/ct129-a", host.root / "incoming/ct129-b"
        for folder in (broken, going_on):
            folder.mkdir(parents=True)
        held = os.open(going_on, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(held, fcntl.LOCK_EX)
        done = prune({**args, "names": ["idle"]}, host.events.append)
        assert done["leftovers"] == [] and broken.exists(), "only what was named"
        (broken / "half").write_bytes(bytes(5000))
        half = host.root / "envs/cut-0123456789ab.building"
        half.mkdir()
        (half / "file").write_bytes(bytes(700))
        left = [{"path": str(half), "own_bytes": 700}, {"path": str(broken), "own_bytes": 5000}]
        planned = prune({**args, "keep": 9, "plan": True}, host.events.append)
        assert (planned["leftovers"], planned["freed_bytes"]) == (left, 5700)
        assert broken.exists() and half.exists()
        swept = prune({**args, "keep": 9}, host.events.append)
        assert (swept["removed"], swept["leftovers"], swept["freed_bytes"]) == ([], left, 5700)
        assert [event["text"] for event in host.events[-2:]] == [f"removed {half}", f"removed {broken}"]
        assert (broken.exists(), half.exists(), going_on.exists()) == (False, False, True)
        os.close(held)
        assert done["freed_bytes"] == listed["idle"]["own_bytes"]
        assert not host.path("idle").exists() and host.path("first").exists()
    finally:
        sleeper.kill()
        sleeper.wait()


def test_prune_takes_no_name_that_several_have(host: Host) -> None:
    host.derive("first")
    host.derive("first", host.path("first"), digest="ba9876543210")
    args: dict[str, Any] = {"root": str(host.root), "units": []}
    with pytest.raises(AgentError, match=r"which first\? There are 2") as caught:
        prune({**args, "names": ["first"]}, host.events.append)
    assert caught.value.exit == INPUT and len(caught.value.evidence) == 2
    assert len(list((host.root / "envs").iterdir())) == 2
    with pytest.raises(AgentError) as caught:
        prune({**args, "names": ["frist"]}, host.events.append)
    assert caught.value.fix.startswith("did you mean first?")
    done = prune({**args, "names": [host.path("first").name]}, host.events.append)
    assert [one["path"] for one in done["removed"]] == [str(host.path("first"))]


def test_what_is_not_there_and_what_is_a_file_is_wrong_input(host: Host) -> None:
    for base, words in (
        (f"{host.base}x", "there is no"),
        (f"{host.base}/pyvenv.cfg", "is a file, not a venv"),
    ):
        with pytest.raises(AgentError) as caught:
            examine({"base": base, "root": str(host.root)}, host.events.append)
        assert caught.value.exit == INPUT and words in caught.value.what, caught.value.what
    (host.root / "envs").parent.mkdir(exist_ok=True)
    (host.root / "envs").symlink_to("/dev/shm")
    found = examine({"base": str(host.base), "root": str(host.root)}, host.events.append)
    assert abs(found["free_bytes"] - free_bytes(Path("/dev/shm"))) < 1 << 28
    (host.root / "envs").unlink()


def test_the_oldest_python_can_read_it_all() -> None:
    old = Path.home() / ".pyenv/versions/3.9.18/bin/python3"
    python = str(old) if old.exists() else sys.executable
    names = ["derive", "prune", "overlay", "patching", "relocate", "elfpath", "examine"]
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    modules = [f"fleetctl.agent.environment.{name}" for name in names]
    subprocess.run([python, "-S", "-c", code, *modules], check=True, env=environment)


@given(st.integers(0, 1 << 30), st.binary(max_size=64), st.integers(0, 1 << 30))
@settings(max_examples=300, deadline=None)
def test_a_hostile_library_is_refused_or_left_alone(cut: int, noise: bytes, place: int) -> None:
    content = bytearray(library())
    at = place % len(content)
    content[at : at + len(noise)] = noise
    paths = Paths(["/opt/old"])
    with contextlib.suppress(elfpath.NoRoom):
        changed = elfpath.relocated(
            bytes(content[: cut % (2 * len(content))]), paths, ["/opt/old"], "lib/x.so"
        )
        assert changed is None or len(changed) <= len(content)


def test_a_search_path_that_has_no_room_or_is_shared(tmp_path: Path) -> None:
    paths = Paths(["/opt/old"])
    changed = elfpath.relocated(library(), paths, ["/opt/old"], "lib/x.so")
    assert changed is not None and b"\0$ORIGIN/some/libs\0\0" in changed and len(changed) == len(library())
    with pytest.raises(elfpath.NoRoom, match="longer"):
        elfpath.relocated(library(), paths, ["/opt/old"], "lib/deep/down/there/x.so")


@cache
def library() -> bytes:
    """A library whose RUNPATH is ``/opt/old/lib/some/libs``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.so"
        argv = [
            "gcc",
            "-shared",
            "-fPIC",
            "-Wl,-rpath,/opt/old/lib/some/libs",
            "-x",
            "c",
            "-",
            "-o",
            str(path),
        ]
        subprocess.run(argv, input=b"int one(void) { return 1; }", check=True)
        return path.read_bytes()


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_a_path_is_found_wherever_it_stands_alone(before: bytes, after: bytes) -> None:
    paths = Paths(["/opt/old"])
    content = before + b" /opt/old/x " + after
    assert paths.named_in(content)
    assert not paths.named_in(paths.replaced(content, "/srv/new"))
    assert paths.named_in(b"/opt/older") is False and paths.named_in(b"/srv/opt/old") is False


def test_a_path_across_two_pieces_of_a_big_file(tmp_path: Path) -> None:
    paths = Paths(["/opt/old"])
    file = tmp_path / "big"
    for size in (mentions.FIRST, mentions.FIRST + mentions.CHUNK):
        for shift in range(-12, 3):
            file.write_bytes(b"\n" * (size + shift) + b"/opt/old" + b"\n" * 9)
            assert paths.named_by(str(file)), (size, shift)
            file.write_bytes(b"\n" * (size + shift) + b"/opt/old_er" + b"\n" * 9)
            assert not paths.named_by(str(file)), (size, shift)
