"""What stands at a path that an operator names stays what it is."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from fleetctl.files import save


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("before")
    held = path.open()
    save(path, "é ✓\n")
    assert path.read_text() == "é ✓\n" and held.read() == "before"
    assert [one.name for one in tmp_path.iterdir()] == ["out"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    save(link, "text")
    assert link.is_symlink() and target.read_text() == "text"


def test_a_pipe_is_written_into_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.append(path.read_text()))
    reader.start()
    save(path, "text")
    reader.join(60)
    assert said == ["text"] and path.is_fifo()


def test_what_a_device_refuses_is_told(tmp_path: Path) -> None:
    full = tmp_path / "full"
    os.mknod(full, stat.S_IFCHR | 0o600, os.makedev(1, 7))
    with pytest.raises(OSError, match="No space left"):
        save(full, "text")
    assert full.is_char_device()
