"""Whatever the bytes: an answer or an AbiError, in bounded time and memory."""

from __future__ import annotations

import io
import json
import os
import struct
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fleetctl.abi.cxx import cxx11
from fleetctl.abi.elf import Library, read_library
from fleetctl.abi.errors import AbiError
from fleetctl.abi.fatbin import CONTAINER, HEADER, entries
from fleetctl.abi.source import opened
from fleetctl.abi.wheel import wheel_libraries
from tests.abi.compiler import Workshop, without_section_headers

DATA = Path(__file__).parent / "data"
SECONDS = 2.0
MEGABYTES = 64
EXAMPLES = int(os.environ.get("FLEETCTL_FUZZ", "100"))
fuzz = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def seeds(workshop: Workshop) -> list[bytes]:
    """Libraries with versions, needs, weak and hidden symbols and GPU code; the second has no section headers."""
    script = workshop.versions("DEMO_1 { global: f; }; DEMO_2 { global: g; } DEMO_1;")
    gpu = (
        f'__asm__(".section .nv_fatbin,\\"a\\",@progbits; .balign 8; .incbin \\"{DATA}/none.bin\\"; .text");'
    )
    code = """
    #include <stdio.h>
    #include <math.h>
    extern void w(void) __attribute__((weak));
    void f(void) { puts(""); }
    double g(double x) { w(); return pow(x, x); }
    """
    built = workshop.library(
        "seed.so", gpu + code, script, "-lm", "-Wl,-soname,seed.so", "-Wl,-rpath,$ORIGIN"
    )
    return [built.read_bytes(), without_section_headers(built).read_bytes()]


changes = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.sampled_from(
            [b"\0", b"\xff", b"\xff" * 4, b"\xff" * 8, b"\0" * 8, b"\x7f" + b"\xff" * 7, b"\0\0\0\x80"]
        )
        | st.binary(min_size=1, max_size=8),
    ),
    min_size=1,
    max_size=6,
)


def mutated(data: bytes, edits: list[tuple[float, bytes]], begin: int, end: int, keep: float) -> bytes:
    """``data`` with bytes replaced between two offsets, cut to a share."""
    found = bytearray(data)
    for place, new in edits:
        at = begin + int(place * (end - begin))
        found[at : at + len(new)] = new
    return bytes(found[: int(len(data) * keep)])


def bounded(read: Callable[[], object]) -> Any:
    """The answer or None for an AbiError; neither may take long or much."""
    tracemalloc.start()
    begin = time.process_time()
    try:
        return read()
    except AbiError as error:
        assert error.what
        return None
    finally:
        assert time.process_time() - begin < SECONDS
        assert tracemalloc.get_traced_memory()[1] < MEGABYTES << 20
        tracemalloc.stop()


def answer(data: bytes) -> Library | None:
    found = bounded(lambda: read_library(io.BytesIO(data)))
    assert found is None or isinstance(found, Library)
    if found is not None:
        json.dumps(
            [
                found.soname,
                *found.needed,
                *sorted(found.undefined),
                *map(str, found.gpu),
                dict(found.requires),
            ]
        )
        cxx11(found)
    return found


@fuzz
@given(st.integers(0, 1), changes, st.just(1.0) | st.floats(0, 1))
def test_a_changed_or_cut_library(
    seeds: list[bytes], which: int, edits: list[tuple[float, bytes]], keep: float
) -> None:
    data = seeds[which]
    answer(mutated(data, edits, 0, len(data), keep))


@fuzz
@given(st.integers(0, 1), changes)
def test_changed_headers(seeds: list[bytes], which: int, edits: list[tuple[float, bytes]]) -> None:
    answer(mutated(seeds[which], edits, 16, 64 + 56 * 12, 1.0))


@fuzz
@given(changes)
def test_changed_section_headers(seeds: list[bytes], edits: list[tuple[float, bytes]]) -> None:
    data = seeds[0]
    answer(mutated(data, edits, int.from_bytes(data[0x28:0x30], "little"), len(data), 1.0))


