"""GPU code: sections as nvcc 13.0 wrote them, with what ``cuobjdump --list-elf --list-ptx`` says of them."""

from __future__ import annotations

import io
import json
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fleetctl.abi.elf import read_library
from fleetctl.abi.errors import AbiError
from fleetctl.abi.fatbin import CONTAINER, HEADER, GpuCode, entries
from fleetctl.abi.source import opened
from tests.abi.compiler import NVCC, Workshop, without_section_headers

DATA = Path(__file__).parent / "data"
RECORDED: dict[str, dict[str, Any]] = json.loads((DATA / "sections.json").read_text())


def with_section(workshop: Workshop, name: str, section: str) -> Path:
    """A library whose GPU code is a recorded section."""
    code = (
        f'__asm__(".section {section},\\"a\\",@progbits; .balign 8; .incbin \\"{DATA / name}.bin\\"; .text");'
    )
    return workshop.library(f"{name}.so", code)


def container(*found: bytes) -> bytes:
    body = b"".join(found)
    return CONTAINER.pack(0xBA55ED50, 1, 16, len(body)) + body


def entry(kind: int = 2, arch: int = 90, flags: int = 0x11, payload: bytes = b"", header: int = 64) -> bytes:
    return HEADER.pack(kind, 0x101, header, len(payload), arch, flags) + bytes(header - 64) + payload


def read(section: bytes) -> list[GpuCode | None]:
    with opened(io.BytesIO(section)) as source:
        return [found.code for found in entries(source, 0, len(section))]


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_section_reads_as_cuobjdump_reads_it(name: str) -> None:
    """But for the family suffix of machine code, which cuobjdump leaves out."""
    found = read((DATA / f"{name}.bin").read_bytes())
    assert all(found)
    assert (
        sorted(str(code).rstrip("f") if code.kind == "sass" else str(code) for code in found if code)
        == (RECORDED[name]["cuobjdump"])
    )
    assert [code.compressed for code in found if code] == RECORDED[name]["compressed"]


def test_suffixes_are_told_apart() -> None:
    found = {str(code) for code in read((DATA / "size.bin").read_bytes())}
    assert {"sass:90", "sass:90a", "sass:103f", "sass:120", "sass:120a", "sass:121f"} <= found
    assert {"ptx:120", "ptx:120a", "ptx:121f"} <= found


@pytest.mark.parametrize("name", RECORDED)
def test_inside_of_a_library_with_and_without_section_headers(workshop: Workshop, name: str) -> None:
    library = with_section(workshop, name, RECORDED[name]["section"])
    expected = set(read((DATA / f"{name}.bin").read_bytes()))
    found = read_library(library).gpu
    assert set(found) == expected
    assert len(found) == len(expected)
    assert read_library(without_section_headers(library)).gpu == found


def test_each_kind_once_sorted_by_number(workshop: Workshop) -> None:
    library = with_section(workshop, "size", ".nv_fatbin")
    assert [str(code) for code in read_library(library).gpu] == [
        *("ptx:120", "ptx:120a", "ptx:121f"),
        *(
            "sass:75",
            "sass:80",
            "sass:90",
            "sass:90a",
            "sass:100a",
            "sass:103f",
            "sass:120",
            "sass:120a",
            "sass:121f",
        ),
    ]


def test_containers_follow_each_other_with_padding_or_other_bytes_between() -> None:
    one, two = container(entry(arch=80, payload=b"x" * 8)), container(entry(1, 90), entry(2, 100, 0x100011))
    for between in (b"", bytes(8), bytes(64), b"\x01" * 24):
        assert list(map(str, read(one + between + two))) == ["sass:80", "ptx:90", "sass:100a"]


def test_other_kinds_of_entries_are_stepped_over() -> None:
    assert read(container(entry(kind=16, payload=b"y" * 40), entry(arch=86))) == [
        None,
        GpuCode("sass", "86", False),
    ]


def test_headers_may_grow() -> None:
    assert list(map(str, read(container(entry(header=112, payload=b"z" * 9), entry(arch=75))))) == [
        "sass:90",
        "sass:75",
    ]


@pytest.mark.parametrize(
    "section",
    [
        container(entry(payload=b"x" * 64))[:-1],
        container(entry())[:-20],
        CONTAINER.pack(0xBA55ED50, 1, 16, 2**63),
        container(entry(header=64)[:32]),
        container(HEADER.pack(2, 0, 0, 0, 90, 0)),
        container(HEADER.pack(2, 0, 64, 2**64 - 1, 90, 0)),
        container(HEADER.pack(2, 0, 64, 2**64 - 64, 90, 0)),
        container(HEADER.pack(2, 0, 2**32 - 1, 0, 90, 0)),
    ],
)
def test_what_is_cut_or_hostile_is_an_error(section: bytes) -> None:
    with pytest.raises(AbiError):
        read(section)


def test_the_magic_in_other_data_is_no_container() -> None:
    magic = struct.pack("<I", 0xBA55ED50)
    assert read(magic * 40 + b"\x07" * 9 + container(entry(arch=89)) + magic) == [
        GpuCode("sass", "89", False)
    ]


@pytest.mark.skipif(NVCC is None, reason="no nvcc: the recorded sections stand for it")
def test_what_nvcc_writes_now(workshop: Workshop) -> None:
    source = workshop.folder / "k.cu"
    source.write_text("__global__ void k(float *x) { *x = 1; }\n")
    library = workshop.folder / "now.so"
    wanted = [
        ("80", "sm_80"),
        ("90a", "sm_90a"),
        ("120", "compute_120"),
        ("120a", "sm_120a"),
        ("121f", "compute_121f"),
    ]
    options = [part for arch, code in wanted for part in ("-gencode", f"arch=compute_{arch},code={code}")]
    command = [str(NVCC), "-shared", "-Xcompiler", "-fPIC", "-cudart", "none", "-Xfatbin", "-compress-all"]
    subprocess.run([*command, *options, str(source), "-o", str(library)], check=True)
    assert [str(code) for code in read_library(library).gpu] == [
        *("ptx:120", "ptx:121f", "sass:80", "sass:90a", "sass:120a"),
    ]
    assert all(code.compressed for code in read_library(library).gpu)
