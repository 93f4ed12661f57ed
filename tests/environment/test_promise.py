"""No environment gets its name before what it holds is proved to be what its digest says."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetctl.agent.environment.derive import derive
from fleetctl.agent.environment.environments import MARKER
from fleetctl.agent.environment.examine import examine
from fleetctl.agent.errors import PREFLIGHT, AgentError
from fleetctl.agent.files import read_json
from tests.environment.handmade import install, make_venv, packages
from tests.environment.venvs import bom_of

DIGEST = "0123456789ab"


class Host:
    """A host's state folder and a venv that somebody made by hand."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "state"
        self.base = make_venv(folder / "base")
        install(self.base, "alpha")
        install(self.base, "beta")

    def derive(self, name: str, base: Path, digest: str | None = None, **more: Any) -> Path:
        args = {"name": name, "digest": DIGEST, "base": str(base), "root": str(self.root), **more}
        if digest is not None:
            origin = {"host": "ct200", "path": str(base), "digest": digest, **more.get("origin", {})}
            args["origin"] = origin
        return Path(derive(args, more.get("emit", lambda event: None))["path"])

    def refused(self, base: Path, digest: str | None = None, **more: Any) -> AgentError:
        with pytest.raises(AgentError) as caught:
            self.derive("copy", base, digest, **more)
        assert caught.value.exit == PREFLIGHT
        assert list((self.root / "envs").glob("copy*")) == []
        return caught.value


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def edit(venv: Path, text: str = "VALUE = 9\n") -> None:
    (packages(venv) / "alpha/__init__.py").write_text(text)


def test_what_changed_after_it_was_looked_at_is_not_named(host: Host) -> None:
    digest = bom_of(host.base)["digest"]
    edit(host.base)
    error = host.refused(host.base, digest)
    assert "changed while it was copied" in error.what and "run it again" in error.fix
    assert host.derive("copy", host.base, bom_of(host.base)["digest"]).is_dir()


def test_a_writer_that_ends_while_it_is_copied_is_seen(host: Host) -> None:
    """Not by the times of the files: what is copied is whole, but it is not what was planned."""
    digest = bom_of(host.base)["digest"]

    def emit(event: dict[str, Any]) -> None:
        if event["step"] == "derive-clone" and event["state"] == "begin":
            edit(host.base)

    assert "changed while it was copied" in host.refused(host.base, digest, emit=emit).what


def test_the_same_content_is_proved_from_wherever_it_came(host: Host) -> None:
    """As it comes from another host: in a folder of fleetctl's own, still naming the old place."""
    place = host.base
    script = host.base / "bin/by-hand"
    script.write_text(f"#!{place}/bin/python\nprint('{place}/share')\n")
    (host.base / "share").mkdir()
    (host.base / "share/first").write_text("")
    (host.base / "share/second").symlink_to(f"{place}/share/first")
    digest = bom_of(host.base)["digest"]
    incoming = host.root / "incoming/ct129-x"
    shutil.copytree(host.base, incoming, symlinks=True)
    host.base.rename(host.base.with_name("gone"))
    made = host.derive("copy", incoming, digest, origin={"host": "ct129", "path": str(place)})
    assert os.readlink(made / "share/second") == "first"  # noqa: PTH115
    assert f"print('{made}/share')" in (made / "bin/by-hand").read_text()


def test_an_edited_environment_is_not_taken_for_what_its_marker_says(host: Host) -> None:
    first = host.derive("first", host.base)
    edit(first)
    error = host.refused(first, DIGEST)
    assert "edited in place" in error.what and "alpha/__init__.py" in error.what
    assert f"fleetctl env verify ct200:{first}" in error.fix
    args = {"base": str(first), "name": "copy", "expects": DIGEST, "root": str(host.root)}
    with pytest.raises(AgentError, match="edited in place"):
        examine(args, lambda event: None)
    assert host.derive("as-it-is", first, bom_of(first)["digest"]).is_dir()


def test_a_log_that_a_server_wrote_does_not_stop_a_clone(host: Host) -> None:
    first = host.derive("first", host.base, bom_of(host.base)["digest"])
    (first / "run.log").write_text("words")
    content = bom_of(first)["digest"]
    args = {"name": "first", "digest": content, "base": str(first), "root": str(host.root)}
    assert derive({**args, "origin": {"digest": content, "path": str(first)}}, lambda event: None)["built"]


def _no_library(venv: Path) -> None:
    (packages(venv) / "alpha/kernel.so").write_bytes(b"\x7fELF cut off")


def _two_of_one(venv: Path) -> None:
    install(venv, "alpha", "2.0")


def _elsewhere(venv: Path) -> None:
    (venv / "bin/lost").write_text("#!/srv/gone/bin/python\n")


@pytest.mark.parametrize("change", [edit, _no_library, _two_of_one, _elsewhere])
def test_what_would_not_verify_gets_no_name(host: Host, change: Callable[[Path], None]) -> None:
    change(host.base)
    error = host.refused(host.base, verify=True)
    assert "would not be what it should be" in error.what and ".building" not in str(error.to_dict())


def test_what_lacks_its_abi_or_a_module_gets_no_name(host: Host) -> None:
    assert "torch2.11" in host.refused(host.base, verify=True, wants_abi="torch2.11").fix
    assert "nowhere does not load" in host.refused(host.base, verify=True, imports=["alpha", "nowhere"]).what


def test_a_verified_one_knows_its_content_and_passes_it_on(host: Host) -> None:
    made = host.derive("copy", host.base, verify=True, imports=["alpha"])
    content = bom_of(made)["digest"]
    assert (read_json(made / MARKER) or {})["content"] == content
    steps: list[str] = []
    second = host.derive("second", made, content, emit=lambda event: steps.append(event["step"]))
    assert "derive-prove" not in steps
    assert (read_json(second / MARKER) or {})["content"] == content
