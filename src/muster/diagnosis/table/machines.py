"""Rules about machines: devices, memory, disks, ports, networks and the other ranks."""

from __future__ import annotations

from muster.diagnosis.table.rule import rule

HAND_MADE_MEETING = "hand-made meeting"
"""For ranks that find each other by the script's own means; a single process has no peers."""

LOST_BY_LIBRARY = "collective"
"""Errors of a collectives library; its words alone mean that a peer is lost, or late."""
LOST_PEER = "lost peer"
TOLD = "told by others"

NO_CUDA = "build without CUDA"

NO_GPU = "no GPU here"
"""A script asks for a device that the node does not have. If the node has GPUs, its driver or the build is at fault."""

DEVICES = (
    rule(
        "GPU memory",
        "gpu_oom",
        r"(?:CUDA|HIP|XPU) out of memory|MPS backend out of memory|cupy\.cuda\.memory\.OutOfMemoryError"
        r"|[Cc]uda (?:failure|error)\W{0,3}\d{0,3}\W{0,3}out of memory|cudaMalloc failed: out of memory"
        r"|(?:cuda|hip)Error(?:MemoryAllocation|OutOfMemory)|No available memory for the cache blocks"
        r"|torch\.(?:cuda\.)?OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY"
        r"|CUDA error: out of memory"
        r"|CUBLAS_STATUS_ALLOC_FAILED|RESOURCE_EXHAUSTED: Out of memory|OOM when allocating tensor.{0,300}GPU",
        "gpu-memory gpu-jax-memory",
        "Use a smaller batch, gradient accumulation or activation checkpointing, or a GPU with more memory.",
    ),
    rule(
        "GPU fault",
        "gpu_fault",
        r"NVRM: Xid|\bXid (?:error )?\d+|uncorrectable (?:NVLink|ECC) error|CUDA_ERROR_ECC_UNCORRECTABLE"
        r"|GPU has fallen off the bus|GPU is lost|CUDA error: (?:an illegal memory access|misaligned address"
        r"|unspecified launch failure|an illegal instruction|uncorrectable|hardware|the launch timed out"
        r"|unknown error|device kernel image is invalid)|CUDA_ERROR_(?:ILLEGAL_ADDRESS|LAUNCH_FAILED|UNKNOWN)"
        r"|Memory access fault by GPU|(?:cuda|hip)ErrorIllegalAddress|[Cc]uda failure\W{0,3}\d{0,3}\W{0,3}an illegal",
        "gpu-illegal-address",
    ),
    rule(
        NO_CUDA,
        "environment",
        r"Torch not compiled with CUDA enabled|CUDA driver version is insufficient",
        "python-no-gpu day-torch-device n-torch-device-cuda-asked",
    ),
    rule(
        NO_GPU,
        "exception",
        r"Found no NVIDIA driver|No CUDA GPUs are available|no CUDA-capable device is detected"
        r"|Attempting to deserialize object on a CUDA|Cuda is not available"
        r"|ProcessGroupNCCL is only supported with GPUs|Distributed package doesn't have NCCL",
        "gang-nccl-without-gpu gloo-nccl-without-gpu q-fw-nccl-build-no-gpu-gang q-gang-nccl-no-gpu border-new-group "
        "border-torchrun-nccl torchrun-wrong-count torchrun-gpu-count-without-gpu",
    ),
    rule(
        "build does not fit the GPU",
        "environment",
        r"no kernel image is available for execution|CUDA capability sm_\d+ is not compatible",
        "",
        "The build has no code for this node's GPU: install a build of torch (and of the extension that fails) for its "
        "architecture, or use another GPU.",
    ),
    rule(
        "driver too old",
        "environment",
        r"driver on your system is too old|Driver/library version mismatch|forward compatibility was attempted",
        "",
        "The node's NVIDIA driver does not fit the CUDA of this build: use a build of torch for an older CUDA, or a "
        "node with a newer driver.",
    ),
    rule(
        "GPU taken",
        "exception",
        r"device\(s\) is/are busy or unavailable|all CUDA-capable devices are busy",
        "",
        "Another process has exclusive use of the GPU (its compute mode is exclusive): look at `nvidia-smi` "
        "on the node.",
    ),
    rule(
        "no such GPU",
        "exception",
        r"invalid device ordinal|CUDA_ERROR_INVALID_DEVICE",
        "",
        "The process asks for a GPU that it does not have: choose it by LOCAL_RANK, or ask for as many GPUs as there "
        "are processes on a node.",
    ),
    rule(
        "two ranks on one GPU",
        "exception",
        r"Duplicate GPU detected",
        "gpu-nccl",
        "Two ranks use the same GPU: call `torch.cuda.set_device(int(os.environ['LOCAL_RANK']))` "
        "before `init_process_group`.",
    ),
    rule("NCCL used wrongly", "exception", r"ncclInvalid(?:Usage|Argument)", "gpu-nccl"),
    rule(
        "device-side assert",
        "exception",
        r"device-side assert triggered",
        "gpu-assert",
        "An index is out of range on the GPU (a label or token id, mostly): run once on the CPU, "
        "or with CUDA_LAUNCH_BLOCKING=1.",
    ),
)

