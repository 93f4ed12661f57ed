"""The compiled libraries in a BOM, on small ones compiled here.

Their CUDA is one that no machine has, so that the system's own libraries have no say.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.environment.venvs import Bom, bom_of, make_venv, site
from tests.environment.wheels import make_wheel

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}"
MODULE = "int cuda_thing(void);\nint PyInit_ops(void) { return cuda_thing(); }\n"


def compile_library(path: Path, code: str, *options: str, language: str = "c") -> Path:
    """A shared library of a few lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    argv = ["gcc", "-shared", "-fPIC", "-x", language, "-", "-x", "none", *options, "-o", str(path)]
    subprocess.run(argv, input=code, text=True, check=True)
    return path


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A venv with an extension that wants ``libcudart.so.97``, and that library beside it."""
    folder = tmp_path_factory.mktemp("native")
    venv = make_venv(folder / "venv", make_wheel(folder, "kernels"))
    runtime = site(venv) / "nvidia" / "cu97" / "lib" / "libcudart.so.97"
    compile_library(runtime, "int cuda_thing(void) { return 7; }", "-Wl,-soname,libcudart.so.97")
    rpath = "-Wl,-rpath,$ORIGIN/../nvidia/cu97/lib"
    compile_library(site(venv) / "kernels" / f"ops{SUFFIX}", MODULE, str(runtime), rpath)
    return venv


@pytest.fixture
def venv(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "venv", symlinks=True)


def library(bom: Bom, name: str) -> Bom:
    return next(one for one in bom["extensions"] if one["path"].rpartition("/")[2].startswith(name))


def test_an_extension_and_what_it_wants(venv: Path) -> None:
    bom = bom_of(venv)
    ops = library(bom, "ops")
    assert (ops["tag"], ops["machine"], ops["error"]) == (TAG, bom["platform"]["arch"], "")
    assert "libcudart.so.97" in ops["needed"]
    assert ops["rpath"] == ["$ORIGIN/../nvidia/cu97/lib"]
    assert (ops["cuda"], ops["missing"], ops["undefined"], ops["undefined_count"]) == (97, [], [], 0)
    assert library(bom, "libcudart")["soname"] == "libcudart.so.97"
    assert sorted(bom["abi"]["cuda"]) == ["97"]
    assert bom["abi"]["tag"].startswith(TAG)
    assert bom["platform"]["glibcxx"]


def test_the_owner_is_who_recorded_it(venv: Path) -> None:
    assert library(bom_of(venv), "ops")["distribution"] is None
    path = f"kernels/ops{SUFFIX}"
    with (site(venv) / "kernels-1.0.dist-info" / "RECORD").open("a") as record:
        record.write(f"{path},,\n")
    assert library(bom_of(venv), "ops")["distribution"] == "kernels"


def test_another_cuda_than_the_extension_was_built_for(venv: Path) -> None:
    """Fault 5 of the deployment: built against one CUDA, the environment has another."""
    shutil.rmtree(site(venv) / "nvidia" / "cu97")
    older = site(venv) / "nvidia" / "cuda_runtime" / "lib" / "libcudart.so.96"
    compile_library(older, "int older(void) { return 1; }", "-Wl,-soname,libcudart.so.96")
    bom = bom_of(venv)
    ops = library(bom, "ops")
    assert (ops["missing"], ops["undefined"], ops["undefined_count"]) == (
        ["libcudart.so.97"],
        ["cuda_thing"],
        1,
    )
    assert sorted(bom["abi"]["cuda"]) == ["96", "97"]


def test_a_truncated_library_is_an_error_and_not_a_crash(venv: Path) -> None:
    ops = site(venv) / "kernels" / f"ops{SUFFIX}"
    ops.write_bytes(ops.read_bytes()[:700])
    (site(venv) / "kernels" / "script.so").write_text("INPUT(libreal.so)\n")
    bom = bom_of(venv)
    assert library(bom, "ops")["error"]
    assert all("script.so" not in one["path"] for one in bom["extensions"])


def test_the_two_string_abis(venv: Path) -> None:
    for name, macro in (("new", 1), ("old", 0)):
        code = '#include <string>\nvoid take(std::string);\nextern "C" void go() { take(""); }\n'
        options = [f"-D_GLIBCXX_USE_CXX11_ABI={macro}", "-lstdc++"]
        compile_library(site(venv) / f"{name}.so", code, *options, language="c++")
    bom = bom_of(venv)
    assert (library(bom, "new")["cxx11"], library(bom, "old")["cxx11"]) == (True, False)
    assert library(bom, "new")["glibcxx"]


def test_torch_says_its_cuda_in_its_own_text(venv: Path) -> None:
    (site(venv) / "torch").mkdir()
    text = "from typing import Optional\n__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\n"
    (site(venv) / "torch" / "version.py").write_text(text)
    info = site(venv) / "torch-2.11.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: torch\nVersion: 2.11.0\n")
    abi = bom_of(venv)["abi"]
    assert abi["torch"] == "2.11.0+cu130"
    assert abi["tag"].startswith(f"{TAG}-torch2.11-cu130")


def test_without_native_no_library_is_read(venv: Path) -> None:
    bom = bom_of(venv, native=False)
    assert (bom["extensions"], bom["abi"]["cuda"]) == ([], {})
    assert bom["digest"] == bom_of(venv)["digest"]
