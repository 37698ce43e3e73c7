"""What lines mean: the table of rules. The first rule that fits decides, so the narrow ones stand above the wide ones.

A rule looks at single lines (an exception's, or the last that a program printed), each cut to a bounded length, and none of
its patterns repeats a repetition: no line costs more than its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

Where = Literal["raised", "said", "both"]


@dataclass(frozen=True)
class Rule:
    """One kind of complaint."""

    name: str
    code: str
    """The verdict."""
    pattern: re.Pattern[str]
    cases: tuple[str, ...]
    """Recorded failures (tests/verdicts) that it is for, by the beginnings of their names."""
    next: str = ""
    """What to do; `{name}` stands for what a group of the pattern found."""
    where: Where = "both"
    """In an exception's lines, in the last lines of a program that raised none, or in both."""
    victim: bool = False
    """It complains of another rank."""


@dataclass(frozen=True)
class Finding:
    """A rule that fits a line."""

    rule: Rule
    line: str
    groups: dict[str, str]

    @property
    def next(self) -> str:
        return self.rule.next.format_map(self.groups)


def find(lines: Iterable[str], where: Where) -> Finding | None:
    """The first rule of the table that fits one of the lines."""
    seen = list(lines)
    for rule in RULES:
        if rule.where not in ("both", where):
            continue
        for line in seen:
            if match := rule.pattern.search(line):
                return Finding(rule, line, {name: text or "" for name, text in match.groupdict().items()})
    return None


def _rule(
    name: str, code: str, pattern: str, cases: str, next: str = "", where: Where = "both", victim: bool = False
) -> Rule:
    return Rule(name, code, re.compile(pattern), tuple(cases.split()), next, where, victim)


def _rows() -> Iterator[Rule]:
    yield from _DEVICES
    yield from _MEMORY_AND_DISK
    yield from _LOADERS
    yield from _MEETING
    yield from _ENVIRONMENT
    yield from _DATA
    yield from _PEERS
    yield from _SCRIPT


_DEVICES = (
    _rule(
        "GPU memory", "gpu_oom",
        r"(?:CUDA|HIP) out of memory|torch\.(?:cuda\.)?OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY|CUDA error: out of memory"
        r"|CUBLAS_STATUS_ALLOC_FAILED|RESOURCE_EXHAUSTED: Out of memory|OOM when allocating tensor.{0,300}GPU",
        "gpu-memory gpu-jax-memory",
        "Use a smaller batch, gradient accumulation or activation checkpointing, or a GPU with more memory.",
    ),
    _rule(
        "GPU fault", "gpu_fault",
        r"NVRM: Xid|\bXid (?:error )?\d+|uncorrectable (?:NVLink|ECC) error|CUDA_ERROR_ECC_UNCORRECTABLE"
        r"|GPU has fallen off the bus|GPU is lost|CUDA error: (?:an illegal memory access|misaligned address"
        r"|unspecified launch failure|an illegal instruction|uncorrectable|hardware|the launch timed out"
        r"|unknown error|device kernel image is invalid)|CUDA_ERROR_(?:ILLEGAL_ADDRESS|LAUNCH_FAILED|UNKNOWN)",
        "gpu-illegal-address",
    ),
    _rule(
        "no GPU here", "environment",
        r"Found no NVIDIA driver|Torch not compiled with CUDA enabled|No CUDA GPUs are available"
        r"|no CUDA-capable device is detected|CUDA driver version is insufficient|Attempting to deserialize object on a CUDA"
        r"|ProcessGroupNCCL is only supported with GPUs|Distributed package doesn't have NCCL|Cuda is not available",
        "python-no-gpu gang-nccl-without-gpu torchrun-wrong-count",
    ),
    _rule("two ranks on one GPU", "exception", r"Duplicate GPU detected", "gpu-nccl",
          "Two ranks use the same GPU: call `torch.cuda.set_device(int(os.environ['LOCAL_RANK']))` before `init_process_group`."),
    _rule("NCCL used wrongly", "exception", r"ncclInvalid(?:Usage|Argument)", "gpu-nccl"),
    _rule("device-side assert", "exception", r"device-side assert triggered", "gpu-assert",
          "An index is out of range on the GPU (a label or token id, mostly): run once on the CPU, or with CUDA_LAUNCH_BLOCKING=1."),
)  # fmt: skip

