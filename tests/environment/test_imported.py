"""Names that an engine imports of a package and its files do not have: read, not guessed from versions."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fleetctl.agent.capture.imported import imports_of, unmet_imports
from tests.environment.venvs import bom_of, make_venv
from tests.standins import stack

INIT = "from .gemm import mm_fp8 as mm_fp8\nfrom .all import *  # noqa\n"
ENGINE = """import os
from flashinfer.gemm import (
    mm_fp8,  # there
    mm_mxfp8 as _raw,
)
from flashinfer.gone import thing
if is_blackwell():
    from flashinfer.page import only_blackwell
try:
    from flashinfer.page import maybe
except ImportError:
    maybe = None
def later():
    from flashinfer.page import at_last, append
"""


def unmet(engine: str, **others: str) -> dict[tuple[str, str], dict[str, str]]:
    files = {"flashinfer/__init__.py": "", "flashinfer/gemm.py": "def mm_fp8(): pass\n"}
    files |= {"flashinfer/page/__init__.py": "def append(): pass\n", "sglang/__init__.py": ""}
    files |= {"sglang/a.py": engine, "sglang/tests/b.py": "from flashinfer.gemm import nothing\n", **others}
    found = unmet_imports(list(files), files.__getitem__)
    return {(one["module"], one["name"]): one for one in found}


def test_what_is_not_in_the_package_is_told_with_its_place_and_when() -> None:
    found = unmet(ENGINE)
    told = {key: (one["where"], one["when"]) for key, one in found.items()}
    assert told == {
        ("flashinfer.gemm", "mm_mxfp8"): ("sglang/a.py:2", "start"),
        ("flashinfer.gone", "*"): ("sglang/a.py:6", "start"),
        ("flashinfer.page", "only_blackwell"): ("sglang/a.py:8", "condition"),
        ("flashinfer.page", "at_last"): ("sglang/a.py:14", "call"),
    }
    assert found["flashinfer.page", "only_blackwell"]["under"] == "if is_blackwell()"


def test_in_doubt_the_package_has_it() -> None:
    wild = {"flashinfer/__init__.py": INIT}
    assert not unmet("from flashinfer import anything\n", **wild)
    assert not unmet(
        "from flashinfer import x\n", **{"flashinfer/__init__.py": "def __getattr__(name): ...\n"}
    )
    assert not unmet("from flashinfer import gemm, page\n")
    assert not unmet("from flashinfer.native import x\n", **{"flashinfer/native.abi3.so": ""})


def test_a_call_that_is_an_import_at_start_elsewhere_counts_as_that() -> None:
    late = "def f():\n    from flashinfer.gemm import mm_mxfp8\n"
    found = unmet(late, **{"sglang/z.py": "from flashinfer.gemm import mm_mxfp8\n"})
    assert found["flashinfer.gemm", "mm_mxfp8"]["where"] == "sglang/z.py:1"


def test_a_package_that_is_not_there_is_another_fault() -> None:
    files = {"sglang/__init__.py": "from flashinfer import x\n"}
    assert unmet_imports(list(files), files.__getitem__) == []


@given(st.text(alphabet="from flashinfer.import(),\\\n\t #ab:*", max_size=300))
def test_no_source_is_too_odd(text: str) -> None:
    for one in imports_of(text, "flashinfer"):
        assert one.module.startswith("flashinfer") and one.line >= 1


def test_a_capture_names_what_patched_sources_lack(tmp_path: Path) -> None:
    """Sources of the reference laid over the training environment, whose metadata still say 0.5.9 and 0.6.3."""
    wheels = {one.name: one.write(tmp_path) for one in stack.training()}
    venv = make_venv(tmp_path / "venv", wheels["sglang"], wheels["flashinfer-python"])
    (found,) = [one for one in bom_of(venv)["unmet_imports"] if one["provider"] == "flashinfer"]
    assert (found["name"], found["when"]) == ("mm_mxfp8", "start")
    assert found["where"].startswith("sglang/launch_server.py:")
