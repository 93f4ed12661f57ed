"""Driver and GPUs: what CUDA, NCCL, NVML and the kernel's driver say."""

from __future__ import annotations

from fleetctl.doctor.signatures.signature import Signature

DRV = [
    Signature(
        "drv-too-old",
        r"CUDA driver version is insufficient for CUDA runtime|The NVIDIA driver on your system is too old"
        r"|cudaErrorInsufficientDriver|forward compatibility was attempted on non supported HW"
        r"|the provided PTX was compiled with an unsupported toolchain|CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
        r"|requirement error: unsatisfied condition: cuda>=",
        "the NVIDIA driver is older than the CUDA that this environment brings",
        "a newer driver (CUDA 13: 580 or later), or an environment with an older CUDA tag; "
        "no cuda-compat package on cards that do not take it",
        verdict="fatal",
        source="pytorch, nvidia-docker: several",
    ),
    Signature(
        "drv-mismatch",
        r"Driver/library version mismatch|API mismatch: the client has the version"
        r"|system has unsupported display driver"
        r"|Failed to initialize NVML: Driver",
        "the loaded kernel module and the driver's libraries are of different versions (an update without "
        "a reboot)",
        "reboot the host, or unload and load the nvidia modules with nothing running on them",
    ),
    Signature(
        "drv-fabric-manager",
        r"Error 802: system not yet initialized|cudaErrorSystemNotReady|CUDA_ERROR_SYSTEM_NOT_READY"
        r"|system not yet initialized",
        "the GPUs are behind NVSwitches and the fabric manager does not run (or is of another version "
        "than the driver)",
        "nvidia-fabricmanager of the driver's exact version: install, enable and start it",
        verdict="fatal",
        commands=("systemctl status nvidia-fabricmanager",),
        source="pytorch#35710",
        also=(
            r"nv-?fabricmanager.*(?:[Ee]rror|[Ff]ail|not)|[Ff]abric ?[Mm]anager.*(?:[Ee]rror|fail"
            r"|mismatch|not (?:running|started))"
        ),
    ),
    Signature(
        "drv-missing",
        r"libcuda\.so\.1: cannot open shared object file|Could not load (?:dynamic )?library libcuda\.so"
        r"|Found no NVIDIA driver on your system"
        r"|NVIDIA-SMI has failed because it couldn't communicate|libnvidia-ml\.so\.1: cannot open"
        r"|could not select device driver .* with capabilities: \[\[gpu\]\]"
        r"|NVML Shared Library Not Found|NVMLError_LibraryNotFound|NVIDIA Driver was not detected"
        r"|nvidia-smi['\"]?: (?:command )?not found|No such file or directory: '\S*nvidia-smi'"
        r"|could not insert 'nvidia|modprobe: (?:FATAL|ERROR): .*nvidia|driver not loaded|NVMLError_DriverNotLoaded"
        r"|nvidia-smi.* (?:failed|not found|not installed)",
        "there is no NVIDIA driver, or it is not visible in this container",
        "install or load the driver; a container needs the NVIDIA runtime (--gpus all)",
        source="sglang#4778",
    ),
    Signature(
        "drv-container",
        r"nvidia-container-(?:cli|runtime)|unknown or invalid runtime name: nvidia|unresolvable CDI devices"
        r"|nvidia-ctk|CDI device injection failed|failed to inject CDI"
        r"|libnvidia-container|no runtime for \"nvidia\"|error gathering device information .*nvidia",
        "the container runtime could not give the GPUs to the container",
        "the NVIDIA container toolkit: installed, of the driver's version, configured for this runtime "
        "(`nvidia-ctk runtime configure`) and restarted; `nvidia-smi` on the host first",
    ),
    Signature(
        "drv-init",
        r"cudaErrorInitializationError|: initialization error$|from cudaGetDeviceCount\(\)|CUDA error 999|Error 999"
        r"|driver library init failure|cuInit\S* .*(?:fail|return|error)"
        r"|CUDA_ERROR_(?:NOT_INITIALIZED|UNKNOWN|DEVICE_UNAVAILABLE|COMPAT_NOT_SUPPORTED\w*)"
        r"|CUDA error: initialization error|CUDA driver initialization failed|error initializing CUDA"
        r"|cudaGetDeviceCount\(?\)? (?:failed|returned)|NVMLError_(?:Unknown|Uninitialized|NoPermission)"
        r"|hipErrorNotInitialized|open\(/dev/kfd|/dev/nvidia\S* .*(?:denied|No such|not permitted)"
        r"|Unable to open /dev/kfd",
        "CUDA (or ROCm) could not be initialised: device files, the nvidia_uvm module, rights or the container stand "
        "in the way",
        "`nvidia-smi` and `ls -l /dev/nvidia*` as the service's user; `nvidia-modprobe -u`; the container's device "
        "access; reboot after a driver's update",
    ),
    Signature(
        "drv-no-device",
        r"No CUDA GPUs are available|no CUDA-capable device is detected|CUDA_ERROR_NO_DEVICE"
        r"|cudaErrorNoDevice"
        r"|Failed to infer device type|No CUDA runtime is found|Torch not compiled with CUDA enabled"
        r"|Failed to initialize NVML: (?:Unknown Error|Insufficient|GPU access)"
        r"|CUDA unknown error - this may be due to"
        r"|CUDA initialization: |No accelerator .*is available|[Nn]o NVIDIA GPU|No HIP GPUs are available"
        r"|hipErrorNoDevice|0 active drivers|GPU is required|CUDA is not available|cuda is not available"
        r"|[Nn]o (?:compatible |supported |suitable |usable )?(?:CUDA |HIP |NVIDIA )?(?:GPUs?|devices?) "
        r"(?:were |was |is |are )?(?:found|detected|discovered|visible)"
        r"|is_available\(\) (?:is|==|returned|returns) False|torch\.cuda\.is_available\(\) should be"
        r"|[Nn]o CUDA device|not find any (?:CUDA|GPU)|GPU.{0,20} not (?:found|detected|available)",
        "the process sees no GPU: wrong CUDA_VISIBLE_DEVICES, a CPU build of torch, or a container that "
        "lost its access",
        "see `nvidia-smi` as the service's user; CUDA_VISIBLE_DEVICES; restart the container; a CUDA "
        "build of torch",
    ),
    Signature(
        "drv-modeset",
        r"NVRM: API mismatch|NVRM: The NVIDIA probe routine (?:was not called|failed)"
        r"|NVRM: No NVIDIA GPU found"
        r"|nvidia: version magic|NVRM: RmInitAdapter failed|NVRM: loading .* failed|NVRM: GPU .*: RmInit"
        r"|bound to nouveau|use of the NVIDIA open kernel modules|nvidia: (?:Unknown symbol|disagrees about)"
        r"|RmInitAdapter|module verification failed|[Kk]ey was rejected by service"
        r"|(?:dkms|DKMS).*(?:[Ee]rror|Bad return|fail)|[Ll]oading (?:of )?(?:unsigned )?module is rejected",
        "the driver's kernel module could not take up the GPU",
        "the open kernel module for Blackwell cards; a driver built for this kernel; see `journalctl -k | "
        "grep NVRM`",
    ),
]

