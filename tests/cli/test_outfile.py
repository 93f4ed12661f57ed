"""``-o`` and ``--latex`` are refused before a host is asked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleetctl.cli.app import whole
from fleetctl.cli.outfile import require_folder
from fleetctl.errors import Exit, FleetError
from fleetctl.transport import agent

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def no_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """The repository as fleet folder, of which no host may be asked."""

    def asked(host: object) -> None:
        raise AssertionError(host)

    monkeypatch.setenv("FLEETCTL_FLEET", str(REPOSITORY))
    monkeypatch.setenv("FLEETCTL_INVENTORY", "inventories")
    monkeypatch.setattr(agent, "open_agent", asked)


@pytest.mark.parametrize("words", [["adopt", "box"], ["env", "capture", "ct200:/root/venv"]])
@pytest.mark.parametrize(
    ("file", "says"), [("no/such/x", "there is no folder"), ("there", "is a folder, and a file")]
)
def test_a_file_that_cannot_be_written(
    words: list[str], file: str, says: str, tmp_path: Path, no_host: None
) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(FleetError, match=says) as caught:
        whole()([*words, "-o", str(tmp_path / file)])
    assert caught.value.exit == Exit.INPUT
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


@pytest.mark.parametrize("verb", ["bench", "sweep"])
@pytest.mark.parametrize(
    ("folder", "says"),
    [("file", "is no folder"), ("file/paper", "is no folder"), ("shut/paper", "nothing can")],
)
def test_a_folder_that_cannot_be_written_in(
    verb: str, folder: str, says: str, tmp_path: Path, no_host: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "shut").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path / "shut")
    with pytest.raises(FleetError, match=says) as caught:
        whole()([verb, "ct200", "--latex", str(tmp_path / folder)])
    assert caught.value.exit == Exit.INPUT and caught.value.where.startswith("--latex ")
    assert not (tmp_path / "shut/paper").exists()


def test_a_folder_that_is_made_or_there_is_right(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "a/b"):
        require_folder(folder, "--latex")
    assert not (tmp_path / "a").exists()
