"""What does not fit together: compiled code and its libraries, the card, the packages."""

from __future__ import annotations

from fleetctl.doctor.signatures.signature import Signature

CU130 = "take torch, triton, torchvision, nvidia-* and the kernel package from one CUDA tag (cu130)"
PINS = "the versions that the engine pins: `fleetctl env diff` against an environment that works, or install anew"

ABI = [
    Signature(
        "abi-cuda-major-12-needs-13",
        r"lib(?:cudart|cublas|cublasLt|nvrtc|cusparse|cufft|curand|cusolver"
        r"|nvJitLink)\.so\.13: cannot open "
        r"shared object file",
        "an extension built for CUDA 13 is in an environment whose torch brings CUDA 12",
        CU130,
        verdict="fatal",
        source="sglang#36462",
    ),
    Signature(
        "abi-libnvrtc-12",
        r"libnvrtc\.so\.12: cannot open shared object file",
        "libnvrtc.so.12 is in no place that the loader searches",
        "install nvidia-cuda-nvrtc-cu12 in this environment; import torch before the kernel package",
        verdict="fatal",
        packages=("nvidia-cuda-nvrtc-cu12",),
        source="sglang#5094, #10951, #16052",
    ),
    Signature(
        "abi-cuda-major-13-needs-12",
        r"lib(?:cudart|cublas|cublasLt|cusparse|cufft|curand|cusolver"
        r"|nvJitLink)\.so\.1[12](?:\.0)?: cannot open "
        r"shared object file",
        "an extension built for CUDA 12 (or 11) is where only another CUDA's libraries are",
        "the extension's build for the CUDA of this torch; the whole stack from one CUDA tag",
        source="sglang-omni#620",
    ),
    Signature(
        "abi-cudnn",
        r"lib(?:cudnn|cusparseLt|nccl|nvshmem_host|cupti"
        r"|cufile)[\w.]*\.so\.\d+: cannot open shared object file"
        r"|CUDNN_STATUS_(?:NOT_INITIALIZED|SUBLIBRARY|VERSION_MISMATCH)|cuDNN version incompatibility",
        "a CUDA library that torch needs is missing or of another version than torch was built with",
        "the nvidia-* packages that this torch pins; nothing of another version on LD_LIBRARY_PATH",
    ),
    Signature(
        "abi-torch-library",
        r"lib(?:torch|c10|torch_\w+|c10_\w+|caffe2\w*|shm"
        r"|aoti\w*)\.so[\w.]*: cannot open shared object file",
        "a package wants a library of another torch than the one installed (or torch was not imported first)",
        "the package's build for this torch; import torch before it",
    ),
    Signature(
        "abi-glibc",
        r"version [`'\"]GLIBC_2\.\d+' not found",
        "a package was built for a newer glibc than this system has",
        "a build for this system's glibc (another version or a build from source), or a newer system",
        source="vllm, flash-attention: several",
    ),
    Signature(
        "abi-libstdcxx",
        r"version [`'\"](?:GLIBCXX_3|CXXABI_1)\.[\d.]+' not found",
        "libstdc++ found first is older than a package was built with",
        "a newer libstdc++ (of the system, or conda's libstdcxx-ng) before the old one, or an older build",
    ),
    Signature(
        "abi-numpy",
        r"numpy\.(?:dtype|ndarray|ufunc) size changed, may indicate binary incompatibility"
        r"|compiled using NumPy 1\.x cannot be run in|_ARRAY_API not found"
        r"|compiled against (?:NumPy )?(?:C-)?API version 0x",
        "an extension was built for another NumPy than the one installed",
        "numpy<2, or a build of that package for this NumPy",
    ),
    Signature(
        "abi-cxx11",
        r"undefined symbol: _Z\w*(?:RKSs|RKSsb|ESs|Ss)[a-z]?$",
        "a package was built with the old C++ string ABI, torch here uses the C++11 ABI",
        "install a build of that package with the C++11 ABI of this torch",
        verdict="fatal",
        source="sglang#5100",
    ),
    Signature(
        "abi-nvjitlink",
        r"undefined symbol: (?:__nvJitLink\w+|cusparse\w+|cublas\w+|cudnn\w+|nccl\w+|cu[A-Z]\w+)",
        "a CUDA library of another version is loaded in place of the one that torch brings",
        "take the other one off LD_LIBRARY_PATH, and install the nvidia-* packages that this torch pins",
    ),
    Signature(
        "abi-torch-symbol",
        r"undefined symbol: _ZNK?(?:3c10|5torch|2at)|undefined symbol: (?:aoti_torch_|torch_)\w+",
        "a package was built against another torch version than the one installed",
        "install the torch that the package was built with, or the package's build for this torch",
        verdict="fatal",
        source="sglang#29317, #30562, #7033",
    ),
    Signature(
        "abi-python",
        r"undefined symbol: _?Py[A-Z_]\w+|Python version mismatch: module was compiled for Python"
        r"|SRE module mismatch|bad magic number in '",
        "a compiled module was built for another Python than the one that runs",
        "install its build for this Python; an environment is not moved between Python versions",
    ),
    Signature(
        "abi-undefined-symbol",
        r"undefined symbol: ",
        "a compiled extension does not fit the libraries it is loaded with",
        "install both from builds of one version and one CUDA tag",
        verdict="fatal",
    ),
    Signature(
        "abi-operator",
        r"operator torchvision::nms does not exist|Couldn't load custom C\+\+ ops"
        r"|PyTorch and torchvision (?:were|has been) compiled with different CUDA"
        r"|Detected that PyTorch and (?:torchvision|TorchAudio) were compiled with different CUDA",
        "torchvision or torchaudio is not the build for this torch",
        "torch, torchvision and torchaudio of one release and one CUDA tag",
    ),
    Signature(
        "abi-library",
        r"[\w+.-]+\.so[\w.]*: cannot open shared object file|error while loading shared libraries: ",
        "a shared library is in no place that the loader searches",
        "install the package that brings it; `ldconfig -p` and the environment's nvidia-* packages",
    ),
    Signature(
        "abi-elf",
        r"invalid ELF header|wrong ELF class|file too short|cannot allocate memory in static TLS block",
        "a shared library is damaged, not whole, or for another machine",
        "install its package again; `fleetctl env verify` names the files that changed",
    ),
    Signature(
        "abi-kernel-library",
        r"\[sgl_kernel\] CRITICAL: Could not load any common_ops library",
        "the kernel package could not be loaded",
        "the import errors below that line say why",
        verdict="fatal",
        consequence=True,
    ),
]