GPU = [
    Signature(
        "gpu-fell-off",
        r"GPU is lost|fallen off the bus|ERROR_GPU_IS_LOST|NVRM: Xid \(PCI:[\w:.]+\): (?:79|154)\b"
        r"|Unable to determine the device handle for GPU",
        "a GPU has fallen off the bus and does not respond any more",
        "move the service to another GPU; reset or reboot; then power, cooling, the slot and its PCIe link",
        verdict="fatal",
    ),
    Signature(
        "gpu-ecc",
        r"uncorrectable ECC error|NVRM: Xid \(PCI:[\w:.]+\): (?:48|63|64|92|94|95|140)\b"
        r"|cudaErrorECCUncorrectable|row remapping failure|pending page retirement",
        "the GPU's memory has uncorrectable errors",
        "take the GPU out of use and reset it; where rows cannot be remapped any more, have it replaced",
        verdict="fatal",
        also=(r"uncorrect(?:able|ed) ECC|ECC.{0,20}uncorrect"),
    ),
    Signature(
        "gpu-xid",
        r"NVRM: Xid \(PCI:[\w:.]+\): \d+|SXid \(PCI|nvidia-nvswitch\d*: .*(?:[Ee]rror|[Ff]atal|SXid)"
        r"|NVLink.{0,40}(?:fatal|failed|inactive|training error|is down)",
        "the driver reports a fault of a GPU (Xid)",
        "31, 13, 43, 45: the program's own kernels; 74: NVLink; 119, 120: the GPU's firmware; else reset "
        "the GPU",
    ),
    Signature(
        "gpu-driver-error",
        r"NVRM: .*(?:Check failed|Assertion failed|NV_ERR_\w+|failed with status)|nvidia-modeset: ERROR"
        r"|NVRM: GPU\d* .*(?:fail|error)",
        "the GPU's driver reports errors (NV_ERR_NO_MEMORY: it found no memory, on GB10 the host's)",
        "less memory in use; then reset the GPU or reboot; the newest driver of this branch",
    ),
    Signature(
        "gpu-kv-cache",
        r"larger than the maximum number of tokens that can be stored in KV cache"
        r"|No available memory for the cache blocks"
        r"|KV cache (?:is needed|memory)|GiB KV cache|max_total_num_tokens"
        r"|estimated maximum model length is"
        r"|Not enough (?:space|KV cache|tokens) (?:in|for) (?:the )?(?:KV )?cache",
        "what the weights leave of the GPU's memory does not hold the context length asked for",
        "a shorter --context-length (--max-model-len), more of the GPU (--mem-fraction-static, "
        "--gpu-memory-utilization), an fp8 KV cache, or more GPUs",
        source="vllm#2248, #2418",
    ),
    Signature(
        "gpu-busy",
        r"Free memory on device .*is less than desired GPU memory utilization"
        r"|all CUDA-capable devices are busy or unavailable"
        r"|[Mm]emory capacity is unbalanced|Initial free memory .*should be|Error in memory profiling",
        "something else holds the GPU's memory (or the GPU itself)",
        "see who: `nvidia-smi`; stop it, or give the service another GPU or a smaller share",
    ),
    Signature(
        "gpu-out-of-memory",
        r"CUDA out of memory|OutOfMemoryError|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY"
        r"|cudaErrorMemoryAllocation|Not enough memory\. Please try to (?:in"
        r"|de)crease --mem-fraction-static|CUBLAS_STATUS_ALLOC_FAILED|Out of memory\. Please (?:try"
        r"|set) (?:a )?(?:smaller|lower)|failed to allocate .*(?:GPU|device|CUDA|compute) (?:memory"
        r"|buffers?)|cudaMalloc(?:Async)?(?: \w+)? ?failed: out of memory|HIP out of memory"
        r"|hipErrorOutOfMemory|[Cc]uda failure .{0,8}out of memory|(?:GPU|VRAM"
        r"|device) (?:ran )?out of memory|CUDA_ERROR_OUT_OF_MEM|XPU out of memory|CUDA error 2: "
        r"|CUDA error: 2 ",
        "the GPU's memory does not suffice",
        "see who else uses the GPU; then another --mem-fraction-static, a shorter context, or more GPUs",
        verdict="fatal",
        commands=("nvidia-smi",),
        also=(
            r"unable to allocate (?:CUDA|ROCm|HIP|Vulkan)\w* buffer|[Ii]nsufficient (?:GPU|device"
            r"|video) memory|not enough (?:GPU|VRAM)|cuMemCreate .*(?:fail|error)"
            r"|memory allocation failure"
        ),
    ),
    Signature(
        "gpu-assert",
        r"device-side assert|Assertion `[^`]*` failed\.?$|index out of bounds: 0 <= "
        r"|vectorized_gather_kernel",
        "a kernel's own check failed: an index (often a token id or a position) is out of its range",
        "model, tokenizer and drafter of one another; CUDA_LAUNCH_BLOCKING=1 shows the line that did it",
    ),
    Signature(
        "gpu-fault",
        r"CUDA error: (?:an illegal memory access|unspecified launch failure|misaligned address"
        r"|invalid program counter|an illegal instruction|operation not supported|unknown error)"
        r"|CUDA_ERROR_(?:ILLEGAL_ADDRESS|LAUNCH_FAILED|ILLEGAL_INSTRUCTION)|cudaErrorIllegalAddress"
        r"|illegal memory access was encountered|CUDA error \(\S+\): unspecified launch failure"
        r"|CUDA_ERROR_LAUNCH_TIMEOUT|Memory access fault by GPU|HIP error: (?:an illegal"
        r"|unspecified|the operation)|hipErrorIllegalAddress",
        "the GPU, or a kernel on it, crashed",
        "see `nvidia-smi` and `dmesg` for Xid errors; reset the GPU or move the service to another one",
        verdict="fatal",
        also=(
            r"the launch timed out and was terminated|HSA_STATUS_ERROR_(?:EXCEPTION|MEMORY|ILLEGAL|OUT)"
            r"|HW Exception by GPU|GPU (?:hang|reset)\b.*|amdgpu: .*(?:ring|fault|reset)"
        ),
    ),
    Signature(
        "gpu-cublas",
        r"CUBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|NOT_INITIALIZED|NOT_SUPPORTED|INVALID_VALUE)"
        r"|CUDNN_STATUS_EXECUTION_FAILED|Failed to (?:initialize|run) cutlass|cutlass .*(?:failed"
        r"|Error Internal)",
        "a matrix product failed on the GPU: another CUDA library than torch's, too little memory, or a "
        "defect",
        "the nvidia-* packages that this torch pins, nothing of CUDA on LD_LIBRARY_PATH; a little memory "
        "left free",
    ),
    Signature(
        "gpu-nvls",
        r"NVLink SHARP \(NVLS\) Multicast|transport/nvls\.cc:\d+ NCCL WARN|Failed to bind NVLink"
        r"|cuMulticast\w+ .*fail|not support multicast",
        "NVLink multicast cannot be set up (fabric manager, NVSwitch, or a container)",
        "NCCL_NVLS_ENABLE=0; then the fabric manager's state in `nvidia-smi -q`",
        variables={"NCCL_NVLS_ENABLE": "0"},
        source="nccl#1672, #1788, pytorch PR 177472",
    ),
    Signature(
        "gpu-peer-access",
        r"peer access is not supported between these two devices|custom_all_reduce\.cuh?:\d+"
        r"|CUDA error 217|"
        r"cudaErrorPeerAccessUnsupported|failed to open CUDA IPC handle|register_graph_buffers",
        "these GPUs cannot reach each other's memory directly",
        "NCCL_P2P_DISABLE=1 and --disable-custom-all-reduce",
        variables={"NCCL_P2P_DISABLE": "1"},
        arguments={"disable-custom-all-reduce": True},
        source="sglang#1509, #9706",
    ),
    Signature(
        "gpu-collective-timeout",
        r"Watchdog caught collective operation timeout|ncclUnhandledCudaError|NCCL error in"
        r"|NCCL error: |NCCL Error \d|ncclSystemError|ncclInternalError|ncclRemoteError"
        r"|ncclInvalidUsage|NCCL WARN Cuda failure|NCCL timeout|unhandled (?:system|cuda) error"
        r"|RCCL error|ncclCommInitRank failed",
        "GPUs of the service do not reach each other: NCCL could not set up or finish their communication",
        "NCCL_DEBUG=INFO shows why; try NCCL_P2P_DISABLE=1 and --disable-custom-all-reduce, then look at "
        "IOMMU and "
        "ACS; over several hosts NCCL_SOCKET_IFNAME names the network's interface",
        verdict="fatal",
        variables={"NCCL_P2P_DISABLE": "1"},
        arguments={"disable-custom-all-reduce": True},
        source="nccl#1999, rtx6kpro#15, vllm#33041",
        also=(
            r"NCCL communicator was aborted|NCCL failure|NCCL operation .*(?:failed|timed out)"
            r"|HeartbeatMonitor|Some NCCL operations have failed"
        ),
    ),
    Signature(
        "gpu-nccl-p2p-hang",
        r"NCCL INFO (?:\w+ )?comm \w+ rank \d+ nranks (?!1 )\d+ .*Init COMPLETE",
        "the first collective hangs: the GPUs have found each other and nothing follows (PCIe peer to peer)",
        "NCCL_P2P_DISABLE=1 and --disable-custom-all-reduce; then look at IOMMU and ACS",
        "last",
        variables={"NCCL_P2P_DISABLE": "1"},
        arguments={"disable-custom-all-reduce": True},
        source="nccl#1999, rtx6kpro#15",
    ),
    Signature(
        "gpu-launch",
        r"CUDA (?:runtime )?error: (?:invalid (?:argument|configuration|resource handle)"
        r"|too many resources requested"
        r"|operation would make the legacy stream|operation (?:not permitted"
        r"|failed due to a previous error))",
        "a CUDA call was refused: a kernel made for another card or version, or a defect",
        "the versions that the engine pins; --disable-cuda-graph to see whether capturing is what fails",
    ),
]