MEMORY_AND_DISK = (
    rule(
        "shared memory",
        "shm_too_small",
        r"insufficient shared memory|out of shared memory|[Bb]us error.{0,200}shared memory|killed by signal: Bus error"
        r"|unable to (?:open|allocate) shared|unable to (?:mmap|write).{0,200}</?torch_"
        r"|shm_open.{0,200}(?:No space|failed)"
        r"|creating shared memory segment|No space left on device: '/(?:psm|torch)_|No space left "
        r"on device.{0,200}/dev/shm"
        r"|/dev/shm.{0,200}No space left on device",
        "single-shm-torch",
    ),
    rule(
        "disk full",
        "disk_full",
        r"[Nn]o space left on device|database or disk is full|disk full\?\)|StorageFull"
        r"|Errno 28\b|Errno 122\b|[Dd]isk quota exceeded|PytorchStreamWriter failed writing"
        r"|Wrote only \d+ of \d+ bytes|\d+ requested and \d+ written|file write failed"
        r"|unexpected pos \d+ vs \d+|ENOSPC|kein Speicherplatz"
        r"|Aucun espace "
        r"disponible|No queda espacio"
        r"|デバイスに空き領域がありません|设备上没有空间|Не осталось свободного места|Não há espaço|Spazio esaurito",
        "python-disk gang-disk shell-cp-full shell-german-full torchrun-disk",
    ),
    rule(
        "Java heap",
        "host_oom",
        r"java\.lang\.OutOfMemoryError",
        "java-memory",
        "Give Java more heap with `-Xmx`, or a node with more memory.",
    ),
    rule(
        "Node.js heap",
        "host_oom",
        r"JavaScript heap out of memory",
        "node-heap-out-of-memory",
        "Give Node.js more heap with `NODE_OPTIONS=--max-old-space-size=MEGABYTES`, or a node with more memory.",
    ),
    rule(
        "memory",
        "host_oom",
        r"^(?:\w+\.)*_?(?:Array)?MemoryError\b|Cannot allocate memory|std::bad_alloc"
        r"|DefaultCPUAllocator: (?:can't|not enough)|Unable to allocate .{1,60} for an array"
        r"|ray\.exceptions\.OutOfMemoryError|node running low on memory"
        r"|cannot allocate vector of size|\bOutOfMemoryError\(\)|runtime: out of memory"
        r"|OOM when allocating tensor|oom[-_]kill|Out of memory: Killed process|memory allocation of \d+ bytes failed",
        "python-memory python-array-memory python-tensor-memory cpp-bad-alloc gang-memory mpi-memory",
    ),
)