ARCH = [
    Signature(
        "arch-flashinfer-sm12x",
        r"SM 12\.x requires CUDA >= 12\.9",
        "the CUDA toolkit is older than FlashInfer wants for SM 12.x",
        "CUDA toolkit 12.9 or later, or --attention-backend triton",
        verdict="fatal",
        arguments={"attention-backend": "triton"},
        source="vllm#50705; flashinfer PR 3633",
    ),
    Signature(
        "arch-flashinfer-sm75-message",
        r"FlashInfer requires GPUs with sm75 or higher"
        r"|No supported CUDA architectures found for major versions",
        "FlashInfer refuses the card; on SM 12.x that means a CUDA toolkit before 12.9, not too old a card",
        "CUDA toolkit 12.9 or later as CUDA_HOME, or --attention-backend triton --sampling-backend pytorch",
        verdict="fatal",
        arguments={"attention-backend": "triton", "sampling-backend": "pytorch"},
        source="flashinfer#3674, #3675",
    ),
    Signature(
        "arch-per-op-gap",
        r"no kernel image is available for execution|CUDA_ERROR_NO_BINARY_FOR_GPU"
        r"|cudaErrorNoKernelImageForDevice"
        r"|device kernel image is invalid|named symbol not found",
        "a library holds no code for this card's architecture",
        "a build of the kernel package with that architecture, or only cards that it has code for",
        verdict="fatal",
        source="sglang#38515, pytorch#149845",
    ),
    Signature(
        "arch-torch-card",
        r"with CUDA capability sm_\d+\w? is not compatible with the current PyTorch installation",
        "this torch was built without code for the card's architecture",
        "a torch built with it (SM 12.x: cu128 or later)",
        source="pytorch#149845, vllm#19906",
    ),
    Signature(
        "arch-ptxas",
        r"ptxas fatal\s*: Value 'sm_\w+' is not defined",
        "the ptxas that Triton brings does not know this card",
        "triton 3.6.0 or later, or TRITON_PTXAS_PATH to the ptxas of CUDA 13",
        verdict="fatal",
        source="triton#8539, #10331",
    ),
    Signature(
        "arch-nvcc",
        r"nvcc fatal\s*: Unsupported gpu architecture|nvcc fatal\s*: Unknown option"
        r"|Unknown CUDA arch \(|unsupported GNU version|CUDA version \([\d.]+\) (?:is"
        r"|must be).*(?:mismatch|at least)"
        r"|requires CUDA (?:version )?>?=? ?1[23]\.\d+ or (?:later|higher|above)|nvcc.* is too old",
        "the CUDA toolkit whose nvcc is found first does not know this card (or is older than this code)",
        "a newer toolkit (SM 12.x: 12.9 or later) as CUDA_HOME and first on PATH",
        source="flashinfer: several",
    ),
    Signature(
        "arch-triton-smem",
        r"out of resource: shared memory, Required: \d+, Hardware limit: \d+",
        "a Triton kernel asks for more shared memory than a block has on this card (99 KiB on SM 12.x)",
        "sglang 0.5.11 or later, or a patch set for the kernel named in the traceback",
        verdict="fatal",
        source="sglang#14322, PR 17908",
    ),
    Signature(
        "arch-triton-compile",
        r"PassManager::run failed|LLVM ERROR: |triton\.compiler\.errors\.CompilationError"
        r"|error: unsupported target:"
        r"|computeCapability not supported|type fp8e4nv not supported in this architecture"
        r"|Cannot select: ",
        "Triton cannot compile a kernel for this card",
        "the triton that this torch pins, or a newer one; on old cards no fp8; another attention backend",
        source="vllm#19215, pytorch#180908",
    ),
    Signature(
        "arch-backend",
        r"CUDA error \([^)]*(?:hopper|flash|fmha|cutlass|blackwell)[^)]*\): "
        r"|TllmGenFmhaRunner.*Unsupported architecture|Unsupported architecture|only supports? (?:SM"
        r"|sm)_?\d+"
        r"|only supported (?:on|for) (?:devices with )?(?:SM|sm|compute capability|Hopper|Blackwell"
        r"|Ampere|B200|H100)"
        r"|requires? (?:a GPU with )?compute capability|FlashAttention only supports Ampere GPUs"
        r"|does not support (?:SM|sm)_?\d+|This backend does not support|not supported on (?:this"
        r"|your) (?:GPU|device)",
        "a kernel or backend was chosen that is not made for this card",
        "another backend for this card: --attention-backend triton or flashinfer",
        source="sglang#24633, flashinfer#5445",
    ),
    Signature(
        "arch-bf16",
        r"Bfloat16 is only supported on GPUs with compute capability",
        "the card has no bfloat16",
        "--dtype half",
        arguments={"dtype": "half"},
    ),
    Signature(
        "arch-quantization-card",
        r"quantization method (?:\S+ )?is not supported for the current GPU. Minimum capability"
        r"|[Mm]inimum capability: \d+. Current capability"
        r"|FP8 (?:quantization |E4M3 )?(?:is )?(?:only|not) support",
        "the model's quantization needs a newer card",
        "the model in another quantization, or a newer card",
    ),
    Signature(
        "arch-illegal-instruction",
        r"Illegal instruction|code=(?:killed|dumped), (?:status=4/ILL|signal=ILL)",
        "a binary uses instructions that this processor does not have",
        "a build for this processor (often AVX-512 or AVX2)",
    ),
    Signature(
        "arch-triton-ptx",
        r"Internal Triton PTX codegen error",
        "ptxas did not translate a kernel that Triton made",
        "what ptxas says beside that line",
        consequence=True,
    ),
    Signature(
        "arch-cuda-graph",
        r"Capture cuda graph failed",
        "the CUDA graph could not be captured",
        "the error above that line is the cause; --disable-cuda-graph only hides it",
        verdict="fatal",
        consequence=True,
    ),
]