_MEMORY_AND_DISK = (
    _rule(
        "shared memory", "shm_too_small",
        r"insufficient shared memory|out of shared memory|[Bb]us error.{0,200}shared memory|killed by signal: Bus error"
        r"|unable to (?:open|allocate) shared|unable to (?:mmap|write).{0,200}</?torch_|shm_open.{0,200}(?:No space|failed)"
        r"|creating shared memory segment|No space left on device: '/(?:psm|torch)_|No space left on device.{0,200}/dev/shm"
        r"|/dev/shm.{0,200}No space left on device",
        "single-shm-torch",
    ),
    _rule("disk full", "disk_full",
          r"No space left on device|Errno 28\b|Errno 122\b|[Dd]isk quota exceeded|PytorchStreamWriter failed writing"
          r"|file write failed|unexpected pos \d+ vs \d+|ENOSPC|kein Speicherplatz|Aucun espace disponible|No queda espacio"
          r"|デバイスに空き領域がありません|设备上没有空间|Не осталось свободного места|Não há espaço|Spazio esaurito",
          "python-disk gang-disk shell-cp-full shell-german-full torchrun-disk"),
    _rule("Java heap", "host_oom", r"java\.lang\.OutOfMemoryError", "java-memory", "Give Java more heap with `-Xmx`, or a node with more memory."),
    _rule(
        "memory", "host_oom",
        r"^(?:\w+\.)*_?(?:Array)?MemoryError\b|Cannot allocate memory|std::bad_alloc|std::length_error"
        r"|DefaultCPUAllocator: (?:can't|not enough)|Unable to allocate .{1,60} for an array"
        r"|OOM when allocating tensor|oom[-_]kill|Out of memory: Killed process|memory allocation of \d+ bytes failed",
        "python-memory python-array-memory python-tensor-memory cpp-bad-alloc gang-memory mpi-memory",
    ),
)  # fmt: skip

_LOADERS = (
    _rule("loader worker killed", "host_oom", r"DataLoader worker \(pid\D{0,6}\d+\) is killed by signal: Killed", "python-loader-worker-killed",
          "The kernel ends data-loader workers where memory runs out: use fewer `num_workers`, or a node with more memory."),
    _rule("loader worker crashed", "signal", r"DataLoader worker \(pid\D{0,6}\d+\) is killed by signal: (?P<signal>[^.]+)", "python-loader-worker-segv",
          "A data-loader worker crashed in native code: `num_workers=0` shows where, with `python -X faulthandler`."),
    _rule("segmentation fault in a worker", "signal", r"ERROR: Unexpected (?P<what>segmentation fault|bus error|floating-point exception)", "python-loader-worker-segv",
          "A data-loader worker crashed in native code: `num_workers=0` shows where, with `python -X faulthandler`."),
    _rule("child crashed", "signal", r"ProcessExitedException: process \d+ terminated with signal SIG(?:SEGV|BUS|FPE|ILL|ABRT)", "spawn-segv",
          "The child process crashed in native code: run it under `python -X faulthandler`, or look for a core file."),
    _rule("child killed", "signal", r"ProcessExitedException: process \d+ terminated with signal SIGKILL", "",
          "Something ended the child process from outside; where memory ran out, use fewer or smaller processes."),
    _rule("no main guard", "exception", r"context has already been set|An attempt has been made to start a new process before", "python-loader-no-main-guard",
          'Put what starts the work under `if __name__ == "__main__":`: started processes import the script again.'),
    _rule("cannot be pickled", "exception", r"Can't (?:pickle|get) (?:local object |attribute )?(?P<what>\S{1,80})", "python-lambda-pickled",
          "What is handed to another process has to be picklable: define {what} at module level instead of as a lambda or inside a function.", "raised"),
    _rule("CUDA after fork", "exception", r"Cannot re-initialize CUDA in forked subprocess", "",
          'Start workers with `multiprocessing_context="spawn"`, and do not touch CUDA before.'),
    _rule("loader timed out", "exception", r"DataLoader timed out after \d+ seconds", "python-loader-timeout",
          "A worker of the data loader took longer than `timeout=`: `num_workers=0` shows on which sample."),
    _rule("loader worker left", "exception", r"DataLoader worker \(pid\D{0,6}[\d, ]+\) exited unexpectedly", "python-loader-exit",
          "A data-loader worker ended without a word: `num_workers=0` shows where.", "raised"),
    _rule("too many open files", "exception", r"Too many open files|received 0 items of ancdata", "python-too-many-files",
          "Raise the limit of open files (`ulimit -n`) in the command, close files, or `torch.multiprocessing.set_sharing_strategy('file_system')`."),
)  # fmt: skip