MEETING = (
    rule(
        "port taken",
        "port_trouble",
        r"EADDRINUSE|[Aa]ddress already in use|Errno 98\b|Only one usage of each socket address",
        "python-port-taken python-store-port-taken gang-fixed-port spawn-fixed-port",
    ),
    rule(
        "no such interface",
        "bad_input",
        r"Unable to find (?:address|interface) for: ?(?P<interface>\S*)|no socket interface found|No interface found"
        r"|[Nn]o network interface|Unable to resolve hostname to a",
        "gang-interface process-2-interface r-gang-interface",
        "The node has no interface {interface}: set GLOO_SOCKET_IFNAME (NCCL_SOCKET_IFNAME) to "
        "one that it has, or leave it out.",
    ),
    rule(
        "address not of this node",
        "port_trouble",
        r"EADDRNOTAVAIL|Cannot assign requested address|Errno 99\b",
        "",
        "MASTER_ADDR is not an address of this node: leave MASTER_ADDR and MASTER_PORT as Muster sets them.",
    ),
    rule(
        "key of the store",
        "collective",
        r"(?:wait timeout after \d+ms|[Tt]imeout waiting for key), keys: "
        r"(?!\S{0,120}(?://(?:cpu|cuda)//|store_based_barrier|worker_count|torchelastic|/rdzv|/init))(?P<key>\S+)",
        "n-store-key-never-set wide-store",
        victim=True,
    ),
    rule(
        "rendezvous",
        "rendezvous",
        r"Timed out initializing process group|Rendezvous\w*Error"
        r"|[Tt]imed out after \d+ seconds waiting for clients|(?<!\d)\d+/\d+ clients joined"
        r"|client socket has (?:failed to connect|timed out)|failed to connect/validate to host"
        r"|TCPStore.{0,80}timed out|DistStoreError|wait timeout after \d+ms|connectFullMesh failed"
        r"|Gloo connect\w* failed|Timed out waiting for .{1,80} to join|Barrier timed out.{0,200}register"
        r"|(?:RegisterTask|coordination service).{0,200}(?:DEADLINE_EXCEEDED|timed out)|rendezvous .{0,60}timed out"
        r"|RPC: /\S{0,60}CoordinationService/RegisterTask",
        "gang-late gang-wrong-world-size gang-fixed-address gang-store-wait process-2-never-joins",
        victim=True,
    ),
    rule(
        HAND_MADE_MEETING,
        "rendezvous",
        r"(?i)\b\d+ ?(?:of|/|out of) ?\d+ (?:\w+ )?(?:registered|joined|connected|checked in|reported in|showed up)\b"
        r"|\b(?:rendez-?vous|registration)\b.{0,60}\b\d+ ?(?:of|/|out of) ?\d+\b"
        r"|\b(?:ranks?|workers?|peers?|nodes?|hosts?|clients?|members?|trainers?|actors?|process(?:es)?|others?|everybody"
        r"|everyone|all|who|\d+)\b.{0,60}\b(?:never|not) "
        r"(?:joined|registered|connected|checked in|show(?:ed)? up|join|register|check in)\b"
        r"|\b(?:never|not) (?:joined|checked in|showed up)\b"
        r"|\bwaiting for .{1,60} to (?:join|register|connect|check in|come up)\b"
        r"|\b(?:no|cannot (?:reach|find)|could not (?:reach|find|connect to)|couldn't (?:reach|find)) (?:the |a )?"
        r"(?:coordinator|master|leader|rank 0|head node|rendezvous)\b",
        "file-rendezvous-late-node wrong-port-on-one-node",
        victim=True,
    ),
)

