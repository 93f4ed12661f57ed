"""What a relay lets a host ask of another: rsync's sender for the wanted folder, and nothing else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.errors import Exit, FleetError
from fleetctl.transport.sender import sender_options, sender_words

HEAD, TAIL = ["rsync", "--server", "--sender"], [".", "/fleetctl-source/"]


def request(*options: str) -> list[bytes]:
    return [word.encode() for word in (*HEAD, *options, *TAIL)]


@pytest.mark.parametrize(
    "options",
    [
        ["-lDtpre.iLsfxCIvu", "--timeout=60", "--info=STATS"],
        ["-lHDtprce.iLsfxCIvu", "--timeout=60"],
        ["-lDtpRe31.14", "--timeout=60", "--files-from=-", "--from0"],
    ],
)
def test_what_rsync_asks_is_passed(options: list[str]) -> None:
    assert sender_options(request(*options)) == " ".join(options)


@pytest.mark.parametrize(
    "option",
    [
        "--remove-source-files",
        "--files-from=/etc/shadow",
        "--log-file=/etc/passwd",
        "--daemon",
        "--config=/tmp/x",
        "--rsync-path=sh",
        "--info=a;b",
        "--timeout=60;id",
        "--timeout=60 --remove-source-files",
        "--from0\n--daemon",
        "-lLDtpre.iLsfxCIvu",
        "-lDtprse.iLsfxCIvu",
        "-e.L;id",
        "-esh",
        "$(id)",
        "`id`",
        "-M--remove-source-files",
        "/etc/",
        "..",
        ".",
        "",
        "\u0430",
    ],
)
def test_anything_else_is_refused(option: str) -> None:
    with pytest.raises(FleetError, match="something other") as caught:
        sender_options(request("-lDtpre.iLsfxCIvu", option))
    assert caught.value.exit == Exit.PREFLIGHT


@pytest.mark.parametrize(
    "words",
    [
        ["rsync", "--server", "-lDtpre.iLsfxCIvu", *TAIL],
        ["sh", "-c", "id", *TAIL],
        [*HEAD, ".", "/etc/"],
        [*HEAD, "-lDtpre.iLsfxCIvu", ".", "/etc/", "/fleetctl-source/"],
        [*HEAD, "-lDtpre.iLsfxCIvu", "/", "/fleetctl-source/"],
        [*HEAD, "-lDtpre.iLsfxCIvu", *TAIL, "/etc"],
        [*HEAD, *(["--from0"] * 100), *TAIL],
        HEAD,
        [],
    ],
)
def test_another_command_or_path_is_refused(words: list[str]) -> None:
    with pytest.raises(FleetError, match="something other"):
        sender_options([word.encode() for word in words])


@given(st.lists(st.binary(max_size=50), max_size=5))
def test_a_request_of_any_bytes_is_refused_or_harmless(middle: list[bytes]) -> None:
    head, tail = ([word.encode() for word in words] for words in (HEAD, TAIL))
    try:
        options = sender_options([*head, *middle, *tail])
    except FleetError:
        return
    assert not set(options) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-=., ")


@pytest.mark.parametrize(
    "name", ["plain", "a b", "it's", "$(id)", '"`id`"', "new\nline", "-e", "\udcff", "* \\"]
)
def test_the_path_reaches_rsync_as_it_is(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "rsync"
    fake.write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\0" "$word"; done\n')
    fake.chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", *sender_words(str(folder))],
        input=b"-le.i --from0\n",
        capture_output=True,
        check=True,
        env={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"},
    )
    words = ["--server", "--sender", "-le.i", "--from0", ".", f"{folder}/"]
    assert done.stdout.split(b"\0")[:-1] == [os.fsencode(word) for word in words]


@pytest.mark.parametrize("path", ["relative", "", "/a\0b"])
def test_a_path_that_is_none(path: str) -> None:
    with pytest.raises(FleetError, match="not an absolute path"):
        sender_words(path)