@fuzz
@given(st.integers(0, 1), changes)
def test_a_changed_dynamic_segment(seeds: list[bytes], which: int, edits: list[tuple[float, bytes]]) -> None:
    data = seeds[which]
    begin = data.index((1).to_bytes(8, "little"), 0x1000)
    answer(mutated(data, edits, begin, begin + 0x200, 1.0))


@fuzz
@given(st.integers(0, 1), changes)
def test_changed_symbols_names_and_versions(
    seeds: list[bytes], which: int, edits: list[tuple[float, bytes]]
) -> None:
    answer(mutated(seeds[which], edits, 0x200, 0x800, 1.0))


@given(st.binary(max_size=400))
@example(b"\x7fELF\x02\x01\x01" + bytes(57))
@example(b"\x7fELF\x02\x01\x01" + b"\xff" * 57)
def test_any_bytes(data: bytes) -> None:
    answer(data)
    answer(b"\x7fELF\x02\x01\x01" + data)


@fuzz
@given(st.sampled_from(["none", "size", "speed", "rdc"]), changes, st.just(1.0) | st.floats(0, 1))
def test_changed_gpu_code(name: str, edits: list[tuple[float, bytes]], keep: float) -> None:
    section = (DATA / f"{name}.bin").read_bytes()
    data = mutated(section, edits, 0, 200, keep)

    def read() -> int:
        with opened(io.BytesIO(data)) as source:
            return sum(1 for _ in entries(source, 0, len(data)))

    assert (bounded(read) or 0) <= len(data) // HEADER.size


@pytest.mark.parametrize(("megabytes", "claim"), [(256, None), (1024, (1 << 30) - 0x10000)])
def test_a_huge_sparse_library(seeds: list[bytes], tmp_path: Path, megabytes: int, claim: int | None) -> None:
    """Without sections all of it is searched for GPU code; a table of names as large as it claims is not read."""
    data = bytearray(seeds[1])
    segments = [struct.unpack_from("<II6Q", data, at) for at in range(64, 64 + 56 * data[0x38], 56)]
    begin = next(offset for kind, _, offset, *_ in segments if kind == 2)
    size = next(at + 8 for at in range(begin, len(data), 16) if data[at : at + 8] == struct.pack("<Q", 10))
    if claim is not None:
        data[size : size + 8] = struct.pack("<Q", claim)
    huge = tmp_path / "huge.so"
    huge.write_bytes(data)
    with huge.open("r+b") as file:
        file.truncate(megabytes << 20)
    found = bounded(lambda: read_library(huge))
    assert (found is None) == (claim is not None)


def test_many_small_entries_end() -> None:
    body = HEADER.pack(2, 0, 64, 0, 90, 0) * 50_000
    data = CONTAINER.pack(0xBA55ED50, 1, 16, len(body)) + body

    def read() -> int:
        with opened(io.BytesIO(data)) as source:
            return sum(1 for _ in entries(source, 0, len(data)))

    assert bounded(read) == 50_000


@fuzz
@given(st.integers(0, 1), changes, st.booleans())
def test_a_library_in_a_wheel_reads_as_by_itself(
    seeds: list[bytes], which: int, edits: list[tuple[float, bytes]], change: bool
) -> None:
    """Also where what is left out of the stream was no GPU code at all."""
    data = seeds[which]
    at = data.index(bytes.fromhex("50ed55ba"))
    data = mutated(data, edits, at, at + 200, 1.0) if change else data
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pkg/seed.so", data)
    alone = answer(data)
    inside = bounded(lambda: list(wheel_libraries(wheel)))
    if alone is None:
        assert inside is None
    else:
        assert isinstance(inside, list)
        assert inside == [alone._replace(path="pkg/seed.so")]


@fuzz
@given(st.integers(0, 1), changes, st.floats(0, 1))
def test_a_damaged_wheel(
    seeds: list[bytes], which: int, edits: list[tuple[float, bytes]], keep: float
) -> None:
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/seed.so", seeds[which])
        archive.writestr("b/other.so.1", seeds[1 - which])
    data = wheel.getvalue()
    bounded(lambda: list(wheel_libraries(io.BytesIO(mutated(data, edits, 0, len(data), max(keep, 0.5))))))
