"""The family of an exception that no signature knows: by its type, and by the module that raised it."""

from __future__ import annotations

import re

from fleetctl.doctor.logs.traceback import Raised

# The innermost frame that one of these knows counts; types before that.
_TYPES = (
    (r"(?:ModuleNotFound|Import)Error", "PKG"),
    (r"(?:OutOfMemory|Accelerator|Cuda|NCCL|DistBackend)\w*Error", "GPU"),
    (r"(?:PTXAS|Compilation|OutOfResources|Inductor|Unsupported\w*Arch)\w*", "ARCH"),
    (r"(?:Safetensor|Hub|Repo\w*|Gated\w*|JSONDecode|Unpickling)\w*", "MODEL"),
    (r"(?:Connection|Timeout|SSL|Socket|HTTP|URL|Proxy|DistNetwork|DistStore|gaierror)\w*", "NET"),
    (r"(?:MemoryError|PermissionError|BlockingIOError|BrokenPipeError|IsADirectoryError|OSError)", "SYS"),
    (r"(?:Argument|Validation|Usage|BadParameter)\w*", "CFG"),
)
_MODULES = (
    (
        r"/(?:argparse|server_args|arg_utils|typer|click|pydantic\w*|config_parser)\b|/vllm/config|/cli/",
        "CFG",
    ),
    (
        r"/(?:transformers|tokenizers|safetensors|huggingface_hub|modelscope|sentencepiece|tiktoken|gguf)/",
        "MODEL",
    ),
    (
        r"/(?:model_loader|weight_utils|model_executor/models|srt/models|srt/configs|model_config|hf_transformers)\w*",
        "MODEL",
    ),
    (
        r"/(?:flashinfer|triton|deep_gemm|tvm\w*|cutlass|flash_attn|xformers|bitsandbytes|_inductor|sgl_kernel)/",
        "ARCH",
    ),
    (r"/(?:torch/cuda|cuda_graph_runner|cupy|pynvml)\b", "GPU"),
    (r"/(?:torch/distributed|parallel_state|device_communicators|pynccl|custom_all_reduce|gloo)", "GPU"),
    (r"/(?:requests|urllib3?|httpx|httpcore|aiohttp|socket|ssl|zmq|grpc)\b", "NET"),
    (r"/(?:importlib|pkg_resources|pkgutil)\b|<frozen importlib", "PKG"),
    (r"/(?:quantization)/", "MODEL"),
    (r"/(?:speculative)/", "CFG"),
    (r"/(?:subprocess|shutil|pathlib|tempfile|multiprocessing)\b", "SYS"),
)
_MESSAGES = (
    (r"--[a-z][\w-]+|argument|must be (?:one of|set|specified)|incompatible with|cannot be used with", "CFG"),
    (r"\b(?:CUDA|cuda|NCCL|GPU)\b", "GPU"),
    (r"config\.json|tokenizer|weights?\b|checkpoint|safetensors|architecture", "MODEL"),
    (r"\bsm_?\d{2,3}\b|compute capability|kernel", "ARCH"),
)
_NOT_OWN = re.compile(
    r"/(?:torch/nn/modules|torch/utils|contextlib|asyncio|uvloop|concurrent|threading|runpy)\b|<frozen runpy"
)


def family(raised: Raised) -> str:
    """Where to look first; SVC where nothing says more."""
    name = raised.type.rsplit(".", 1)[-1]
    if found := next((kind for pattern, kind in _TYPES if re.match(pattern, name)), None):
        return found
    for path, _, _ in reversed(raised.frames):
        if _NOT_OWN.search(path):
            continue
        if found := _of(_MODULES, path):
            return found
    return _of(_MESSAGES, raised.message) or "SVC"


def module(raised: Raised) -> str:
    """The package that raised it, from the innermost frame's path."""
    for path, _, _ in reversed(raised.frames):
        inside = re.sub(r"^.*/(?:site|dist)-packages/|^.*?/python/(?=\w)|^.*/lib/python3\.\d+/", "", path)
        if inside and not _NOT_OWN.search(path):
            return inside.strip("/").split("/", 1)[0].removesuffix(".py")
    return ""


def _of(table: tuple[tuple[str, str], ...], text: str) -> str | None:
    return next((kind for pattern, kind in table if re.search(pattern, text)), None)
