"""Diffs on bytes: whatever the bytes are, what a diff was made from is what it gives."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.patches.hunks import DiffError, apply, make, parse, reverse

LINES = st.lists(
    st.sampled_from([b"a", b"b", b"", b"-- c", b"++ d", b"\\ e", b"@@ -1 +1 @@", b"\xe2\x80\xa6", b"\x85"])
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\n\x0c\n", b"\r"])


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    end = draw(ENDS)
    text = end.join(draw(LINES))
    return text + end if draw(st.booleans()) else text


@given(texts(), texts())
def test_a_diff_gives_back_both_sides(before: bytes, after: bytes) -> None:
    diff = make(before, after, "x/y.py")
    if before == after:
        assert diff == b""
        return
    hunks = parse(diff)
    assert apply(before, hunks) == after
    assert reverse(after, hunks) == before


@given(st.binary(max_size=300))
def test_bytes_that_are_no_diff_are_refused_not_a_crash(garbage: bytes) -> None:
    try:
        hunks = parse(garbage)
    except DiffError:
        return
    assert hunks


@given(texts(), texts(), texts())
def test_another_base_is_never_patched_in_silence(before: bytes, after: bytes, other: bytes) -> None:
    if before == after:
        return
    hunks = parse(make(before, after, "x"))
    try:
        result = apply(other, hunks)
    except DiffError:
        return
    assert reverse(result, hunks) == other


def test_the_patch_program_reads_our_diffs(tmp_path: Path) -> None:
    before, after = b"a\r\nb\nc", b"a\r\nB\nc\n"
    (tmp_path / "x").write_bytes(before)
    diff = make(before, after, "x")
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=diff, check=True)
    assert (tmp_path / "x").read_bytes() == after


@pytest.mark.parametrize(
    ("diff", "said"),
    [
        (b"", "a diff of 0 files"),
        (b"hello\n", "a diff of 0 files"),
        (
            b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n",
            "a diff of 2 files",
        ),
        (b"--- a/x\n+++ b/x\n@@ -1,3 +1 @@\n-a\n+b\n", "not a unified diff"),
        (b"Binary files a/x and b/x differ\n", "a diff of 0 files"),
    ],
)
def test_what_is_no_diff_of_one_file(diff: bytes, said: str) -> None:
    with pytest.raises(DiffError, match=said):
        parse(diff)


def test_no_offset_and_no_fuzz() -> None:
    hunks = parse(make(b"a\nb\nc\n", b"a\nB\nc\n", "x"))
    for base in (b"new\na\nb\nc\n", b"a\nb \nc\n", b"a\r\nb\r\nc\r\n", b""):
        with pytest.raises(DiffError, match="hunk 1 does not fit"):
            apply(base, hunks)
