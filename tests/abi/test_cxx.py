"""The C++ ABI is told from names that compilers wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.abi.cxx import cxx11, evidence
from fleetctl.abi.elf import Library, read_library
from tests.abi.compiler import Workshop

CODE = """
#include <string>
#include <map>
#include <vector>
std::string wanted(const std::string &, std::map<std::string, int>);
struct Thing { Thing(std::string, std::vector<std::string>); virtual ~Thing(); };
%s given(int x) { %s }
"""
WANTS = CODE % ("void", 'Thing t(wanted("a", {}), {});')
GIVES = "#include <string>\nnamespace deep { void given(const std::string &, int) {} }"
NEITHER = (
    "void given(int) {} int SsSs(const char *) { return 1; } struct Sst { void Ss(); }; void Sst::Ss() {}"
)


@pytest.mark.parametrize(("flag", "expected"), [(0, False), (1, True)])
@pytest.mark.parametrize("code", [WANTS, GIVES], ids=["wants", "gives"])
def test_a_compiled_library(workshop: Workshop, code: str, flag: int, expected: bool) -> None:
    flags = (f"-D_GLIBCXX_USE_CXX11_ABI={flag}", "-fvisibility-inlines-hidden")
    library = read_library(workshop.library("abi.so", code, *flags, cxx=True))
    assert cxx11(library) is expected
    found = evidence(library)
    names = found.new_names if expected else found.old_names
    assert names
    assert set(names) <= library.undefined | library.exported


def test_names_without_strings_do_not_tell(workshop: Workshop) -> None:
    library = read_library(workshop.library("neither.so", NEITHER, cxx=True))
    assert any("Ss" in name for name in library.exported)
    assert cxx11(library) is None
    assert cxx11(read_library(workshop.library("c.so", "void Ss(void) {}"))) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("_ZN5torch3jit17parseSchemaOrNameERKSs", False),
        ("_ZN5torch3jit17parseSchemaOrNameERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", True),
        ("_ZNK3c104Type3strB5cxx11Ev", True),
        ("_ZN3FooILi4EE3SsxEv", None),
        ("_ZN3FooILi12EE3barERKSs", False),
        ("_Z1fSt6vectorISsSaISsEE", False),
        ("_ZN6SsSsSs3runEv", None),
    ],
)
def test_single_names(name: str, expected: bool | None) -> None:
    assert cxx11(Library("x", undefined=frozenset({name}))) is expected


def test_the_majority_counts() -> None:
    names = {"_Z1aSs", "_Z1bNSt7__cxx1112basic_stringE", "_Z1cNSt7__cxx1112basic_stringE"}
    assert cxx11(Library("x", undefined=frozenset(names))) is True


def test_torch_itself() -> None:
    import importlib.util

    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.submodule_search_locations
    lib = Path(spec.submodule_search_locations[0]) / "lib"
    for name in ("libc10.so", "libtorch_cpu.so", "libtorch_python.so"):
        library = read_library(lib / name, gpu=False)
        found = evidence(library)
        assert cxx11(library) is True
        assert found.new > 10
        assert set(found.old_names) <= {
            "_ZNSs4_Rep20_S_empty_rep_storageE"
        }  # a part that was compiled for the old one