PKG = [
    Signature(
        "pkg-soundfile",
        r"No module named '?soundfile|sndfile library not found",
        "soundfile is imported at start and missing",
        "add soundfile (with its libsndfile) to the environment",
        verdict="fatal",
        packages=("soundfile",),
    ),
    Signature(
        "pkg-structural-tag",
        r"cannot import name '?StructuralTag",
        "xgrammar is older than this sglang needs",
        "xgrammar==0.1.32, or --grammar-backend none",
        verdict="fatal",
        packages=("xgrammar==0.1.32",),
        arguments={"grammar-backend": "none"},
        source="sglang PR 21722",
    ),
    Signature(
        "pkg-cubin-version",
        r"flashinfer-(?:cubin|jit-cache) version .* does not match flashinfer version",
        "flashinfer-python and flashinfer-cubin are of different versions",
        "the same version of both",
        verdict="fatal",
        source="Export-Deploy#679, vllm#49804",
    ),
    Signature(
        "pkg-namespace",
        r"cannot import name '[\w.]+' from '[\w.]+' \(unknown location\)",
        "a folder without __init__.py stands in for the package: it is not installed, or a copy shadows it",
        "install the package; remove folders of its name from the working directory and from PYTHONPATH",
    ),
    Signature(
        "pkg-circular",
        r"most likely due to a circular import",
        "a package shadows another one of its name, or is half installed",
        "look for a file or folder of that name beside the program; install the package again",
    ),
    Signature(
        "pkg-transformers",
        r"cannot import name '\w+' from 'transformers|module 'transformers[\w.]*' has no attribute"
        r"|Could not import module '\w+'\. Are this object's requirements defined correctly"
        r"|huggingface-hub>=|tokenizers>=[\w.,<=! ]+ is required",
        "transformers (or what it is used with) is of another version than this engine was written for",
        "the transformers version that this engine pins",
    ),
    Signature(
        "pkg-kernel-version",
        r"sgl-kernel is installed with version .* which is less than the minimum required"
        r"|(?:sgl-kernel|sglang-kernel|flashinfer_python|flashinfer) is (?:installed with version"
        r"|not installed)"
        r"|cannot import name '\w+' from '(?:sgl_kernel|flashinfer|vllm|sglang)[\w.]*'"
        r"|module '(?:sgl_kernel|flashinfer|deep_gemm)[\w.]*' has no attribute"
        r"|'_OpNamespace' '\w+' object has no attribute|No operator found for|Unknown (?:builtin )?op: ",
        "the kernel package or library is of another version than the engine was written for",
        PINS,
        source="sglang: several",
    ),
    Signature(
        "pkg-api-mismatch",
        r"^(?:\S+ )?ImportError: cannot import name '|AttributeError: module '[\w.]+' has no attribute '"
        r"|got an unexpected keyword argument '|missing \d+ required positional argument"
        r"|takes \d+ positional arguments? but \d+ (?:was|were) given",
        "two packages do not fit: one calls the other in a way that its version does not know",
        PINS,
    ),
    Signature(
        "pkg-missing-requirement",
        r"PackageNotFoundError: |DistributionNotFound: |distribution was not found and is required by"
        r"|pkg_resources\.(?:VersionConflict|ContextualVersionConflict)"
        r"|requires the [`'\"]?[\w-]+[`'\"]? (?:library|package)|[Pp]lease (?:run "
        r"|use )?[`'\"]?pip3? install"
        r"|ImportError: \w+ (?:is|are) not (?:installed|available)"
        r"|requires [`'\"]?[\w-]+[`'\"]? to be installed",
        "a package that is required is not installed, or not in the version required",
        "install it in this environment",
    ),
    Signature(
        "pkg-missing-module",
        r"ModuleNotFoundError: No module named |Error while finding module specification for '"
        r"|: No module named [\w.]+$",
        "a module is imported that is not installed",
        "add its package to the environment; an environment that is whole can be copied with `fleetctl "
        "env overlay`",
    ),
]