_MEETING = (
    _rule(
        "port taken", "port_trouble",
        r"EADDRINUSE|[Aa]ddress already in use|Errno 98\b|Only one usage of each socket address",
        "python-port-taken python-store-port-taken gang-fixed-port spawn-fixed-port",
    ),
    _rule("no such interface", "port_trouble",
          r"Unable to find (?:address|interface) for: ?(?P<interface>\S*)|no socket interface found|No interface found"
          r"|[Nn]o network interface|Unable to resolve hostname to a", "gang-interface process-2-interface",
          "The node has no interface {interface}: set GLOO_SOCKET_IFNAME (NCCL_SOCKET_IFNAME) to one that it has, or leave it out."),
    _rule("address not of this node", "port_trouble", r"EADDRNOTAVAIL|Cannot assign requested address|Errno 99\b", "",
          "MASTER_ADDR is not an address of this node: leave MASTER_ADDR and MASTER_PORT as Muster sets them."),
    _rule(
        "rendezvous", "rendezvous",
        r"Rendezvous\w*Error|[Tt]imed out after \d+ seconds waiting for clients|(?<!\d)\d+/\d+ clients joined"
        r"|client socket has (?:failed to connect|timed out)|failed to connect/validate to host"
        r"|TCPStore.{0,80}timed out|DistStoreError|wait timeout after \d+ms|connectFullMesh failed"
        r"|Gloo connect\w* failed|Timed out waiting for .{1,80} to join|Barrier timed out.{0,200}register"
        r"|(?:RegisterTask|coordination service).{0,200}(?:DEADLINE_EXCEEDED|timed out)|rendezvous .{0,60}timed out",
        "gang-late gang-wrong-world-size gang-fixed-address gang-store-wait process-2-never-joins", victim=True,
    ),
)  # fmt: skip

_ENVIRONMENT = (
    _rule("circular import", "exception", r"partially initialized module '(?P<module>[\w.]+)'.{0,60}circular import", "python-circular",
          "`{module}` and a module that it imports import each other: move what both need into a third, or import inside the function.", "raised"),
    _rule("module missing", "environment", r"No module named '?(?P<module>[\w.]+)'?", "python-module gang-module-on-all torchrun-module mpirun-module"),
    _rule("numpy's version", "environment", r"numpy\.core\.multiarray failed to import|numpy\.dtype size changed|_ARRAY_API not found|compiled using NumPy 1",
          "python-numpy-abi", "A package was built for another NumPy: `pip: [\"numpy<2\"]` in `environment`, or a newer build of that package."),
    _rule("name missing", "environment", r"^ImportError: cannot import name '(?P<name>\w+)' from '(?P<module>[\w.]+)'", "python-name-missing gang-tcp-refused",
          "`{module}` has no `{name}`: check the spelling, or the version of the package that has it."),
    _rule("library missing", "environment", r"(?<![\w.+-])(?P<library>[\w.+-]+\.so[\w.]*): cannot open shared object file|Could not load library (?P<other>\S+)", "python-library-missing cpp-library-missing",
          "`{library}{other}` is not on the node: use an image or environment that has it, or name its folder in LD_LIBRARY_PATH."),
    _rule("system library too old", "environment", r"version `(?P<version>GLIBC\w*_[\d.]+)' not found", "",
          "The package was built for a newer system ({version}): use an older build of it, or an image with a newer system."),
    _rule("binary does not fit", "environment", r"undefined symbol: (?P<symbol>\S+)", "",
          "An extension was built against another version of a library: install builds that belong together (torch and its extensions)."),
    _rule("relative import", "environment", r"attempted relative import with no known parent package", "tool-relative-import",
          "Start it as a module of its package (`python -m package.module`), or import without the dot.", "raised"),
    _rule("import", "environment", r"^ImportError: ", "python-numpy-abi", where="raised"),
    _rule("Java class missing", "environment", r"(?:Could not find or load main class|ClassNotFoundException:) (?P<what>\S+)", "java-no-class",
          "Java finds no class {what}: check its name and the class path (`-cp`)."),
    _rule("mpirun's program", "launcher_missing", r"^Executable: (?P<program>\S+)", "mpirun-no-program",
          "mpirun finds no program `{program}`: check its spelling, or use an environment that has it.", "said"),
    _rule("mpirun finds no program", "launcher_missing", r"could not find an executable|unable to find the specified executable", "mpirun-no-program",
          "mpirun does not find the program that it is to start: check its spelling, or use an environment that has it.", "said"),
    _rule("mpirun has too few slots", "bad_input", r"not enough slots available in the system", "mpirun-too-many-slots",
          "Ask for fewer processes (`-n`), or give mpirun `--oversubscribe`.", "said"),
)  # fmt: skip

