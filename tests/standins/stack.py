"""The reference environment of the brief and the training one beside it, as wheels of stand-ins.

What a fault needs to show is real: SONAMEs, NEEDED, undefined symbols, versions, modules that are there or not.
Loading ``torch`` or ``sgl_kernel`` really loads their libraries, so the wrong CUDA major fails as it does there.
"""

from __future__ import annotations

import io
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from wheel.wheelfile import WheelFile

from tests.standins.native import CUDA_CHECK, MESSAGE_LOGGER, TORCH_CHECK, library

TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}"
NATIVE = f"{TAG}-{TAG}-linux_x86_64"
STANDIN = Path(__file__).parents[1] / "rollout_host" / "standin.py"
LOADS = """import ctypes, pathlib
HERE = pathlib.Path(__file__).parent
for name in {names!r}:
    ctypes.CDLL(str(HERE / name), mode=ctypes.RTLD_GLOBAL)
"""
FLASHINFER = """import os, re, shutil, subprocess
def mm_mxfp8(): pass
def compile_for_the_card():
    nvcc = shutil.which("nvcc", path=os.environ["PATH"] + ":/usr/local/cuda/bin")
    if not nvcc or not os.environ.get("CUDA_VISIBLE_DEVICES"):
        return
    asked = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    cards = subprocess.run(asked, capture_output=True, text=True).stdout.split()
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout
    version = tuple(map(int, re.search(r"release (\\d+)\\.(\\d+)", said).groups()))
    if any(card.startswith("12.") for card in cards) and version < (12, 9):
        print("Failed to get device capability: SM 12.x requires CUDA >= 12.9.", flush=True)
        raise RuntimeError("FlashInfer requires GPUs with sm75 or higher")
"""
LAUNCH = """import itertools, json, sys
import torch, soundfile, sgl_kernel, flashinfer
given = dict(itertools.pairwise(sys.argv[1:]))
if given.get("--grammar-backend", "xgrammar") == "xgrammar":
    from xgrammar import StructuralTag
from sglang.srt.speculative import dflash_worker
from flashinfer import mm_mxfp8
if "flashinfer" in (given.get("--attention-backend", "flashinfer"), given.get("--sampling-backend", "flashinfer")):
    flashinfer.compile_for_the_card()
sys.argv[1:] = [json.dumps({"port": int(given["--port"]), "model": given["--served-model-name"]})]
from sglang import standin
standin.main()
"""


@dataclass(frozen=True)
class Distribution:
    """One wheel to be: its files by path, and what it requires."""

    name: str
    version: str
    files: dict[str, bytes]
    requires: tuple[str, ...] = ()
    tag: str = "py3-none-any"

    def write(self, folder: Path) -> Path:
        """Write the wheel and return its path."""
        folder.mkdir(parents=True, exist_ok=True)
        stem = f"{self.name.replace('-', '_')}-{self.version}"
        path = folder / f"{stem}-{self.tag}.whl"
        lines = ["Metadata-Version: 2.1", f"Name: {self.name}", f"Version: {self.version}"]
        lines += [f"Requires-Dist: {requirement}" for requirement in self.requires]
        with WheelFile(path, "w") as wheel:
            for name, content in self.files.items():
                wheel.writestr(name, content)
            wheel.writestr(f"{stem}.dist-info/METADATA", "\n".join(lines) + "\n")
            wheel.writestr(
                f"{stem}.dist-info/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {self.tag}\n"
            )
            wheel.writestr(f"{stem}.dist-info/INSTALLER", "pip\n")
        return path


def reference() -> list[Distribution]:
    """ct129: everything from CUDA 13, SGLang with DFLASH."""
    return [
        *_torch("cu130", 13, ("nvidia-cuda-runtime==13.0.96", "nvidia-cublas==13.1.0.3", "triton==3.6.0")),
        _nvidia("nvidia-cuda-runtime", "13.0.96", "libcudart.so.13", ["cudaMalloc", "cudaMemcpyAsync"]),
        _nvidia("nvidia-cublas", "13.1.0.3", "libcublas.so.13", ["cublasGemmEx"]),
        _sgl_kernel(),
        sglang("0.5.11", dflash=True),
        _python("flashinfer-python", "0.6.8.post1", {"flashinfer/__init__.py": FLASHINFER}),
        _python("flashinfer-cubin", "0.6.8.post1", {"flashinfer_cubin/__init__.py": ""}),
        _python("xgrammar", "0.1.32", {"xgrammar/__init__.py": "class StructuralTag: pass\n"}),
        _python(
            "soundfile", "0.13.1", {"soundfile.py": "def read(): pass\n", "_soundfile_data/__init__.py": ""}
        ),
    ]


def training() -> list[Distribution]:
    """ct200: CUDA 12, an SGLang before DFLASH, a kernel of CUDA 13 that was copied in, no soundfile."""
    return [
        *_torch(
            "cu128",
            12,
            ("nvidia-cuda-runtime-cu12==12.8.90", "nvidia-cublas-cu12==12.8.4.1", "triton==3.6.0"),
        ),
        _nvidia("nvidia-cuda-runtime-cu12", "12.8.90", "libcudart.so.12", ["cudaMalloc", "cudaMemcpyAsync"]),
        _nvidia("nvidia-cublas-cu12", "12.8.4.1", "libcublas.so.12", ["cublasGemmEx"]),
        _sgl_kernel(),
        sglang("0.5.9", dflash=False),
        _python("flashinfer-python", "0.6.3", {"flashinfer/__init__.py": ""}),
        _python("xgrammar", "0.1.10", {"xgrammar/__init__.py": ""}),
        _python("peft", "0.18.0", {"peft/__init__.py": "", "peft/lora.py": "RANK = 8\n"}),
    ]


