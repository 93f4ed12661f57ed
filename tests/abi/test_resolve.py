"""What nobody gives is named; what the dynamic linker finds is not. The linker itself is the judge."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleetctl.abi.elf import read_library
from fleetctl.abi.errors import AbiError
from fleetctl.abi.loader import System, read_cache
from fleetctl.abi.resolve import Providers, unresolved
from tests.abi.compiler import Workshop

KERNEL = """
extern void cudaMalloc(void); extern void cudaGraphNew(void); extern void maybe(void) __attribute__((weak));
void run(void) { cudaMalloc(); cudaGraphNew(); if (maybe) maybe(); }
"""


class Site:
    """A site-packages folder with stand-ins for torch, nvidia's libraries and an extension."""

    def __init__(self, workshop: Workshop, name: str) -> None:
        self.workshop = workshop
        self.name = name
        self.folder = workshop.folder / name

    def cudart(self, major: int, *functions: str) -> Path:
        soname = f"libcudart.so.{major}"
        return self.workshop.stand_in(f"{self.name}/nvidia/cuda_runtime/lib/{soname}", soname, *functions)

    def kernel(self, *flags: str) -> Path:
        """An extension for CUDA 99, which no machine has installed, whatever the folder holds."""
        other = self.workshop.stand_in(
            "other/libcudart.so.99", "libcudart.so.99", "cudaMalloc", "cudaGraphNew"
        )
        return self.workshop.library(f"{self.name}/kernel/ops.abi3.so", KERNEL, str(other), *flags)

    def providers(self, **options: object) -> Providers:
        return Providers([str(self.folder)], **options)  # type: ignore[arg-type]