_DATA = (
    _rule(
        "data", "data_unavailable",
        r"Errno (?:5|107|116|121)\b|Stale file handle|Transport endpoint is not connected"
        r"|^(?:FileNotFoundError|PermissionError|NotADirectoryError): .{0,500}/inputs/"
        r"|azure\.core\.exceptions\.\w+|NoSuchBucket|NoSuchKey|AuthenticationFailed|DataLossError|NOT_FOUND: .{0,300}; No such file",
        "single-missing-data",
    ),
    _rule("model hub", "data_unavailable", r"(?:couldn't connect to|Max retries exceeded.{0,80}host=)\W*(?:https://)?(?P<host>huggingface\.co)|LocalEntryNotFoundError", "python-huggingface-offline",
          "The node does not reach huggingface.co: download the model beforehand and set HF_HOME and HF_HUB_OFFLINE=1."),
)  # fmt: skip

_PEERS = (
    _rule(
        "collective", "collective",
        r"Connection (?:closed|reset|refused) by (?:remote )?peer \[|Connection reset by peer. This is typically|remote process exited|ncclRemoteError"
        r"|ncclSystemError|NCCL (?:error|communicator).{0,300}(?:remote|abort|system)|Timed out waiting \d+ms"
        r"|[Aa]pplication timeout caused pair closure|gloo/transport|DistNetworkError|DistBackendError|recvValue failed"
        r"|sendBytes failed|failed to recv|HorovodInternalError|[Cc]ollective ops? (?:is|was) aborted"
        r"|Watchdog caught collective operation timeout|monitoredBarrier|MPI_ERR_PROC_FAILED|\bSocket closed$"
        r"|An error occurred in Socket closed|Connection closed by peer",
        "gang-hangs gang-misses-barrier gang-leaves-early process-2-hangs torchrun-hangs", victim=True,
    ),
    _rule("lost peer", "exception",
          r"^(?:[\w.]*\.)?(?:ConnectionResetError|ConnectionAbortedError|BrokenPipeError|ConnectionRefusedError|ConnectionError|EOFError"
          r"|IncompleteReadError|_InactiveRpcError|_MultiThreadedRendezvous|RpcError|AioRpcError)\b|StatusCode\.UNAVAILABLE|UnavailableError|AbortedError"
          r"|[Ll]ost (?:a |the |connection to (?:a |the )?)?(?:peer|worker|rank|server)|[Pp]eer (?:is )?(?:gone|vanished|left|disconnected)"
          r"|[Ss]ocket (?:was )?closed|[Bb]roken pipe|[Cc]onnection (?:was )?(?:lost|closed|reset|refused|aborted)"
          r"|struct\.error: unpack requires|Ran out of input|[Ss]hort read|^(?:[\w.]*\.)?(?:TimeoutError|timeout): |zmq\.error\.Again|DEADLINE_EXCEEDED",
          "gang-tcp-peer gang-tcp-refused gang-grpc gang-victims-first", victim=True),
    _rule("waits for others", "exception",
          r"(?i)time(?:d[ -]?)?[ -]?out.{0,20} waiting for (?:the )?(?:peer|rank|worker|other|barrier|all\b|everyone)|waiting for (?:the )?(?:other|rank \d|worker \d|peer)"
          r"|\b(?:heartbeat|reply|answer|response|message|data)s? from (?:rank|worker|peer|process) ?\d|not all (?:ranks|workers|processes)"
          r"|(?:rank|worker|peer) \d+ (?:is not responding|did not (?:respond|answer|reply)|went silent|is gone|vanished)",
          "gang-silent-peer", victim=True),
    _rule("told by others", "exception",
          r"(?i)\b(?:an)?other (?:rank|worker|process|node)s?\b.{0,40}(?:fail|error|abort|rais|crash)|\bone of the (?:ranks|workers|processes|others)\b"
          r"|\b(?:some|a) (?:other )?(?:rank|worker|process)(?:s|es)? (?:has |have )?(?:failed|raised|hit|reported)"
          r"|\branks? ?(?:\(s\))? ?\[?\d[\d, ]{0,60}\]? (?:failed|raised|reported|crashed|aborted|hit|had)"
          r"|\b(?:fail\w*|errors?|exceptions?|raised) (?:on|in|at|from|by) (?:rank|worker)|\bpeers? failed|\berror flag|remote (?:rank|worker) (?:failed|raised)",
          "gang-error", victim=True),
)  # fmt: skip

