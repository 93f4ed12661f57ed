"""The host: memory, disks, limits, libraries, compilers, permissions; and the network."""

from __future__ import annotations

from fleetctl.doctor.signatures.signature import Signature

SYS = [
    Signature(
        "sys-out-of-memory",
        r"Out of memory: Killed process|killed by the OOM killer|result 'oom-kill'|oom-kill:"
        r"|Memory cgroup out of memory|OOMKilled|OOM Killed|oom_kill event"
        r"|oom_reaper: reaped process|invoked oom-killer|killed by (?:the )?(?:kernel )?OOM"
        r"|due to memory pressure|OutOfMemoryError: Task was killed|ray_oom|Ray killed this worker",
        "the kernel's out-of-memory killer ended a process: host memory, not the GPU's",
        "more host memory or less of it in use (parallel weight loading, copies in /dev/shm)",
        verdict="fatal",
        source="sglang#18421, PR 20287",
        also=(r"(?:terminated with signal 9|fatal error: Killed signal terminated)"),
    ),
    Signature(
        "sys-memory",
        r"Cannot allocate memory|std::bad_alloc|^MemoryError|DefaultCPUAllocator: (?:can't|not enough)"
        r"|\[Errno 12\]|cudaHostAlloc|pinned memory .*(?:fail|exceed)|unable to mmap|mmap .*failed",
        "the host's memory does not suffice (or may not be taken)",
        "less in use at once: fewer parallel loaders, no CPU offload, less in /dev/shm; MemoryMax and "
        "overcommit",
    ),
    Signature(
        "sys-libnuma",
        r"libnuma\.so\.1: cannot open shared object file",
        "the system library libnuma is missing",
        "apt-get install libnuma1",
        verdict="fatal",
        commands=("apt-get install libnuma1",),
        source="odysseus#6257",
    ),
    Signature(
        "sys-library",
        r"(?:lib(?:ibverbs|rdmacm|mlx5|gomp|GL|glib-2\.0|SM|Xext|mpi|stdc\+\+|gcc_s|ssl|crypto|openblas"
        r"|tbb|jemalloc"
        r"|tcmalloc)\S*)\.so[.\d]*: cannot open shared object file",
        "a system library is missing",
        "install the distribution's package that brings it",
    ),
    Signature(
        "sys-nccl-shm",
        r"NCCL WARN Error: failed to extend /dev/shm/nccl|NCCL WARN .*(?:/dev/shm|shared memory segment)",
        "NCCL finds too little room in /dev/shm",
        "a larger /dev/shm (--shm-size, --ipc=host), or free what lies there",
    ),
    Signature(
        "sys-shm-full",
        r"/dev/shm\b.*(?:No space left|Errno 28|Cannot allocate)|No space left on device.*/dev/shm",
        "/dev/shm (shared memory) is full, not a disk",
        "a larger /dev/shm (--shm-size, --ipc=host; a tmpfs mount option on a host), or free what lies there",
        verdict="fatal",
    ),
    Signature(
        "sys-disk-full",
        r"No space left on device|\[Errno 28\]|Disk quota exceeded|\[Errno 122\]|SQLITE_FULL"
        r"|database or disk is full",
        "a disk is full",
        "free some space: caches under ~/.cache and ~/.triton, old environments (`fleetctl env list`)",
        verdict="fatal",
    ),
    Signature(
        "sys-shm",
        r"insufficient shared memory|is killed by signal: Bus error|\(core dumped\).*Bus error|^Bus error"
        r"|signal=BUS"
        r"|unable to (?:open|allocate|resize) shared memory|/dev/shm.*(?:No space|too small|full)"
        r"|shm_open.*failed|could not open file to map|shared memory (?:object|segment|file).{0,40}(?:exist|fail|not)"
        r"|status=7/BUS",
        "/dev/shm is too small or full",
        "a larger /dev/shm (--shm-size, --ipc=host; a tmpfs mount option on a host), or free what lies there",
    ),
    Signature(
        "sys-open-files",
        r"Too many open files|\[Errno 24\]|EMFILE",
        "the process may not open that many files",
        "LimitNOFILE=1048576 in the unit",
    ),
    Signature(
        "sys-threads",
        r"can't start new thread|pthread_create failed|Resource temporarily unavailable|fork: retry|RLIMIT_NPROC"
        r"|OpenBLAS blas_thread_init|libgomp: Thread creation failed",
        "the process may not start that many threads or processes",
        "TasksMax and LimitNPROC in the unit; OMP_NUM_THREADS",
    ),
    Signature(
        "sys-memlock",
        r"ibv_(?:reg_mr|create_\w+).*(?:fail|Cannot)|RLIMIT_MEMLOCK|memlock|max locked memory"
        r"|(?:[Uu]nable|failed) to mlock|mlock.{0,20}failed",
        "the process may not lock enough memory (RDMA, pinned memory)",
        "LimitMEMLOCK=infinity in the unit",
    ),
    Signature(
        "sys-compiler",
        r"Failed to find C compiler|[Cc]ouldn't find a (?:working )?(?:C|C\+\+) compiler|(?:gcc|g\+\+"
        r"|cc1plus|c\+\+|x86_64-linux-gnu-gcc)"
        r"(?:': |: )(?:command )?(?:not found|No such file)|No such file or directory: '(?:gcc|g\+\+|cc"
        r"|c\+\+)'"
        r"|cc1plus.*No such file|error trying to exec 'cc1plus'",
        "there is no C or C++ compiler; kernels are compiled at start",
        "apt-get install build-essential",
        commands=("apt-get install build-essential",),
    ),
    Signature(
        "sys-headers",
        r"fatal error: Python\.h: No such file|fatal error: [\w./+-]+(?:\.h|\.hpp"
        r"|\.cuh)?: No such file or directory"
        r"|include file '[\w./]+' not found",
        "headers are missing where kernels are compiled",
        "the packages with those headers: python3-dev for Python.h, libc6-dev for C's own, the CUDA "
        "toolkit "
        "(or the nvidia-* wheels' include folders) for CUDA's",
        commands=("apt-get install python3-dev build-essential",),
        source="sglang#5389, flashinfer#4410",
    ),
    Signature(
        "sys-linker",
        r"ld: cannot find -l\w+|cannot find -lcuda|cannot find -lcudart|libcuda\.so cannot found"
        r"|libcuda\.so cannot be found",
        "the linker does not find a library that kernels are linked with (libcuda.so, libcudart.so)",
        "LIBRARY_PATH to the toolkit's lib64/stubs, or a link libcuda.so beside the driver's "
        "libcuda.so.1; ldconfig",
    ),
    Signature(
        "sys-nvcc",
        r"(?:nvcc|cuobjdump|nvdisasm|ninja|cicc|ptxas)['\"]?: (?:command )?not found"
        r"|No such file or directory: '\S*(?:nvcc|ninja|ptxas|cuobjdump)'"
        r"|Could not find nvcc|Could not find CUDA lib|CUDA_HOME (?:environment variable )?is not set"
        r"|CUDA_HOME.*does not exist"
        r"|Ninja is required to load C\+\+|Could not find CUDA installation|cuda toolkit .*not found",
        "a tool that compiles kernels (nvcc, ninja) is not found: no CUDA toolkit, or CUDA_HOME points "
        "elsewhere",
        "install the CUDA toolkit and ninja; CUDA_HOME to its folder (one path, no colon), its bin on PATH",
    ),
    Signature(
        "sys-user",
        r"getpwuid\(\): uid not found|no matching entry in (?:the )?passwd|cannot find name for user ID"
        r"|Could not determine home directory|No username set in the environment"
        r"|RuntimeError: Can't determine home|no users found",
        "the service runs as a user that the system does not know (no entry in passwd)",
        "User= of a user that exists; in a container USER, LOGNAME, HOME and TORCHINDUCTOR_CACHE_DIR, or the host's "
        "/etc/passwd mounted",
    ),
    Signature(
        "sys-numa",
        r"numa_\w+.{0,40}(?:fail|not permitted)|sched_setaffinity.{0,60}(?:fail|not permitted|Invalid)"
        r"|numactl: |pthread_setaffinity_np failed",
        "the process may not bind its memory or threads to a NUMA node",
        "--cap-add SYS_NICE for a container; start without NUMA binding; numactl installed",
    ),
    Signature(
        "sys-lock-file",
        r"filelock\S*Timeout|[Ff]ile lock .{0,200}could not be acquired|Still waiting to acquire lock|could not lock"
        r"|[Ll]ock file .{0,80}(?:exists|held)|waiting for (?:file )?lock",
        "a lock file is held by another process, or was left by one that is gone",
        "end the other process; remove the lock file (*.lock under ~/.cache) where none is; caches on a local disk",
    ),
    Signature(
        "sys-encoding",
        r"'ascii' codec can't|UnicodeEncodeError|unsupported locale setting",
        "text is read or written in another encoding than the system's locale allows",
        "LANG=C.UTF-8 and PYTHONUTF8=1 in the unit",
    ),
    Signature(
        "sys-path",
        r"AF_UNIX path too long|\[Errno 36\]|File name too long|dubious ownership in repository"
        r"|[Tt]oo many levels of symbolic links|\[Errno 40\]|Device or resource busy|\[Errno 16\]",
        "the system refuses a path: too long, in a loop, busy, or another user's",
        "a shorter or other folder (TMPDIR, XDG_CACHE_HOME, HF_HOME) on a local disk",
    ),
    Signature(
        "sys-permission",
        r"PermissionError: |\[Errno 13\]|[Pp]ermission denied|\[Errno 1\] Operation not permitted"
        r"|Read-only file system|\[Errno 30\]",
        "the service's user may not read or write a file",
        "owner and mode of the file in that line; ProtectSystem, ReadWritePaths and User in the unit",
    ),
    Signature(
        "sys-io",
        r"\[Errno 5\]|Input/output error|blk_update_request: I/O error|critical medium error"
        r"|EXT4-fs error|XFS .*[Cc]orruption"
        r"|Stale file handle|\[Errno 116\]|nfs: server .* not responding",
        "a disk or a network file system fails",
        "see `journalctl -k`; check the disk (smartctl) or the mount; copy the files elsewhere",
    ),
    Signature(
        "sys-kernel",
        r"soft lockup - CPU|hung_task|blocked for more than \d+ seconds|Kernel panic"
        r"|Machine check events logged|mce: \[Hardware Error\]"
        r"|pcieport .*(?:AER|PCIe Bus Error).*(?:Uncorrect|Fatal)|segfault at [0-9a-f]+ ip",
        "the kernel reports a fault of the machine or of a program",
        "see `journalctl -k` around it; memory and PCIe errors are hardware's",
    ),
]

