"""The reader of RECORD: what it takes, and that nothing makes it fail."""

from __future__ import annotations

import base64
import csv
import io
import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.agent.capture.wheel_record import Entry, parse_record, read_record, record_sha256

EMPTY = "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
EMPTY_HEX = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
INFO = "x-1.0.dist-info"

names = st.text(st.characters(codec="utf-8", exclude_characters="\0\ufffd"), min_size=1, max_size=30)
paths = names.filter(lambda name: not name.endswith(".pyc") and "\r" not in name and "\n" not in name)
digests = st.binary(min_size=32, max_size=32)
files = st.dictionaries(paths, st.tuples(digests, st.integers(0, 1 << 40)), min_size=1, max_size=20)


def written(files: dict[str, tuple[bytes, int]]) -> bytes:
    """A RECORD as pip writes it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for path, (digest, size) in files.items():
        writer.writerow([path, "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("="), size])
    writer.writerow([f"{INFO}/RECORD", "", ""])
    return out.getvalue().encode()


@given(st.binary(max_size=2000))
def test_any_bytes_give_a_state(data: bytes) -> None:
    record = parse_record(data)
    assert record.state in ("ok", "malformed")
    assert (record.state == "ok") == (record.why == "")
    assert len(record_sha256(record, INFO)) == 64


LINES = st.sampled_from(
    [
        "a.py",
        "b.py,sha256=x,1",
        f"c.py,sha256={EMPTY},0",
        '"d',
        "\0",
        "/etc/passwd,,",
        "../../e,,",
        "x" * 200_000,
    ]
)


@given(st.lists(LINES, max_size=8), st.sampled_from(["\n", "\r\n", "\r"]))
def test_lines_of_every_kind_give_a_state(lines: list[str], ending: str) -> None:
    assert parse_record(ending.join(lines).encode()).state in ("ok", "malformed")


@given(files)
def test_what_pip_writes_is_read_back(files: dict[str, tuple[bytes, int]]) -> None:
    record = parse_record(written(files))
    assert (record.state, record.why) == ("ok", "")
    found = {entry.path: (bytes.fromhex(entry.digest), entry.size) for entry in record.entries}
    found.pop(f"{INFO}/RECORD", None)
    assert found == files


@given(files, st.randoms())
def test_the_digest_knows_no_order_no_installer_and_no_byte_code(
    files: dict[str, tuple[bytes, int]], chance: random.Random
) -> None:
    plain = record_sha256(parse_record(written(files)), INFO)
    shuffled = list(files.items())
    chance.shuffle(shuffled)
    more = {
        f"{INFO}/INSTALLER": (b"i" * 32, 4),
        f"{INFO}/direct_url.json": (b"u" * 32, 99),
        "m.pyc": (b"c" * 32, 9),
    }
    assert record_sha256(parse_record(written({**dict(shuffled), **more})), INFO) == plain


@given(files)
def test_the_digest_knows_each_file(files: dict[str, tuple[bytes, int]]) -> None:
    plain = record_sha256(parse_record(written(files)), INFO)
    path, (digest, size) = next(iter(files.items()))
    other = bytes([digest[0] ^ 1]) + digest[1:]
    changed = record_sha256(parse_record(written({**files, path: (other, size)})), INFO)
    assert (changed != plain) == (not path.startswith(("/", "../")) and not _is_outside(path))


def _is_outside(path: str) -> bool:
    return os.path.normpath(path).startswith(("/", "../"))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("a.py", "line 1: 1 fields"),
        ("a.py,sha256=c2hvcnQ,1", "not a sha256"),
        ("a.py,sha256=!!!!,1", "not base64"),
        ("a.py,md5=abcd,1", "none of sha256"),
        (f"a.py,sha256={EMPTY},many", "no number"),
        (f",sha256={EMPTY},1", "no path"),
        ("a\0.py,,", "no path"),
        ('"never closed,,', "1 fields"),
        ("y" * 200_000 + ",,", "1 fields|field"),
    ],
)
def test_a_bad_line_is_named_and_the_others_count(line: str, why: str) -> None:
    import re

    good = f"good.py,sha256={EMPTY},0\n"
    record = parse_record((line + "\n" if "never" not in line else good + line).encode() + good.encode())
    assert record.state == "malformed"
    assert re.search(why, record.why), record.why
    assert Entry("good.py", "sha256", EMPTY_HEX, 0) in record.entries


def test_a_path_that_is_not_utf8_is_malformed() -> None:
    assert parse_record(b"caf\xe9.py,,\n").state == "malformed"


def test_padding_and_quoted_paths_are_read() -> None:
    record = parse_record(f'"a,b.py",sha256={EMPTY}=,0\n"line\nbreak.py",,\n'.encode())
    assert [(entry.path, entry.digest) for entry in record.entries] == [
        ("a,b.py", EMPTY_HEX),
        ("line\nbreak.py", ""),
    ]
    assert record.state == "ok"


def test_what_is_no_file_is_missing_and_never_waited_for(tmp_path: Path) -> None:
    assert read_record(tmp_path / "RECORD").state == "missing"
    os.mkfifo(tmp_path / "fifo")
    assert read_record(tmp_path / "fifo").state == "missing"
    assert read_record(tmp_path).state == "missing"
    (tmp_path / "empty").touch()
    assert read_record(tmp_path / "empty").state == "malformed"
