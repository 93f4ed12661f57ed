"""Environments and single distributions from one host to another, on two real hosts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.agent import incoming
from fleetctl.agent.errors import AgentError
from fleetctl.environment.bring import bring_environment, bring_parts
from fleetctl.errors import Exit, FleetError
from fleetctl.transport.agent import open_agent
from tests.conftest import Lab
from tests.transport.sshd import SshSettings, TestHost

LEAD = "lib/python3.12/site-packages"
PATH, ROOT = "/var/lib/fleetctl/bring env", "/var/lib/fleetctl/bring"


def install(venv: Path, name: str, version: str = "1.0", record: str | None = None) -> dict[str, Any]:
    """A distribution of a module, a data file with an odd name and a script; its entry in a BOM."""
    info = f"{name}-{version}.dist-info"
    files = {f"{name}/__init__.py": name, f'{name}/odd, "name".txt': "x", "../../../bin/" + name: "#!"}
    rows = [*files, f"{name}/__pycache__/__init__.cpython-312.pyc", f"{info}/RECORD"]
    for path, text in {**files, f"{info}/METADATA": name}.items():
        target = venv / os.path.normpath(f"{LEAD}/{path}")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    quoted = "".join('"{}",,\n'.format(row.replace('"', '""')) for row in [*rows, f"{info}/METADATA"])
    (venv / LEAD / info / "RECORD").write_text(record or quoted)
    return {
        "name": name,
        "version": version,
        "info": f"{LEAD}/{info}",
        "record": {"state": "ok", "sha256": f"{len(name):064d}"},
    }


@pytest.fixture
def venv(lab: Lab) -> Iterator[Path]:
    folder = lab.state("ct129") / "bring env"
    yield folder
    for path in (folder, lab.state("ct200") / "bring"):
        shutil.rmtree(path, ignore_errors=True)


def host(lab: Lab, name: str) -> TestHost:
    ssh = SshSettings(lab.address(name), "root", identity_file=lab.identity, known_hosts=lab.known_hosts)
    return TestHost(name, ssh)


def bom(venv: Path, *names: str, digest: str = "0123456789ab") -> dict[str, Any]:
    distributions = [install(venv, name) for name in names]
    return {
        "path": PATH,
        "hostname": "ct129",
        "digest": digest,
        "site_packages": [LEAD],
        "distributions": distributions,
    }


@pytest.mark.lab
def test_an_environment_comes_once_and_its_successor_from_it(lab: Lab, venv: Path) -> None:
    source, target, here = host(lab, "ct129"), host(lab, "ct200"), lab.state("ct200") / "bring/incoming"
    events: list[dict[str, Any]] = []
    with open_agent(target) as agent:
        first = bom(venv, "alpha")
        path = bring_environment(agent, source, target, first, "e", events.append, ROOT)
        assert path == f"{ROOT}/incoming/e-0123456789ab"
        assert (here / "e-0123456789ab" / LEAD / "alpha/__init__.py").read_text() == "alpha"
        assert [event["state"] for event in events if event["state"] != "wait"] == ["begin", "ok"]
        events.clear()
        bring_environment(agent, source, target, first, "e", events.append, ROOT)
        assert events == []
        (venv / "more").write_text("more")
        second = {**first, "digest": "ba9876543210"}
        bring_environment(agent, source, target, second, "e", events.append, ROOT)
    old, new = here / "e-0123456789ab", here / "e-ba9876543210"
    assert (new / "more").read_text() == "more"
    assert (new / "bin/alpha").samefile(old / "bin/alpha")
    assert not (old / "more").exists()
    assert sorted(entry.name for entry in here.iterdir()) == ["e-0123456789ab", "e-ba9876543210"]


@pytest.mark.lab
def test_distributions_come_as_parts_and_only_those_asked_for(lab: Lab, venv: Path) -> None:
    source, target, here = host(lab, "ct129"), host(lab, "ct200"), lab.state("ct200") / "bring/parts"
    events: list[dict[str, Any]] = []
    with open_agent(target) as agent:
        wanted = bom(venv, "alpha", "be", "gamma")
        parts = bring_parts(agent, source, target, wanted, ["alpha", "be"], events.append, ROOT)
        assert parts == {name: f"{ROOT}/parts/{name}-1.0-000000000000" for name in ("alpha", "be")}
        events.clear()
        assert bring_parts(agent, source, target, wanted, ["alpha"], events.append, ROOT)
        assert events == []
        for name in ("missing", "gamma"):
            wanted["distributions"][2]["record"]["state"] = "malformed"
            with pytest.raises(FleetError, match=f"{name} cannot be taken"):
                bring_parts(agent, source, target, wanted, [name], events.append, ROOT)
        (venv / LEAD / "gamma/__init__.py").unlink()
        wanted["distributions"][2]["record"]["state"] = "ok"
        with pytest.raises(FleetError, match="could not be read") as caught:
            bring_parts(agent, source, target, wanted, ["gamma"], events.append, ROOT)
    assert caught.value.exit == Exit.PREFLIGHT
    part = here / "alpha-1.0-000000000000"
    assert sorted(path.relative_to(part).as_posix() for path in part.rglob("*") if path.is_file()) == [
        "alpha-1.0.dist-info/METADATA",
        "alpha-1.0.dist-info/RECORD",
        "alpha/__init__.py",
        'alpha/odd, "name".txt',
        "bin/alpha",
    ]
    assert not list(here.glob("gamma*"))


@pytest.mark.parametrize("path", ["../../../../etc/passwd", "/etc/passwd", "../../../.."])
def test_a_record_that_points_out_is_refused(tmp_path: Path, path: str) -> None:
    install(tmp_path, "alpha", record=f"{path},,\n")
    args = {"path": str(tmp_path / LEAD), "lead": LEAD, "infos": ["alpha-1.0.dist-info"]}
    with pytest.raises(AgentError, match="points out"):
        incoming.names(args, print)


def test_a_part_is_whole_or_not_there(tmp_path: Path) -> None:
    install(tmp_path / "env", "alpha")
    sent, part = tmp_path / "env" / LEAD, tmp_path / "parts/alpha-1.0-0"
    args = {"path": str(sent), "lead": LEAD, "parts": {str(part): "alpha-1.0.dist-info"}}
    with pytest.raises(AgentError, match="was not sent"):
        incoming.split(args, print)
    assert not part.exists()
    (sent / "bin").mkdir()
    (sent / "bin/alpha").write_text("#!")
    incoming.split(args, print)
    assert (part / "bin/alpha").is_file()
    assert not sent.exists()
