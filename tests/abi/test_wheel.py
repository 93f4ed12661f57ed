"""Libraries in a wheel, without unpacking it."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fleetctl.abi import stream
from fleetctl.abi.elf import read_library
from fleetctl.abi.errors import AbiError
from fleetctl.abi.fatbin import CONTAINER, HEADER
from fleetctl.abi.wheel import wheel_libraries
from tests.abi.compiler import Workshop


def wheel(folder: Path, members: dict[str, bytes], name: str = "pkg-1-py3-none-any.whl") -> Path:
    path = folder / name
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    return path


def fat_library(workshop: Workshop, megabytes: int) -> Path:
    """A library with GPU code of that size in it, of which no byte matters, and a dynamic segment behind it."""
    payload = bytes(megabytes << 20)
    entry = HEADER.pack(2, 0x101, 64, len(payload), 120, 0x100011) + payload
    section = workshop.folder / "fat.bin"
    section.write_bytes(CONTAINER.pack(0xBA55ED50, 1, 16, len(entry)) + entry)
    code = f'__asm__(".section .nv_fatbin,\\"a\\",@progbits; .balign 8; .incbin \\"{section}\\"; .text");'
    return workshop.library("fat.so", code + "void f(void) {}", "-Wl,-soname,fat.so.1")


def test_each_library_by_its_members_name(workshop: Workshop, tmp_path: Path) -> None:
    one = workshop.stand_in("libone.so.1", "libone.so.1", "one").read_bytes()
    two = workshop.stand_in("two.abi3.so", "two.so", "two").read_bytes()
    path = wheel(
        tmp_path,
        {
            "p/two.abi3.so": two,
            "p.libs/libone-12345678.so.1": one,
            "p/x.py": b"",
            "p/script.so": b"INPUT(-lm)",
            "p/y.so.json": one,
        },
    )
    found = list(wheel_libraries(path))
    assert [(library.path, library.soname) for library in found] == [
        ("p/two.abi3.so", "two.so"),
        ("p.libs/libone-12345678.so.1", "libone.so.1"),
    ]
    assert "two" in found[0].exported
    assert [library.soname for library in wheel_libraries(io.BytesIO(path.read_bytes()))] == [
        "two.so",
        "libone.so.1",
    ]


def test_gpu_code_is_read_and_not_kept(workshop: Workshop, tmp_path: Path) -> None:
    library = fat_library(workshop, 150)
    path = wheel(tmp_path, {"fat.so": library.read_bytes()})
    code = (
        "import re, sys; from fleetctl.abi.wheel import wheel_libraries\n"
        "found = list(wheel_libraries(sys.argv[1])); status = open('/proc/self/status').read()\n"
        "print(found[0].soname, *map(str, found[0].gpu), re.search(r'VmHWM:\\s+(\\d+)', status)[1])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    ).stdout
    soname, gpu, peak = out.split()
    assert (soname, gpu) == ("fat.so.1", "sass:120a")
    assert int(peak) < 100 << 10
    library.unlink()


def test_large_libraries_without_gpu_code_go_to_the_disk(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "IN_MEMORY", 4096)
    library = workshop.library("big.so", "char big[5000000] = {1}; void f(void) {}", "-Wl,-soname,big.so.1")
    (found,) = wheel_libraries(wheel(tmp_path, {"big.so": library.read_bytes()}))
    assert found.exported == read_library(library).exported


def test_what_only_looks_like_gpu_code_is_read_whole(workshop: Workshop, tmp_path: Path) -> None:
    """A container's head in a library's data whose first entry is none: the names behind it must not be lost."""
    fake = workshop.folder / "fake.bin"
    head = CONTAINER.pack(0xBA55ED50, 1, 16, 600) + HEADER.pack(2, 0x101, 64, 200, 90, 0)
    fake.write_bytes(head + bytes(200) + b"\xff" * 400)
    code = f'__asm__(".data; .balign 8; .incbin \\"{fake}\\"; .text"); void f(void) {{}}'
    library = workshop.library("fake.so", code, "-Wl,-soname,fake.so.1")
    (found,) = wheel_libraries(wheel(tmp_path, {"fake.so": library.read_bytes()}))
    assert (found.soname, found.exported, found.gpu) == ("fake.so.1", read_library(library).exported, ())


@pytest.mark.parametrize("damage", ["cut", "bytes", "empty", "text"])
def test_a_damaged_wheel_is_an_error_that_names_it(workshop: Workshop, tmp_path: Path, damage: str) -> None:
    path = wheel(tmp_path, {"one.so": workshop.stand_in("libone.so.1", "libone.so.1", "one").read_bytes()})
    data = path.read_bytes()
    path.write_bytes(
        {"cut": data[:-30], "bytes": data[:300] + b"\xff" * 40 + data[340:], "empty": b"", "text": b"no zip"}[
            damage
        ]
    )
    with pytest.raises(AbiError) as caught:
        list(wheel_libraries(path))
    assert caught.value.where == str(path)


def test_a_library_that_is_cut_inside_of_the_wheel_is_named(workshop: Workshop, tmp_path: Path) -> None:
    cut = workshop.stand_in("libone.so.1", "libone.so.1", "one").read_bytes()[:3000]
    with pytest.raises(AbiError) as caught:
        list(wheel_libraries(wheel(tmp_path, {"p/one.so": cut})))
    assert caught.value.where == "p/one.so"


def test_a_wheel_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AbiError, match="No such file"):
        list(wheel_libraries(tmp_path / "none.whl"))