_SCRIPT = (
    _rule("unused parameters", "exception", r"Expected to have finished reduction in the prior iteration", "gang-ddp-unused",
          "Some parameters got no gradient: `find_unused_parameters=True` in DistributedDataParallel, or let every parameter take part in the loss."),
    _rule("models differ", "exception", r"DDP expects same model across all ranks|params? .{0,60}in this process", "gang-ddp-differs",
          "The ranks built models of different shapes: nothing in the model may depend on the rank."),
    _rule("group not made", "exception", r"Default process group has not been initialized", "gang-not-initialised",
          "Call `torch.distributed.init_process_group()` first, in every process."),
    _rule("weights only", "exception", r"Weights only load failed", "python-weights-only",
          "The file holds more than tensors: `torch.load(…, weights_only=False)` if you trust it, or `torch.serialization.add_safe_globals`."),
    _rule("checkpoint damaged", "exception", r"PytorchStreamReader failed|failed finding central directory|BadZipFile|unexpected EOF, expected \d+ more bytes", "python-checkpoint-truncated",
          "The checkpoint is truncated or damaged: it was still being written, or the disk was full. Load an earlier one."),
    _rule("wrapped checkpoint", "exception", r"Error\(s\) in loading state_dict", "python-state-dict python-long-message",
          "The checkpoint's names differ from the model's: a prefix such as `module.` from DataParallel, or another architecture (`strict=False` shows what fits)."),
    _rule("shapes", "exception", r"mat1 and mat2 shapes cannot be multiplied \((?P<shapes>[\dx a-z]+)\)|size mismatch|The size of tensor a", "python-shapes"),
    _rule("index in embedding", "exception", r"index out of range in self", "python-embedding-range",
          "An index is at least as large as `num_embeddings`: the vocabulary and the embedding have different sizes."),
    _rule("removed from numpy", "exception", r"module 'numpy' has no attribute '(?P<name>\w+)'", "python-attribute-version",
          "`np.{name}` is gone from this NumPy: use the plain type, or `pip: [\"numpy<1.24\"]` in `environment`."),
    _rule("diverged", "exception", r"(?i)\b(?:loss|gradient|grad)\b.{0,40}\b(?:nan|inf)\b", "python-own-exception gang-raises gang-error-flag-traceback", where="raised"),
)  # fmt: skip

RULES: tuple[Rule, ...] = tuple(_rows())
"""Every rule, in the order in which they are tried."""