def sglang(version: str, *, dflash: bool) -> Distribution:
    """SGLang's stand-in: its launcher imports what the real one does, then serves a stand-in's answers."""
    pins = {"0.5.11": ("0.6.8.post1", "0.1.32"), "0.5.9": ("0.6.3", "0.1.27")}[version]
    files = {
        "sglang/__init__.py": f"__version__ = {version!r}\n",
        "sglang/srt/__init__.py": "",
        "sglang/srt/server_args.py": "CHOICES = ['EAGLE', 'DFLASH']\n" if dflash else "CHOICES = ['EAGLE']\n",
        "sglang/srt/speculative/__init__.py": "",
        "sglang/launch_server.py": LAUNCH,
        "sglang/standin.py": STANDIN.read_text(),
    }
    if dflash:
        for module in ("dflash_worker", "dflash_info", "dflash_utils"):
            files[f"sglang/srt/speculative/{module}.py"] = f"NAME = {module!r}\n"
    requires = (
        "torch==2.11.0",
        "sglang-kernel==0.4.2",
        f"flashinfer-python=={pins[0]}",
        f"xgrammar=={pins[1]}",
        "soundfile==0.13.1",
    )
    return Distribution("sglang", version, {name: text.encode() for name, text in files.items()}, requires)


def _torch(cuda: str, major: int, requires: tuple[str, ...]) -> list[Distribution]:
    beside = "$ORIGIN/../../nvidia/lib"
    files = {
        "torch/__init__.py": LOADS.format(
            names=["lib/libc10.so", "lib/libtorch_cuda.so", "lib/libtorch.so"]
        ).encode(),
        "torch/version.py": f"__version__ = '2.11.0+{cuda}'\ncuda = '{major}.{cuda[-1]}'\n".encode(),
        "torch/lib/libc10.so": library("libc10.so", [TORCH_CHECK, MESSAGE_LOGGER]),
        "torch/lib/libtorch_cuda.so": library(
            "libtorch_cuda.so",
            [CUDA_CHECK],
            ["cudaMalloc", "cublasGemmEx", TORCH_CHECK],
            [f"libcudart.so.{major}", f"libcublas.so.{major}", "libc10.so"],
            f"{beside}:$ORIGIN",
        ),
        "torch/lib/libtorch.so": library("libtorch.so", [], [CUDA_CHECK], ["libtorch_cuda.so"], "$ORIGIN"),
    }
    vision = {"torchvision/__init__.py": "import torch\n", "torchvision/version.py": f"cuda = '{cuda}'\n"}
    vision_so = library("", [], [TORCH_CHECK, "cudaMalloc"], [f"libcudart.so.{major}", "libc10.so"])
    return [
        Distribution("torch", f"2.11.0+{cuda}", files, requires, NATIVE),
        Distribution(
            "torchvision",
            f"0.26.0+{cuda}",
            {**{name: text.encode() for name, text in vision.items()}, "torchvision/_C.so": vision_so},
            ("torch==2.11.0",),
            NATIVE,
        ),
        _python("triton", "3.6.0", {"triton/__init__.py": f"BUILT_FOR = {cuda!r}\n"}),
    ]


def _nvidia(name: str, version: str, soname: str, exports: list[str]) -> Distribution:
    return Distribution(
        name,
        version,
        {f"nvidia/lib/{soname}": library(soname, exports)},
        (),
        "py3-none-manylinux_2_17_x86_64",
    )


def _sgl_kernel() -> Distribution:
    wanted = [CUDA_CHECK, MESSAGE_LOGGER, TORCH_CHECK, "cudaMalloc", "cublasGemmEx"]
    needed = ["libcudart.so.13", "libcublas.so.13", "libc10.so", "libtorch.so"]
    native = library(
        "common_ops.abi3.so", [], wanted, needed, "$ORIGIN/../../nvidia/lib:$ORIGIN/../../torch/lib"
    )
    files = {
        "sgl_kernel/__init__.py": (
            "import torch\n" + LOADS.format(names=["sm100/common_ops.abi3.so"])
        ).encode(),
        "sgl_kernel/sm100/common_ops.abi3.so": native,
    }
    return Distribution("sglang-kernel", "0.4.2", files, (), "cp310-abi3-manylinux_2_17_x86_64")


def _python(name: str, version: str, files: dict[str, str]) -> Distribution:
    return Distribution(name, version, {path: text.encode() for path, text in files.items()})


def archive(distributions: list[Distribution], folder: Path) -> bytes:
    """All their files and dist-infos in one zip, to be unpacked into a ``site-packages``."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        for distribution in distributions:
            with zipfile.ZipFile(distribution.write(folder)) as wheel:
                for name in wheel.namelist():
                    made.writestr(name, wheel.read(name))
    return buffer.getvalue()
