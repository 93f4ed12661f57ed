"""Libraries are read as the dynamic linker sees them, with section headers or without."""

from __future__ import annotations

import importlib.util
import io
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from fleetctl.abi.elf import Library, is_elf, read_library
from fleetctl.abi.errors import AbiError
from tests.abi.compiler import Workshop, without_section_headers

CODE = """
extern void wanted(void); extern void maybe(void) __attribute__((weak));
static void secret(void) {}
__attribute__((visibility("hidden"))) void hidden(void) { secret(); }
void given(void) { wanted(); hidden(); if (maybe) maybe(); }
int value = 1; __thread int mine = 2;
"""


@pytest.fixture(scope="module")
def library(workshop: Workshop) -> Path:
    workshop.stand_in("libwanted.so", "libwanted.so.3", "wanted")
    return workshop.library(
        "ext.so",
        CODE,
        f"-L{workshop.folder}",
        "-lwanted",
        "-Wl,-soname,ext.so.1",
        "-Wl,-rpath,$ORIGIN/../lib:/opt",
    )


def check(read: Library) -> None:
    assert read.soname == "ext.so.1"
    assert read.needed[:1] == ("libwanted.so.3",)
    assert read.rpath + read.runpath == ("$ORIGIN/../lib", "/opt")
    assert read.machine == os.uname().machine
    assert "wanted" in read.undefined
    assert "maybe" in read.weak
    assert {"given", "value", "mine"} <= read.exported
    assert not {"hidden", "secret", "wanted", "maybe"} & read.exported
    assert read.gpu == ()


def test_a_library_says_what_it_is_called_wants_and_gives(library: Path) -> None:
    read = read_library(library)
    check(read)
    assert read.path == str(library)


@pytest.mark.parametrize("style", ["gnu", "sysv", "both"])
def test_the_dynamic_segment_is_enough(workshop: Workshop, style: str) -> None:
    built = workshop.library(
        f"{style}.so",
        CODE,
        f"-L{workshop.folder}",
        "-lwanted",
        "-Wl,-soname,ext.so.1",
        "-Wl,-rpath,$ORIGIN/../lib:/opt",
        f"-Wl,--hash-style={style}",
    )
    check(read_library(without_section_headers(built)))
    assert read_library(without_section_headers(built)).exported == read_library(built).exported


def test_what_only_wants_has_an_empty_hash_table_and_is_read_too(workshop: Workshop) -> None:
    built = workshop.library(
        "only.so",
        "extern void wanted(void); __attribute__((constructor)) static void run(void) { wanted(); }",
        "-Wl,--hash-style=gnu",
        workshop.versions("{ local: *; };"),
    )
    assert "wanted" in read_library(without_section_headers(built)).undefined


def test_rpath_and_runpath_are_told_apart(workshop: Workshop) -> None:
    for flag, attribute in (("--disable-new-dtags", "rpath"), ("--enable-new-dtags", "runpath")):
        read = read_library(workshop.library("path.so", "", f"-Wl,{flag}", "-Wl,-rpath,$ORIGIN"))
        assert getattr(read, attribute) == ("$ORIGIN",)
        assert len(read.rpath) + len(read.runpath) == 1


def test_versions_that_are_wanted_and_given(workshop: Workshop) -> None:
    flag = workshop.versions(
        "DEMO_1.2 { global: one; }; DEMO_1.10 { global: two; } DEMO_1.2; DEMO_PRIVATE { };"
    )
    giver = workshop.library(
        "libdemo.so", "void one(void) {} void two(void) {}", "-Wl,-soname,libdemo.so.1", flag
    )
    code = "extern void one(void); extern void two(void); void f(void) { one(); two(); }"
    user = workshop.library("user.so", code, str(giver))
    assert read_library(giver).provides == {"DEMO": "1.10"}
    assert read_library(user).requires["DEMO"] == "1.10"
    assert {"one", "two"} <= read_library(giver).exported
    assert {"one", "two"} <= read_library(user).undefined


def test_the_python_that_runs_this() -> None:
    glibc = os.confstr("CS_GNU_LIBC_VERSION")
    assert glibc is not None
    maps = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()]
    libc = read_library(next(path for path in maps if path.endswith("libc.so.6")), gpu=False)
    assert libc.provides["GLIBC"] == glibc.split()[1]
    assert {"memcpy", "malloc", "dlopen"} <= libc.exported
    assert read_library(Path(sys.executable).resolve()).machine == os.uname().machine


def test_symbols_agree_with_binutils() -> None:
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.submodule_search_locations
    torch = Path(spec.submodule_search_locations[0])
    for name in ("libc10.so", "libtorch_cpu.so", "libtorch_python.so"):
        path = torch / "lib" / name
        listing = subprocess.run(
            ["nm", "-D", "--without-symbol-versions", str(path)], capture_output=True, text=True, check=True
        ).stdout
        kinds: dict[str, set[str]] = {}
        for line in listing.splitlines():
            *_, kind, symbol = line.split()
            kinds.setdefault(kind, set()).add(symbol)
        read = read_library(path, gpu=False)
        assert read.undefined == kinds["U"]
        assert read.weak == kinds.get("w", set()) | kinds.get("v", set())
        assert read.exported == set().union(*(kinds.get(kind, set()) for kind in "TDBRVWuiA"))


