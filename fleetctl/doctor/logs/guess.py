"""Where to look for an exception that no signature knows: the part of the engine or library that raised it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from fleetctl.doctor.logs.traceback import Raised

ENVIRONMENT = "compare the environment with one that works: `fleetctl env diff`"


class Guess(NamedTuple):
    """``part``: of an engine or library, in words; ``look``: how to go on."""

    family: str
    part: str
    look: str


SPECULATION = Guess(
    "CFG",
    "speculative decoding",
    "start without speculation to see whether it is that; then the drafter (made for this model, its config) and the "
    "--speculative-* arguments; else a later version of the engine",
)
GRAMMAR = Guess(
    "CFG",
    "structured output (grammar)",
    "--grammar-backend none or another one; the xgrammar version that the engine pins",
)
ATTENTION = Guess(
    "CFG",
    "the attention backend",
    "another --attention-backend; not every backend goes with every model, page size and way of speculation",
)
CACHE = Guess(
    "CFG",
    "the KV cache",
    "the arguments of the cache: page size, radix cache, hybrid models' caches, its dtype; without speculation",
)
LORA = Guess("CFG", "LoRA", "the adapter's rank and modules against --max-lora-rank; start without it")
ARGUMENTS = Guess(
    "CFG",
    "the check of the arguments",
    "the arguments that the message names, for this version of the engine",
)
KERNEL = Guess(
    "ARCH",
    "compiled kernels",
    "whether the libraries named have code for this card and the toolkit is new enough: `fleetctl doctor --env`; "
    "another backend",
)
EXPERTS = Guess("ARCH", "the experts' kernels (MoE)", "another --moe-runner-backend; kernels for this card")
QUANTIZED = Guess(
    "MODEL",
    "the quantization of the weights",
    "the model in another quantization; whether this version has kernels for this one on this card",
)
LOADING = Guess(
    "MODEL",
    "loading the model's weights",
    "that the model's files are whole, and that this version of the engine knows this checkpoint",
)
CLASS = Guess(
    "MODEL",
    "the model's own code",
    "that this version of the engine knows this model and its config.json is as its authors wrote it",
)
FILES = Guess(
    "MODEL",
    "the model's configuration or tokenizer",
    "the model's files, and the transformers version that the engine pins",
)
MEDIA = Guess(
    "MODEL", "the model's image or audio processing", "its processor's files; the packages that it imports"
)
IMPORT = Guess("PKG", "importing a package", f"two packages of versions that do not fit; {ENVIRONMENT}")
GPUS = Guess("GPU", "CUDA", "see `nvidia-smi` and the kernel's log for Xid errors")
TOGETHER = Guess(
    "GPU",
    "the GPUs' communication",
    "NCCL_DEBUG=INFO; NCCL_P2P_DISABLE=1 and --disable-custom-all-reduce to see whether it is that",
)
NETWORK = Guess(
    "NET",
    "the network between processes or hosts",
    "addresses, ports and firewall between them; GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME name the interface",
)
SHAPES = Guess(
    "MODEL",
    "the shapes of the model's weights",
    "that config.json, weights, tokenizer and drafter are of one model, and that this version of the engine knows it",
)
MIXED = Guess(
    "PKG",
    "what one package expects of another",
    f"the versions of the two packages against what the engine pins; {ENVIRONMENT}",
)
BUILD = Guess(
    "SYS",
    "compiling on this host",
    "what the compiler or linker said above: a toolkit, compiler, header or library that is missing or of another "
    "version",
)
DRIVER = Guess(
    "DRV", "the NVIDIA driver", "`nvidia-smi` as the service's user; the driver's and the container's state"
)
LINKED = Guess(
    "ABI",
    "loading a compiled library",
    f"the builds of the libraries named, all for one torch; {ENVIRONMENT}",
)
MEMORY = Guess(
    "GPU",
    "the GPU's memory",
    "who else uses the GPU; another --mem-fraction-static (--gpu-memory-utilization), a shorter context",
)
UNIT = Guess(
    "SVC",
    "the unit, the container or its supervisor",
    "`systemctl status`, `journalctl -u`, the container's log",
)
HOST = Guess("SYS", "the host's system", "the path or the limit that the message names")
ENGINE = Guess(
    "SVC", "the engine", "the traceback; the engine's issues for this message; a later version of it"
)

_TYPES = (
    (r"(?:ModuleNotFound|Import|PackageNotFound)\w*Error", IMPORT),
    (r"(?:OutOfMemory|Accelerator|Cuda|CUDA)\w*Error", GPUS),
    (r"(?:NCCL|DistBackend)\w*Error", TOGETHER),
    (r"NVMLError\w*", DRIVER),
    (
        r"(?:PTXAS|Compilation|OutOfResources|Unsupported\w*Arch|Lowering|Inductor|BackendCompiler|TorchRuntime|"
        r"InternalTorchDynamo|CppCompile)\w*",
        KERNEL,
    ),
    (r"(?:Safetensor|Unpickling)\w*", LOADING),
    (r"(?:Hub|Repo\w*|Gated\w*|JSONDecode|HFValidation)\w*", FILES),
    (
        r"(?:Connection|SSL|Socket|HTTP|URL|Proxy|DistNetwork|DistStore|gaierror|Rpc|Actor|Ray|ClientConnector)\w*",
        NETWORK,
    ),
    (r"(?:MemoryError|PermissionError|BlockingIOError|IsADirectoryError|NotADirectoryError)", HOST),
    (r"(?:Argument|Validation|Usage|BadParameter)\w*", ARGUMENTS),
)
_SAID = (
    (r"^[:\s]*\S*(?:gcc|g\+\+|clang|nvcc|cc1plus|cmake|make)[\w.-]*: ", BUILD),
    (
        r"[Nn]inja build failed|Command '\[?'?\S*(?:gcc|g\+\+|cc|nvcc|ninja|cmake)\b|Error building extension",
        BUILD,
    ),
    (r"TORCH_LIBRARY|symbol|shared object|dlopen|\.so(?:\.\d+)*\b(?!\w)", LINKED),
    (r"'NoneType' object is not callable", MIXED),
    (
        r"'\w+(?:ForCausalLM|ForConditionalGeneration|Model|Attention|DecoderLayer|MLP|MoE|Linear|Method"
        r"|Embedding|Module)"
        r"\w*' object has no attribute",
        CLASS,
    ),
    (
        r"\b[Gg]loo\b|\btcp://|\brpc\b|[Ss]ocket closed|rendezvous|\bstore\b.*timed? ?out|[Tt]imed out initializing",
        NETWORK,
    ),
    (r"\bGPUs\b.*(?:available|exceed|required|visible)|number of (?:required )?GPUs", ARGUMENTS),
    (r"[Mm]odel (?:path|file|folder|directory)\b.*(?:exist|found)|\.(?:gguf|bin|safetensors)\b", LOADING),
    (r"\bNCCL\b|all_?reduce|all_?gather|collective", TOGETHER),
    (
        r"[Kk]ernels?\b.*(?:unavailable|not (?:available|supported|found|implemented))|on (?:current|this) platform",
        KERNEL,
    ),
    (
        r"torch::k\w+|\bsm_?\d{2,3}\b|[Cc]ompute [Cc]apability|not implemented for '(?:Float8|BFloat16)|scalar type",
        KERNEL,
    ),
    (r"\b[Ll]o[Rr][Aa]\b", LORA),
    (r"[Ss]peculat|\b[Dd]raft|\b[Ee]agle", SPECULATION),
    (r"[Gg]rammar|json.?schema|structured output|xgrammar", GRAMMAR),
    (r"[Aa]ttention.backend|[Aa]ttention .*not supported", ATTENTION),
    (r"KV.?cache|block.size|page.size|radix.cache", CACHE),
    (
        r"[Qq]uantiz|\b(?:[Aa][Ww][Qq]|[Gg][Pp][Tt][Qq]|bitsandbytes|[Nn][Vv][Ff][Pp]4|[Mm][Xx][Ff][Pp]4)\b",
        QUANTIZED,
    ),
    (
        r"\b(?:tp|pp|dp|ep|cp|sp|(?:moe|attn)_\w+)_size\b|dp[_ ]attention|DP attention|[Oo]verlap schedul"
        r"|[Cc]hunked.prefill|"
        r"[Pp]refix.cach|(?:[Pp]ipeline|[Tt]ensor|[Dd]ata|[Ee]xpert|[Cc]ontext).parallel|[Hh]i[Cc]ache"
        r"|[Dd]isaggregat|"
        r"limit_mm_per_prompt|tokenizer_mode|enforce_eager|max_(?:running|total|prefill|model|num|seq|batch)\w*|"
        r"gpu_memory_utilization|mem_fraction|kv_cache_dtype|compilation_config|cuda_graph_\w+|cudagraph|"
        r"scheduler_\w+|[Aa]sync.scheduling|load_format|[Tt]ool.?call|[Rr]easoning.parser|nnodes|node_rank|"
        r"dist.init.addr|executor_backend|hf_overrides|\btask\b|\benable_\w+|\bdisable_\w+|server_args",
        ARGUMENTS,
    ),
    (
        r"vocab(?:_| )size|hidden_size|intermediate_size|num_(?:attention_heads|key_value_heads|hidden_layers"
        r"|experts)|"
        r"head_dim|rope|shapes? (?:mismatch|cannot be multiplied|\S+ (?:is|are) (?:invalid|not))"
        r"|must match the size of "
        r"tensor|mat1 and mat2|broadcast shape|shape '?\[",
        SHAPES,
    ),
    (r"\.(?:cu|cuh|hpp)\b|jit_kernel|csrc/|\b[Tt]riton\b|[Cc]utlass", KERNEL),
    (r"chat.template|[Tt]okenizer|(?:config|preprocessor_config)\.json", FILES),
    (r"\bweights?\b|checkpoint", LOADING),
    (r"\b(?:image|video|audio|pixel)s?\b|multi.?modal", MEDIA),
    (
        r"--[a-z][\w-]+|[Aa]rgument\b(?! #)|"
        r"must be (?:one of|set|specified|<=|>=|less|greater)|max_(?:model_len|num_\w+)|"
        r"cannot be used with|incompatible with|not compatible with",
        ARGUMENTS,
    ),
    (r"out of memory|OOM\b|not enough memory", MEMORY),
    (r"CUDA|\bcuda\b|\bGPU\b|\bHIP\b|\bROCm\b", GPUS),
)
# The functions that an exception passed through, where no path tells the part.
_NAMES = (
    (r"load_weights|weight_loader|load_model|get_all_weights|create_weights|process_weights\w*", LOADING),
    (
        r"check_server_args|verify\w*|_verify\w*|create_engine_config|_?validate\w*|_handle_\w+|__post_init__",
        ARGUMENTS,
    ),
    (
        r"init_process_group|init_distributed\w*|new_group|all_reduce|all_gather|barrier|broadcast\w*",
        TOGETHER,
    ),
    (r"profile_run|determine_(?:num_)?available\w*|profile_max_num_token|init_memory_pool", MEMORY),
    (r"capture\w*|_dummy_run|compile\w*|autotune\w*", KERNEL),
    (r"get_tokenizer|from_pretrained|get_config|get_processor|cached_\w+", FILES),
)
# Words of lines that are no exceptions, or of such as nothing else tells.
_WORDS = (
    (r"VRAM", MEMORY),
    (
        r"dimension size|out of bounds for dim|inconsistent tensor|expected .{0,40}\b(?:shape|dim|size)",
        SHAPES,
    ),
    (r"\b[Ss][Mm][ _]?\d{2,3}\b|\barch\b|PTX|head_?dim", KERNEL),
    (r"cu(?:DNN|dnn)|CUDNN|cuBLAS|CUBLAS", LINKED),
    (r"[\w-]+ ?(?:>=|==|<=|~=) ?\d|[Ff]ailed to import|virtual environment|venv\b|\binstalled\b", IMPORT),
    (r"\d+\.\d+\.\d+\.\d+:\d+|\bpeer\b|_addr\b|[Bb]ootstrap", NETWORK),
    (r"nvidia|libcuda|NVML|driver\b|/dev/(?:nvidia|kfd|dri)", DRIVER),
    (
        r"[Dd]ocker|daemon|[Cc]ontainer|[Pp]od\b|kubelet|systemd|\.service\b|[Uu]nit\b|supervisor|listen\b|[Pp]ort\b",
        UNIT,
    ),
    (
        r"[Cc]onnect|[Rr]efused|unreachable|[Hh]ostname|resolve|DNS|[Pp]roxy|socket|https?://|RDMA|InfiniBand"
        r"|\bIB\b|etcd",
        NETWORK,
    ),
    (
        r"[Ll]oad(?:ing)? model|tensor\b|gguf|GGUF|[Cc]heckpoint|[Mm]odel\b|hidden_act|[Pp]rocessor\b|ImageProcessor",
        CLASS,
    ),
    (r"pip\b|wheel|requirement|[Pp]ackage|[Ii]mport|module\b|version", IMPORT),
    (r"[Ff]lag|[Oo]ption|[Aa]rgument|usage:|[Cc]onfig", ARGUMENTS),
    (
        r"[Pp]ermission|denied|[Dd]isk|[Ff]ile\b|[Dd]irector|mount|[Mm]emory|mmap|locale|ulimit|[Tt]hread|fork"
        r"|user\b|not found",
        HOST,
    ),
)
_PARTS = (
    (r"/speculative/|/spec_decode/|eagle|dflash|_mtp\b|_nextn\b|ngram_|draft", SPECULATION),
    (r"/(?:xgrammar|outlines|llguidance|constrained|structured_output|guided_decoding)", GRAMMAR),
    (r"/lora/", LORA),
    (
        r"/(?:argparse|server_args|arg_utils|typer|click|pydantic\w*)\b|/vllm/config|/engine/arg|/cli_args",
        ARGUMENTS,
    ),
    (r"/(?:ray|zmq|grpc|requests|urllib3?|httpx|httpcore|aiohttp|socket|ssl)/|/socket\.py", NETWORK),
    (r"/(?:model_loader|weight_utils|default_loader)|/safetensors/|/gguf/", LOADING),
    (r"/quantization/|/compressed_tensors|/bitsandbytes/", QUANTIZED),
    (r"/moe/|fused_moe|/ep_moe|/expert", EXPERTS),
    (r"/attention/|_attention\b|flashmla|/mla/", ATTENTION),
    (
        r"kv_cache|memory_pool|cache_engine|mem_cache|radix_cache|block_pool|allocator|hicache|lmcache|kv_transfer"
        r"|kv_connector|offload",
        CACHE,
    ),
    (r"/(?:multimodal|multi_modal|vision)\b|/processors?/|image_processing|processing_\w+\.py", MEDIA),
    (
        r"/(?:flashinfer|triton|deep_gemm|tvm\w*|cutlass|flash_attn|xformers|_inductor|sgl_kernel|cuda_graph)",
        KERNEL,
    ),
    (r"/_custom_ops\.py|/torch/_ops\.py|/jit_kernel|/cuda_piecewise|/compilation/", KERNEL),
    (
        r"/(?:models|model_executor/models|srt/models|srt/configs|transformers_utils|transformers_modules)/",
        CLASS,
    ),
    (
        r"/(?:transformers|tokenizers|huggingface_hub|modelscope|sentencepiece|tiktoken)/|/hf_transformers",
        FILES,
    ),
    (r"/(?:torch/cuda|cupy|pynvml)\b|/torch/cuda/", GPUS),
    (r"/(?:torch/distributed|parallel_state|device_communicators|pynccl|custom_all_reduce)", TOGETHER),
    (
        r"/(?:importlib|pkg_resources|pkgutil)\b|<frozen importlib|/hub_kernels|/site-packages/kernels/",
        IMPORT,
    ),
    (r"/(?:subprocess|shutil|pathlib|tempfile)\b", HOST),
)
_NOT_OWN = re.compile(
    r"/(?:torch/nn/modules|torch/utils|contextlib|asyncio|uvloop|concurrent|threading|runpy)\b|<frozen runpy"
)
_IMPORTING = re.compile(r"/(?:site|dist)-packages/")


def guess(raised: Raised) -> Guess:
    """Where to look first: by the type, by what is said, then by the innermost frame that tells a part."""
    name = raised.type.rsplit(".", 1)[-1]
    if found := _of(_TYPES, name, re.match):
        return found
    if any(of == "<module>" and _IMPORTING.search(path) for path, _, of in raised.frames):
        return IMPORT
    said = raised.message or (raised.code if "assert" in raised.code else "")
    if found := _of(_SAID, f"{raised.type}: {said}", re.search):
        return found
    for path, _, _ in reversed(raised.frames):
        if not _NOT_OWN.search(path) and (found := _of(_PARTS, path, re.search)):
            return found
    for _, _, function in reversed(raised.frames):
        if found := _of(_NAMES, function, re.fullmatch):
            return found
    if raised.code and (found := _of(_SAID, raised.code, re.search)):
        return found
    if name in ("OSError", "FileNotFoundError", "TimeoutExpired"):
        return HOST
    return _of(_WORDS, raised.message or raised.text, re.search) or ENGINE


def family(raised: Raised) -> str:
    """``CFG`` … of the guess."""
    return guess(raised).family


def module(raised: Raised) -> str:
    """The package that raised it, from the innermost frame's path."""
    for path, _, _ in reversed(raised.frames):
        inside = re.sub(r"^.*/(?:site|dist)-packages/|^.*?/python/(?=\w)|^.*/lib/python3\.\d+/", "", path)
        if inside and not _NOT_OWN.search(path):
            return inside.strip("/").split("/", 1)[0].removesuffix(".py")
    return ""


def _of(
    table: tuple[tuple[str, Guess], ...], text: str, how: Callable[[str, str], re.Match[str] | None]
) -> Guess | None:
    return next((found for pattern, found in table if how(pattern, text)), None)