def loads(path: Path, *first: Path) -> str:
    """What ``dlopen`` says of a library, after others; empty where it loads."""
    code = (
        "import ctypes, sys\n"
        "try:\n    [ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL) for path in sys.argv[1:]]\n"
        "except OSError as error:\n    print(error)"
    )
    command = [sys.executable, "-c", code, *map(str, first), str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_an_extension_for_another_cuda_than_the_environments(workshop: Workshop) -> None:
    site = Site(workshop, "mixed")
    present = site.cudart(98, "cudaMalloc")
    found = unresolved(str(site.kernel()), site.providers())
    (missing,) = found.libraries
    assert (missing.soname, missing.cuda, missing.nearest) == ("libcudart.so.99", 99, str(present))
    assert not missing.driver
    assert str(missing) == "wants libcudart.so.99, there is libcudart.so.98"
    assert found.symbols == ("cudaGraphNew", "cudaMalloc")
    assert found.elsewhere == {"cudaMalloc": str(present)}
    assert "libcudart.so.99" in loads(site.kernel(), present)


def test_the_same_with_the_right_library(workshop: Workshop) -> None:
    site = Site(workshop, "right")
    wanted = site.cudart(99, "cudaMalloc", "cudaGraphNew")
    assert not unresolved(str(site.kernel()), site.providers())
    assert loads(site.kernel(), wanted) == ""


def test_a_library_that_is_there_but_lacks_a_symbol(workshop: Workshop) -> None:
    site = Site(workshop, "old")
    old = site.cudart(99, "cudaMalloc")
    found = unresolved(str(site.kernel()), site.providers())
    assert (found.libraries, found.symbols) == ((), ("cudaGraphNew",))
    assert "undefined symbol" in loads(site.kernel("-Wl,-z,now"), old)


@pytest.mark.parametrize("dtags", ["--enable-new-dtags", "--disable-new-dtags"])
@pytest.mark.parametrize(("origin", "fits"), [("$ORIGIN/../private", True), ("$ORIGIN/private", False)])
def test_origin_in_rpath_and_runpath(workshop: Workshop, dtags: str, origin: str, fits: bool) -> None:
    site = Site(workshop, f"origin{dtags}{fits}")
    workshop.stand_in(f"{site.name}/private/libcudart.so.99", "libcudart.so.99", "cudaMalloc", "cudaGraphNew")
    kernel = site.kernel(f"-Wl,{dtags}", f"-Wl,-rpath,{origin}")
    assert bool(unresolved(str(kernel), site.providers())) is not fits
    assert (loads(kernel) == "") is fits


@pytest.mark.parametrize(("dtags", "fits"), [("--disable-new-dtags", True), ("--enable-new-dtags", False)])
def test_rpath_counts_for_what_a_library_loads_and_runpath_does_not(
    workshop: Workshop, dtags: str, fits: bool
) -> None:
    name = f"chain{fits}"
    inner = workshop.stand_in(f"{name}/deep/libinner.so.1", "libinner.so.1", "inner")
    middle = workshop.library(
        f"{name}/deep/libmiddle.so.1",
        "extern void inner(void); void middle(void) { inner(); }",
        str(inner),
        "-Wl,-soname,libmiddle.so.1",
    )
    outer = workshop.library(
        f"{name}/outer.so",
        "extern void middle(void); void outer(void) { middle(); }",
        *(str(middle), f"-Wl,{dtags}", "-Wl,-rpath,$ORIGIN/deep", f"-Wl,-rpath-link,{middle.parent}"),
    )
    found = unresolved(str(outer), Providers())
    assert (loads(outer) == "") is fits
    assert bool(found) is not fits
    if not fits:
        assert [(missing.soname, missing.wanted_by) for missing in found.libraries] == [
            ("libinner.so.1", str(middle))
        ]


def test_torch_is_loaded_first_so_its_libraries_count(workshop: Workshop) -> None:
    site = Site(workshop, "torch")
    python = workshop.stand_in("torch/torch/lib/libtorch_python.so", "libtorch_python.so", "THPVariable_Wrap")
    extension = workshop.library(
        "torch/ext/_C.so", "extern void THPVariable_Wrap(void); void f(void) { THPVariable_Wrap(); }"
    )
    assert not unresolved(str(extension), site.providers())
    assert unresolved(str(extension), site.providers(preloaded=[])).symbols == ("THPVariable_Wrap",)
    assert loads(extension, python) == ""


def test_python_gives_its_symbols(workshop: Workshop) -> None:
    code = "extern void PyList_New(void); extern void Py_Nonsense(void); void f(void) { PyList_New(); Py_Nonsense(); }"
    extension = str(workshop.library("py.so", code))
    assert not unresolved(extension, Providers())
    assert unresolved(extension, Providers(interpreter=sys.executable)).symbols == ("Py_Nonsense",)


def test_versions_that_the_system_does_not_reach(workshop: Workshop) -> None:
    def giver(folder: str, script: str) -> Path:
        return workshop.library(
            f"{folder}/libc.so.6",
            "void one(void) {}",
            "-nostdlib",
            "-Wl,-soname,libc.so.6",
            workshop.versions(script),
        )

    new = giver("new", "GLIBC_2.99 { global: one; };")
    old = giver("old", "GLIBC_2.31 { global: one; };")
    user = workshop.library(
        "user.so", "extern void one(void); void f(void) { one(); }", "-nostdlib", str(new)
    )
    (missing,) = unresolved(str(user), Providers(library_path=[str(old.parent)])).versions
    assert missing == ("GLIBC", "2.99", "2.31", str(old))
    assert not unresolved(str(user), Providers(library_path=[str(new.parent)]))


def test_a_library_of_another_machine_is_passed_over(workshop: Workshop, tmp_path: Path) -> None:
    site = Site(workshop, "machines")
    right = site.cudart(99, "cudaMalloc", "cudaGraphNew")
    wrong = bytearray(right.read_bytes())
    wrong[18:20] = (183 if os.uname().machine != "aarch64" else 62).to_bytes(2, "little")
    (tmp_path / right.name).write_bytes(wrong)
    (tmp_path / "libother.so.1").write_bytes(b"\x7fELF")
    assert not unresolved(str(site.kernel()), site.providers(library_path=[str(tmp_path)]))


def test_the_drivers_library_is_marked(workshop: Workshop) -> None:
    driver = workshop.stand_in("driver/libnvidia-ml.so.1", "libnvidia-ml.so.1", "nvmlInit")
    user = workshop.library(
        "nvml.so", "extern void nvmlInit(void); void f(void) { nvmlInit(); }", str(driver)
    )
    (missing,) = unresolved(str(user), Providers(system=System("/none"))).libraries[:1]
    assert (missing.soname, missing.driver) == ("libnvidia-ml.so.1", True)


def test_libraries_that_need_each_other(workshop: Workshop) -> None:
    workshop.stand_in("ring/liba.so", "liba.so", "a")
    ring = workshop.stand_in(
        "ring/libb.so", "libb.so", "b", flags=("-Wl,--no-as-needed", f"{workshop.folder}/ring/liba.so")
    )
    a = workshop.stand_in(
        "ring/liba.so", "liba.so", "a", flags=("-Wl,--no-as-needed", str(ring), "-Wl,-rpath,$ORIGIN")
    )
    assert not unresolved(str(a), Providers(library_path=[str(a.parent)]))


def test_this_environment_needs_nothing() -> None:
    """Every extension that is installed here; a few hundred, torch's among them."""
    import torch

    site = Path(torch.__file__).parents[1]
    providers = Providers([str(site)], interpreter=sys.executable)
    extensions = [path for path in site.rglob("*.so") if path.is_file()]
    assert len(extensions) > 50
    assert {str(path): found for path in extensions if (found := unresolved(str(path), providers))} == {}


def test_the_linkers_cache_says_what_ldconfig_says() -> None:
    listing = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in listing.splitlines() if " => " in line]
    cache = read_cache("/etc/ld.so.cache")
    assert {words[0] for words in lines} == set(cache)
    assert {words[-1] for words in lines} == {path for paths in cache.values() for path in paths}


@pytest.mark.parametrize("content", [b"", b"glibc-ld.so.cache1.1", b"glibc-ld.so.cache1.1" + b"\xff" * 90])
def test_a_damaged_cache_is_an_empty_one(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cache").write_bytes(content)
    assert set(read_cache(str(tmp_path / "cache"))) <= {""}


def test_an_extension_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "broken.so").write_bytes(b"\x7fELF")
    with pytest.raises(AbiError):
        unresolved(str(tmp_path / "broken.so"), Providers())
    assert Providers().read(str(tmp_path / "broken.so")) is None


def test_a_library_without_path_can_be_judged_too(workshop: Workshop) -> None:
    site = Site(workshop, "memory")
    assert unresolved(read_library(site.kernel()), site.providers()).libraries[0].soname == "libcudart.so.99"