def test_symbols_and_gpu_code_can_be_left_out(library: Path) -> None:
    read = read_library(library, symbols=False, gpu=False)
    assert read.soname == "ext.so.1"
    assert not read.undefined | read.weak | read.exported


def test_an_open_file_does_as_well(library: Path) -> None:
    check(read_library(io.BytesIO(library.read_bytes())))
    with library.open("rb") as file:
        check(read_library(file))


def test_32_bits(workshop: Workshop) -> None:
    read = read_library(small_elf("<", 1, 3))
    assert (read.machine, read.soname, read.needed) == ("i686", "me.so.1", ("libx.so.2",))
    assert read.undefined == {"want"}
    assert read.exported == {"give"}


@pytest.mark.parametrize(
    ("order", "width", "machine", "name"),
    [
        (">", 2, 22, "s390x"),
        (">", 2, 21, "ppc64"),
        (">", 1, 8, "mips"),
        ("<", 2, 21, "ppc64le"),
        ("<", 2, 183, "aarch64"),
        ("<", 2, 243, "riscv"),
        ("<", 2, 0x7777, "machine-30583"),
    ],
)
def test_other_machines_and_the_other_byte_order(order: str, width: int, machine: int, name: str) -> None:
    read = read_library(small_elf(order, width, machine))
    assert (read.machine, read.soname, read.needed) == (name, "me.so.1", ("libx.so.2",))
    assert read.undefined == {"want"}
    assert read.exported == {"give"}


def small_elf(order: str, width: int, machine: int) -> io.BytesIO:
    """A library without sections: one load segment over all, a dynamic segment, three symbols."""
    wide = width == 2
    names = b"\0me.so.1\0libx.so.2\0want\0give\0"
    word = "Q" if wide else "I"
    header, segment = (64, 56) if wide else (52, 32)
    symbols_at = header + 2 * segment

    def symbol(name: int, section: int) -> bytes:
        if wide:
            return struct.pack(order + "IBBHQQ", name, 0x12, 0, section, 0, 0)
        return struct.pack(order + "IIIBBH", name, 0, 0, 0x12, 0, section)

    symbols = symbol(0, 0) + symbol(names.index(b"want"), 0) + symbol(names.index(b"give"), 7)
    names_at = symbols_at + len(symbols)
    dynamic_at = names_at + len(names)
    tags = [(1, names.index(b"libx")), (14, 1), (5, names_at), (10, len(names)), (6, symbols_at), (0, 0)]
    dynamic = b"".join(struct.pack(order + 2 * word, *tag) for tag in tags)
    size = dynamic_at + len(dynamic)
    ident = b"\x7fELF" + bytes([width, 1 if order == "<" else 2, 1]) + bytes(9)
    rest = struct.pack(
        order + "HHI" + 3 * word + "IHHHHHH", 3, machine, 1, 0, header, 0, 0, header, segment, 2, 64, 0, 0
    )

    def phdr(kind: int, at: int, length: int) -> bytes:
        fields = (
            (kind, 4, at, at, at, length, length, 8) if wide else (kind, at, at, at, length, length, 4, 8)
        )
        return struct.pack(order + ("II6Q" if wide else "8I"), *fields)

    return io.BytesIO(
        ident + rest + phdr(1, 0, size) + phdr(2, dynamic_at, len(dynamic)) + symbols + names + dynamic
    )


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999])
def test_a_cut_library_is_an_error_that_names_it(library: Path, tmp_path: Path, share: float) -> None:
    cut = tmp_path / "cut.so"
    data = library.read_bytes()
    cut.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(AbiError) as caught:
        read_library(cut)
    assert caught.value.where == str(cut)
    assert caught.value.what


def test_what_is_no_library_is_an_error(tmp_path: Path) -> None:
    for content in (b"", b"\x7fEL", b"INPUT(-lfoo)\n" * 9, b"\x7fELF" + bytes(60)):
        path = tmp_path / "not.so"
        path.write_bytes(content)
        with pytest.raises(AbiError, match="not an ELF file"):
            read_library(path)
    with pytest.raises(AbiError, match="No such file"):
        read_library(tmp_path / "none")
    with pytest.raises(AbiError, match="not a regular file"):
        read_library(tmp_path)


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(AbiError, match="not a regular file"):
        read_library(tmp_path / "fifo")
    assert not is_elf(tmp_path / "fifo")


def test_what_begins_as_elf(library: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("#!/bin/sh\n")
    assert is_elf(library)
    assert not is_elf(tmp_path / "text")
    assert not is_elf(tmp_path / "none")