NET = [
    Signature(
        "net-rendezvous",
        r"DistNetworkError|The (?:client|server) socket has (?:timed out|failed)|DistStoreError|rendezvous"
        r"|Timed out (?:after \d+ seconds waiting for clients|initializing process group)"
        r"|wait timeout after \d+ms|waitForInput: socket|Connection to .*store .*(?:failed|timed out)"
        r"|connectFullMesh|gloo/transport\S+ .*(?:[Cc]onnect|[Tt]imed? ?out|refused|closed)"
        r"|Timed out waiting .*(?:ranks|clients|nodes)"
        r"|\[c10d\] The (?:client|server) socket",
        "the processes of the service do not find each other at start",
        "--dist-init-addr with an address that all hosts reach and a free port; a firewall; "
        "GLOO_SOCKET_IFNAME, "
        "NCCL_SOCKET_IFNAME",
    ),
    Signature(
        "net-init-hang",
        r"Init (?:torch distributed|nccl) begin\.$|Waiting for \S+ workers|Waiting for (?:other|all) (?:nodes"
        r"|ranks|workers)",
        "the log ends where the processes of the service wait for each other",
        "that each of them runs and reaches --dist-init-addr; GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME; "
        "a firewall",
        verdict="last",
    ),
    Signature(
        "net-interface",
        r"Bootstrap : no socket interface found|No interface found in|Unable to find address for: "
        r"|gloo.*(?:unable to|could not) (?:find|resolve)"
        r"|ifa != nullptr|no usable (?:interface|address)",
        "NCCL or gloo finds no network interface (of the name it was told)",
        "NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME: the name that `ip -br addr` shows",
    ),
    Signature(
        "net-rdma",
        r"NET/IB : Got completion .*(?:error|status)|ibv_\w+ failed|transport retry counter exceeded"
        r"|nvshmem.*(?:fail|error)|NVSHMEM ERROR|UCX +ERROR|NIXL_ERR|nixl.*(?:fail|error)|[Mm]ooncake.*(?:fail|error)"
        r"|transfer_engine\S*\] .*(?:[Ff]ail|[Ee]rror|[Nn]o )|[Rr][Dd][Mm][Aa] .{0,40}(?:not found|fail|error)"
        r"|No (?:IB|RDMA|matched|active) (?:device|HCAs)|Failed to (?:register memory|modify QP|open (?:IB|RDMA))"
        r"|NET/IB : .*(?:fail|error|No )"
        r"|mlx5_\w+.*(?:fail|error)",
        "the RDMA network fails",
        "NCCL_IB_DISABLE=1 to see whether it is that; then cables, NCCL_IB_HCA and NCCL_IB_GID_INDEX",
    ),
    Signature(
        "net-ray",
        r"[Cc]ould not find any running Ray|GCS (?:server|at address)|connect to GCS|[Rr]ay does not allocate"
        r"|marked dead because the detector|missed too many heartbeats|raylet.{0,60}(?:died|fail|error|exit)"
        r"|No available node types can fulfill|lacement group.{0,80}(?:time|not|fail)"
        r"|Ray cluster.{0,60}(?:not|fail|insufficient)|Every node should have a unique IP|node IP.{0,40}(?:not|match)"
        r"|ray\.exceptions\.(?:NodeDiedError|RaySystemError|RpcError|GetTimeoutError|LocalRayletDiedError)"
        r"|Failed to (?:start|connect to) Ray",
        "the Ray cluster is not as the engine needs it: a host is not in it, was lost, or shows no free GPUs",
        "`ray status`: every host in it, with its GPUs; the same VLLM_HOST_IP and interface names as the hosts' own; "
        "the ports between them open; the worker's own log in /tmp/ray",
    ),
    Signature(
        "net-remote",
        r"failed to connect to all addresses|StatusCode\.UNAVAILABLE|context deadline exceeded|no such host"
        r"|TLS handshake timeout|i/o timeout|Connect(?:ion)?Timeout|ReadTimeout(?:Error)?|ConnectError: "
        r"|Max retries exceeded"
        r"|NewConnectionError|dial tcp .*|Socket Timeout|ClientConnectorError|connection attempts? failed",
        "another server was not reached in time (a hub, etcd, a registry, a peer)",
        "the address in that line: name, route, firewall, proxy (HTTPS_PROXY, NO_PROXY), and whether it runs",
    ),
    Signature(
        "net-nccl",
        r"NCCL WARN .*(?:socket|Socket|Connect|bootstrap|NET/)|socketStartConnect|socketProgress|ncclSocket"
        r"|bootstrap\w*.{0,40}(?:fail|timed? ?out|error)",
        "NCCL's processes do not reach each other over the network",
        "NCCL_SOCKET_IFNAME: the interface that `ip -br addr` shows and all hosts share; a firewall; NCCL_IB_DISABLE=1 "
        "to see whether it is RDMA",
    ),
    Signature(
        "net-name",
        r"Temporary failure in name resolution|Name or service not known|\[Errno -[23]\]"
        r"|Could not resolve host|getaddrinfo failed"
        r"|NameResolutionError",
        "a host's name cannot be resolved",
        "DNS and /etc/hosts of the host; an address instead of the name; HF_HUB_OFFLINE=1 where it is the "
        "hub's",
    ),
    Signature(
        "net-certificate",
        r"CERTIFICATE_VERIFY_FAILED|SSLError|SSLCertVerificationError|certificate has expired",
        "a TLS certificate is not accepted",
        "the proxy's certificate in the system's store (REQUESTS_CA_BUNDLE, SSL_CERT_FILE); the host's clock",
    ),
    Signature(
        "net-proxy",
        r"ProxyError|Unable to connect to proxy|Cannot connect to proxy|Tunnel connection failed"
        r"|407 Proxy Authentication",
        "a proxy stands between this host and the address, and refuses or is not reached",
        "HTTP_PROXY, HTTPS_PROXY and NO_PROXY in the unit; the proxy's own rules; serve from a folder on the host",
    ),
    Signature(
        "net-unreachable",
        r"No route to host|\[Errno 113\]|Network is unreachable|\[Errno 101\]"
        r"|Cannot assign requested address|\[Errno 99\]"
        r"|Connection timed out|\[Errno 110\]"
        r"",
        "a network address cannot be reached or is not this host's",
        "the address in that line; routes, firewall, proxy; --host with an address of this host",
    ),
    Signature(
        "net-connection-lost",
        r"Connection refused|\[Errno 111\]|Connection reset by peer|\[Errno 104\]|Broken pipe"
        r"|\[Errno 32\]|RemoteDisconnected"
        r"|Connection closed by peer|Connection aborted|EOFError|ServerDisconnectedError|ZMQError"
        r"|TCPStore.*(?:failed|broken)",
        "the other side of a connection is gone",
        "what it was, and why it ended: the first error before that line",
        consequence=True,
    ),
]
