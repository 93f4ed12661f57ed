"""What does not fit together: compiled code and its libraries, and the card."""

from __future__ import annotations

from fleetctl.doctor.signatures.signature import Signature

CU130 = "take torch, triton, torchvision, nvidia-* and the kernel package from one CUDA tag (cu130)"

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
        r"|CUDNN_STATUS_(?:NOT_INITIALIZED|SUBLIBRARY|VERSION_MISMATCH)|cuDNN version incompatibility"
        r"|Unable to load any of \{libcudnn|Cannot load symbol cudnn|Could not load (?:library|symbol) (?:lib)?cu",
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
        r"|compiled using NumPy 1\.x cannot be run in|_ARRAY_API not found|[Nn]umpy is not available"
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
        r"|SRE module mismatch|bad magic number in '"
        r"|dynamic module does not define module export",
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
        r"|Detected that PyTorch and (?:torchvision|[Tt]orch[Aa]udio) were compiled with different CUDA",
        "torchvision or torchaudio is not the build for this torch",
        "torch, torchvision and torchaudio of one release and one CUDA tag",
    ),
    Signature(
        "abi-registered-twice",
        r"Tried to register an operator .*(?:multiple times|with the same name)|Only a single TORCH_LIBRARY can be"
        r"|[Dd]uplicate registration|already (?:been )?registered .*(?:operator|kernel)",
        "two copies of one compiled extension are loaded, or one that torch brings by now itself",
        "one distribution of that package; the version that this torch goes with",
    ),
    Signature(
        "abi-op-backend",
        r"Could not run '\w+::\w+' with arguments from the|[Nn]o kernel .{0,20}found to dispatch",
        "an operator has no code for this device: its extension did not load, or was built without CUDA",
        "the package's build for this torch and CUDA; why it did not load stands above",
    ),
    Signature(
        "abi-toolkit",
        r"The detected CUDA version \([\d.]+\) mismatches the version",
        "the toolkit (nvcc) found first is of another CUDA than torch was built with; what is compiled would not fit",
        "CUDA_HOME to a toolkit of torch's CUDA, or a torch of the toolkit's",
    ),
    Signature(
        "abi-library",
        r"[\w+.-]+\.so[\w.]*: cannot open shared object file|error while loading shared libraries: ",
        "a shared library is in no place that the loader searches",
        "install the package that brings it; `ldconfig -p` and the environment's nvidia-* packages",
    ),
    Signature(
        "abi-elf",
        r"invalid ELF header|wrong ELF class|file too short|cannot allocate memory in static TLS block"
        r"|cannot enable executable stack|cannot handle TLS data|ELF (?:load command|file OS ABI)|DLL load failed"
        r"|Error loading DLL",
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
        r"|device kernel image is invalid|named symbol not found|no kernel image"
        r"|(?:CUDA|HIP) error: invalid device function|hipErrorNoBinaryForGpu",
        "a library holds no code for this card's architecture",
        "a build of the kernel package with that architecture, or only cards that it has code for",
        verdict="fatal",
        source="sglang#38515, pytorch#149845",
        also=r"HSA_STATUS_ERROR_INVALID_ISA",
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
        r"|Cannot select: |mmaLayout|TritonGPU/Transforms/\S+ Assertion",
        "Triton cannot compile a kernel for this card",
        "the triton that this torch pins, or a newer one; on old cards no fp8; another attention backend",
        source="vllm#19215, pytorch#180908",
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
        r"|FP8 (?:quantization |E4M3 )?(?:is )?(?:only|not) support"
        r"|(?:FP8|FP4|NVFP4|MXFP4|MXFP8|INT4|[Mm]arlin)\b.{0,60}(?:requires?|only|not support).{0,60}"
        r"(?:capability|SM ?\d|Blackwell|Hopper|Ada)",
        "the model's quantization needs a newer card",
        "the model in another quantization, or a newer card",
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
        r"|your|the current) (?:GPU|device|platform|hardware)"
        r"|[Uu]n(?:supported|known) (?:SM|GPU arch|CUDA arch|compute capab|device arch|cuda device)"
        r"|[Oo]nly (?:Hopper|Blackwell|Ampere|Ada|[Ss][Mm]_?\d+)\S* (?:GPUs? )?supports?"
        r"|only supported (?:on|for|with) (?:CUDA |NVIDIA )?(?:devices|GPUs|cards|Hopper|Blackwell)\b"
        r"|requires? (?:an? )?(?:NVIDIA )?(?:Hopper|Blackwell|Ampere|Ada|[Ss][Mm][ _]?\d+|CUDA capability)"
        r"|\b[Ss][Mm][ _]?\d+ or (?:above|later|newer|higher)|too old to be supported by the triton"
        r"|compute capability(?: \S+)? (?:is )?not supported|gemm on sm_?\d+|less than CUDA device capability"
        r"|not supported on (?:GPUs? with )?compute capability|compute capability less than \d+"
        r"|CU(?:BLAS|DNN)_STATUS_ARCH_MISMATCH|requires compute capability|capability of (?:at least )?\d+\.\d"
        r"|Compute Capability \d+\.\d or",
        "a kernel or backend was chosen that is not made for this card",
        "another backend for this card: --attention-backend triton or flashinfer",
        source="sglang#24633, flashinfer#5445",
    ),
    Signature(
        "arch-compile",
        r"error: identifier \"__\w+\" is undefined|static[_ ]assert(?:ion)? failed|error: #error"
        r"|NVCC compilation failed|nvcc (?:error|fatal) *:|ptxas (?:error|fatal) *:|error: no instance of"
        r"|\.cuh?\(\d+\): error:|\.(?:cu|cuh|hpp|h):\d+(?::\d+)?: (?:fatal )?error:|nvrtc: error"
        r"|Unsupported \.version \d|NVRTC_ERROR",
        "a kernel could not be compiled here: its source does not go with this CUDA toolkit, compiler or card",
        "the toolkit (nvcc) that the package was written for as CUDA_HOME; a host compiler that it accepts; or a "
        "build of the package with its kernels in it (flashinfer-jit-cache and the like)",
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