PEERS = (
    rule(
        "left MPI early",
        "collective",
        r"exited without calling \"?(?:MPI_F|f)inalize",
        "mpi-leaves-without-finalize",
        "A rank left while the others still needed it: let all ranks reach MPI_Finalize, without "
        "`os._exit` or `exit` before.",
        "said",
    ),
    rule(
        LOST_BY_LIBRARY,
        "collective",
        r"Connection (?:closed|reset|refused) by (?:remote )?peer \[|Connection reset by peer. "
        r"This is typically|remote process exited|ncclRemoteError"
        r"|ncclSystemError|NCCL (?:error|communicator).{0,300}(?:remote|abort|system)|Timed out waiting \d+ms"
        r"|[Aa]pplication timeout caused pair closure|gloo/transport|DistNetworkError|DistBackendError|recvValue failed"
        r"|sendBytes failed|failed to recv|HorovodInternalError|[Cc]ollective ops? (?:is|was) aborted"
        r"|Watchdog caught collective operation timeout|monitoredBarrier|MPI_ERR_PROC_FAILED|\bSocket closed$"
        r"|An error occurred in Socket closed|Connection closed by peer|JAX distributed service detected fatal errors",
        "gang-hangs gang-misses-barrier gang-leaves-early process-2-hangs torchrun-hangs",
        victim=True,
    ),
    rule(
        "collectives differ",
        "collective",
        r"Detected mismatch between collectives|[Mm]ismatched (?:[A-Za-z]+ )?(?:tensor shapes|data types"
        r"|(?:root|MPI) \w+|[A-Z]{4,20} )|Collectives? (?:calls )?differ\b",
        "n-debug-detail-fingerprint n-torchrun-order-of-collectives blame-fingerprint",
        victim=True,
    ),
    rule(
        "lock held",
        "exception",
        r"\bdatabase (?:table )?is locked|[Ll]ock wait timeout|[Ll]ock\b.{0,200} could not be acquired"
        r"|deadlock detected|LockTimeout|LockError\b"
        r"|(?:[Cc]ould not|[Cc]annot|[Uu]nable to|[Ff]ailed to) (?:acquire|obtain|get|take|lock)\b"
        r".{0,60}(?:lock\b|\bfile)",
        "n-sqlite-writer-holds-lock blame-lock-held",
        victim=True,
    ),
    rule(
        LOST_PEER,
        "exception",
        r"^(?:[\w.]*\.)?(?:ConnectionResetError|ConnectionAbortedError|BrokenPipeError"
        r"|ConnectionRefusedError|ConnectionError|EOFError|BrokenBarrierError"
        r"|IncompleteRead(?:Error)?|RemoteDisconnected|ServerDisconnectedError|ClientConnector\w*Error|ReadTimeout\w*"
        r"|ConnectTimeout\w*|NewConnectionError|RemoteProtocolError|ConnectionClosed\w*|_InactiveRpcError|_MultiThreadedRendezvous|RpcError|AioRpcError)\b"
        r"|StatusCode\.UNAVAILABLE|UnavailableError|AbortedError"
        r"|[Ll]ost (?:a |the |connection to (?:a |the )?)?(?:peer|worker|rank|server)|[Pp]eer "
        r"(?:is )?(?:gone|vanished|left|disconnected)"
        r"|[Ss]ocket (?:was )?closed|[Bb]roken pipe|[Cc]onnection (?:was )?(?:lost|closed|reset|refused|aborted)"
        r"|\b(?:ECONNREFUSED|ECONNRESET|EPIPE)\b|struct\.error: unpack requires|Ran out of input|[Ss]hort read"
        r"|^(?:[\w.]*\.)?(?:TimeoutError|timeout)(?:: (?!sending signal )|$)|zmq\.error\.Again|DEADLINE_EXCEEDED"
        r"|HTTP Error 50[234]\b|\b50[234] (?:Server Error|Gateway|Service|Bad Gateway)",
        "gang-tcp-peer gang-tcp-refused gang-grpc gang-victims-first r-own-asyncio-wait-for-peer r-own-grpc-deadline",
        victim=True,
    ),
    rule(
        "waits for others",
        "exception",
        r"(?i)^(?:_?queue\.)?Empty\b|^Timeout \(\d+:\d\d:\d\d\)!"
        r"|time(?:d[ -]?)?[ -]?out.{0,20} waiting for (?:the )?(?:peer|rank|worker|other"
        r"|barrier|all\b|everyone)|waiting for (?:the )?(?:other|rank \d|worker \d|peer)"
        r"|\b(?:heartbeat|reply|answer|response|message|data)s? from (?:rank|worker|peer|process) "
        r"?\d|not all (?:ranks|workers|processes)"
        r"|(?:rank|worker|peer|trainer|node) \d+ (?:is not responding|(?:did|has|does) not (?:respond|answer|repl)"
        r"|went silent|is gone|vanished|stopped (?:respond|answer|send)|missed (?:\d+|its|a|the|several) ?heartbeat"
        r"|timed out|is (?:dead|unresponsive|unreachable|silent))"
        r"|\b(?:not|no|never|only|missing|waiting|waited)\b.{0,80}\b(?:rank|worker|peer|member|trainer)s?\b.{0,40}"
        r"\b(?:within|after|for|in) \d+(?:\.\d+)? ?(?:ms|s|sec\w*|min\w*)\b"
        r"|\b(?:rank|worker|peer|member|trainer)s?\b.{0,60}\b(?:not|no|never|only|missing)\b.{0,60}"
        r"\b(?:within|after|for|in) \d+(?:\.\d+)? ?(?:ms|s|sec\w*|min\w*)\b"
        r"|\b\d+ ?(?:of|/|out of) ?\d+ (?:\w+ )?(?:arrived|came|reached|answered|responded|replied|reported)\b"
        r"|\b(?:only|just|got) \d+ (?:of|/|out of) \d+ (?:ranks|workers|peers|nodes|processes|clients|members)\b"
        r"|\bonly (?:rank|worker|peer|process(?:es)?)s? ?[\[({]?\d|\bgave up waiting\b"
        r"|\bnever (?:came|arrived|reported|joined|sent|answered|showed up|registered|checked in)\b"
        r"|\bnot (?:written|sent|created|published|delivered) by (?:rank|worker|peer)"
        r"|\bstill waiting for\b.{0,40}\b(?:rank|worker|peer)",
        "peers-heartbeat peers-unix-files-late file-rendezvous-late-node same-error-seven-of-eight "
        "watchdog-in-every-rank wide-manager values-step-not-reached",
        victim=True,
    ),
    rule(
        TOLD,
        "exception",
        r"(?i)\b(?:an)?other (?:rank|worker|process|node)s?\b.{0,40}(?:fail|error|abort|rais"
        r"|crash)|\b(?:one of the|any of the) (?:ranks|workers|processes|others)\b"
        r"|\bat least one (?:rank|worker|process|node)\b"
        r"|\b(?:some|a) (?:other )?(?:rank|worker|process)(?:s|es)? (?:has |have )?(?:failed|raised|hit|reported)"
        r"|\branks? ?(?:\(s\))? ?\[?\d[\d, ]{0,60}\]? (?:failed|raised|reported|crashed|aborted|hit|had)"
        r"|\b(?:fail\w*|errors?|exceptions?|raised) (?:on|in|at|from|by) (?:rank|worker)|\bpeers? "
        r"failed|\berror flag|remote (?:rank|worker) (?:failed|raised)",
        "gang-error values-torchrun-flag",
        victim=True,
    ),
)
