"""Why one process ended: read from its exit and from what it printed last. Pure."""

from __future__ import annotations

import re
import signal as signals
from dataclasses import dataclass

from muster.control.children import without_prefixes
from muster.wire.verdicts import RankEvidence

# How much a cause explains; the smaller number is the earlier cause, whatever the clocks say.
DEFINITE = 0
VAGUE = 1
PASSED_ON = 2
RENDEZVOUS = 3
COLLECTIVE = 4

_WEIGHT = {"exit_code": VAGUE, "rendezvous": RENDEZVOUS, "collective": COLLECTIVE}
# Sent by people and by other managers of processes, seldom by a fault of the program.
_POLITE = (signals.SIGTERM, signals.SIGINT, signals.SIGHUP)
# A program that aborts says why; one that is killed or crashes does not.
_SPEAKING = (signals.SIGABRT, signals.SIGBUS)
_CRASHES = {*_SPEAKING, *_POLITE, signals.SIGSEGV, signals.SIGKILL, signals.SIGILL, signals.SIGFPE, signals.SIGTRAP}

# (code, pattern): the first that matches what a process said last names the cause.
_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "gpu_oom",
        re.compile(
            r"(?:CUDA|HIP) out of memory|torch\.(?:cuda\.)?OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY"
            r"|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED|RESOURCE_EXHAUSTED: Out of memory"
            r"|OOM when allocating tensor.*GPU|ncclUnhandledCudaError.*out of memory"
        ),
    ),
    (
        "gpu_fault",
        re.compile(
            r"NVRM: Xid|\bXid (?:error )?\d+|uncorrectable (?:NVLink|ECC) error|CUDA_ERROR_ECC_UNCORRECTABLE"
            r"|GPU has fallen off the bus|GPU is lost|CUDA error: (?:an illegal memory access|misaligned address"
            r"|unspecified launch failure|an illegal instruction|uncorrectable|hardware|the launch timed out"
            r"|unknown error|device kernel image is invalid)|CUDA_ERROR_(?:ILLEGAL_ADDRESS|LAUNCH_FAILED|UNKNOWN)"
        ),
    ),
    (
        "shm_too_small",
        re.compile(
            r"insufficient shared memory|out of shared memory|[Bb]us error.*shared memory"
            r"|killed by signal: Bus error|unable to (?:open|allocate) shared|unable to (?:mmap|write).*</?torch_"
            r"|shm_open.*(?:No space|failed)|creating shared memory segment|No space left on device: '/(?:psm|torch)_"
            r"|No space left on device.*/dev/shm|/dev/shm.*No space left on device"
        ),
    ),
    (
        "disk_full",
        re.compile(
            r"No space left on device|Errno 28\b|Errno 122\b|[Dd]isk quota exceeded|PytorchStreamWriter failed writing"
            r"|file write failed|unexpected pos \d+ vs \d+|ENOSPC"
        ),
    ),
    (
        "host_oom",
        re.compile(
            r"^(?:\w+\.)*_?(?:Array)?MemoryError\b|Cannot allocate memory|std::bad_alloc"
            r"|DefaultCPUAllocator: (?:can't|not enough)|Unable to allocate .* for an array"
            r"|killed by signal: Killed|OOM when allocating tensor|oom[-_]kill",
            re.M,
        ),
    ),
    (
        "port_trouble",
        re.compile(
            r"EADDRINUSE|[Aa]ddress already in use|Errno 98\b|EADDRNOTAVAIL|Cannot assign requested address|Errno 99\b"
            r"|Unable to find (?:address|interface) for|no socket interface found|No interface found"
            r"|[Nn]o network interface|Unable to resolve hostname to a"
        ),
    ),
    (
        "environment",
        re.compile(
            r"^(?:ModuleNotFoundError|ImportError):|: No module named |cannot open shared object file"
            r"|version `GLIBC\w*_[\d.]+' not found|undefined symbol:|Could not load library"
            r"|CUDA driver version is insufficient|Found no NVIDIA driver|Torch not compiled with CUDA enabled",
            re.M,
        ),
    ),
    (
        "data_unavailable",
        re.compile(
            r"Errno (?:5|107|116|121)\b|Stale file handle|Transport endpoint is not connected"
            r"|^(?:FileNotFoundError|PermissionError|NotADirectoryError): .*/inputs/"
            r"|azure\.core\.exceptions\.\w+|NoSuchBucket|NoSuchKey|AuthenticationFailed"
            r"|DataLossError|NOT_FOUND: .*; No such file",
            re.M,
        ),
    ),
    (
        "rendezvous",
        re.compile(
            r"Rendezvous\w*Error|[Tt]imed out after \d+ seconds waiting for clients|\d+/\d+ clients joined"
            r"|client socket has (?:failed to connect|timed out)|failed to connect/validate to host"
            r"|TCPStore.{0,80}timed out|DistStoreError|wait timeout after \d+ms|connectFullMesh failed"
            r"|Gloo connect\w* failed|Timed out waiting for .* to join|Barrier timed out.*register"
            r"|(?:RegisterTask|coordination service).*(?:DEADLINE_EXCEEDED|timed out)"
        ),
    ),
    # The backend complains about the program and not about a peer.
    ("exception", re.compile(r"ncclInvalid(?:Usage|Argument)|Duplicate GPU detected")),
    (
        "collective",
        re.compile(
            r"Connection (?:closed|reset|refused) by (?:remote )?peer|Connection reset by peer|[Bb]roken pipe"
            r"|remote process exited|ncclRemoteError|ncclSystemError"
            r"|NCCL (?:error|communicator).*(?:remote|abort|system)"
            r"|Timed out waiting \d+ms|[Aa]pplication timeout caused pair closure|gloo/transport|Socket closed"
            r"|DistNetworkError|DistBackendError|recvValue failed|sendBytes failed|failed to recv|HorovodInternalError"
            r"|UnavailableError|[Cc]ollective ops? (?:is|was) aborted|Watchdog caught collective operation timeout"
            r"|monitoredBarrier|AbortedError|ConnectionResetError|MPI_ERR_PROC_FAILED"
        ),
    ),
)
_BAD_ARGUMENTS = re.compile(
    r"^\S+: error: |^Error: (?:No such option|Missing|Invalid value|Got unexpected)|^\S*python\S*: can't open file",
    re.M,
)
_NOT_FOUND = re.compile(r"(?:command not found|: not found|No such file or directory)\s*$", re.M)
_NOT_ALLOWED = re.compile(r"(?:Permission denied|cannot execute|Exec format error|Is a directory)", re.M)
_HEAD = re.compile(r"^Traceback \(most recent call last\):", re.M)
# Told without a traceback: nothing had been called yet.
_SYNTAX = re.compile(r'^  File ".*", line \d+\n(?:.*\n){0,3}(?:SyntaxError|IndentationError|TabError): ', re.M)
_CHAINED = re.compile(
    r"^(?:The above exception was the direct cause of|During handling of the above exception, another)", re.M
)
# The daemon itself died, or the network to its node failed; mpirun's exit code says neither.
_LOST_DAEMON = re.compile(
    r"(?:ORTE|PRTE) has lost communication with a remote daemon[^-]{0,300}?Remote daemon\s*: \S+ on node (\S+)"
)
_STOPPED = re.compile(r"SignalException|^(?:KeyboardInterrupt|SystemExit)\b", re.M)
_LAST_WORDS = 4000
_MAX_LINES = 30


@dataclass(frozen=True)
class Cause:
    """Why one process ended."""

    code: str
    rank: RankEvidence
    signal: int | None = None
    headline: str = ""
    """The line that says it best."""
    lines: tuple[str, ...] = ()
    """The traceback, or the last lines."""
    weight: int = DEFINITE

    @property
    def order(self) -> tuple[int, bool, float, int]:
        """The first cause has the smallest; a launcher passes on what its ranks did."""
        return (self.weight, self.rank.role == "launcher", self.rank.ended_at or 0.0, self.rank.rank)


def cause_of(rank: RankEvidence) -> Cause:
    """Why a rank that failed did so."""
    text = without_prefixes(rank.tail)
    traceback = _last_traceback(text)
    closing = traceback or text[-_LAST_WORDS:]
    lost = _LOST_DAEMON.search(closing) if rank.role == "launcher" else None
    if lost and rank.signal is None:
        return Cause("platform", rank, None, f"lost contact with its daemon on {lost[1]}", _closing_lines(closing))
    number = rank.signal
    if number is None and not traceback and (rank.exit_code or 0) - 128 in _CRASHES:
        # A shell or a launcher passes a signal on as an exit code.
        number = (rank.exit_code or 0) - 128
    code = _code(rank, closing, bool(traceback), number)
    weight = _WEIGHT.get(code, DEFINITE)
    if code == "signal" and number in _POLITE:
        weight = VAGUE
    return Cause(code, rank, number, _headline(closing, bool(traceback)), _closing_lines(closing), weight)


def last_words(rank: RankEvidence) -> Cause | None:
    """What a rank that Muster itself ended had to say: the traceback with which its log stops, if it does."""
    text = without_prefixes(rank.tail)
    traceback = _last_traceback(text)
    if not traceback or _STOPPED.search(traceback) or not _stands_last(traceback):
        return None
    code = _code(rank, traceback, True, None)
    return Cause(code, rank, None, _headline(traceback, True), _closing_lines(traceback), _WEIGHT.get(code, DEFINITE))


def _code(rank: RankEvidence, closing: str, traceback: bool, number: int | None) -> str:
    if rank.refusal:
        return "launcher_missing"
    if rank.lost_with:
        return "platform"
    if number == signals.SIGKILL and rank.oom_killed:
        return "host_oom"
    # A program that has failed may still crash while it tidies up.
    last = traceback and _stands_last(closing)
    if number is not None and number not in _SPEAKING and not (last and number == signals.SIGSEGV):
        return "signal"
    said = _spoken(closing) if traceback else closing
    for code, pattern in _PATTERNS:
        if pattern.search(said):
            return code
    if number is not None and not last:
        return "signal"
    if traceback or _SYNTAX.search(closing):
        return "exception"
    if rank.exit_code == 2 and _BAD_ARGUMENTS.search(closing):
        return "bad_input"
    if (rank.exit_code == 127 and _NOT_FOUND.search(closing)) or (
        rank.exit_code == 126 and _NOT_ALLOWED.search(closing)
    ):
        return "launcher_missing"
    return "exit_code"


def _last_traceback(text: str) -> str:
    """The last traceback with those that it was raised from; earlier, handled ones did not end the program."""
    heads = [match.start() for match in _HEAD.finditer(text)]
    if not heads:
        return ""
    first = len(heads) - 1
    while first > 0 and _CHAINED.search(text, heads[first - 1], heads[first]):
        first -= 1
    return text[heads[first] :]


def _spoken(traceback: str) -> str:
    """Without frames and source lines: what the exceptions say."""
    return "\n".join(line for line in traceback.split("\n") if not line.startswith((" ", "\t")))


def _stands_last(traceback: str) -> bool:
    """Nothing of a program that went on follows its last exception."""
    lines = traceback.rstrip().split("\n")
    last_frame = max((index for index, line in enumerate(lines) if line.startswith(" ")), default=0)
    return len(lines) - last_frame <= 12


def _headline(closing: str, traceback: bool) -> str:
    lines = [line.strip() for line in closing.split("\n") if line.strip()]
    if not lines:
        return ""
    if not traceback:
        return lines[-1][:300]
    spoken = [line for line in _spoken(closing).split("\n") if line.strip() and not _HEAD.match(line)]
    named = [
        line for line in spoken if re.match(r"[\w.]+(?:Error|Exception|Exit|Interrupt|Warning|Failed)?\b(?::|$)", line)
    ]
    return (named or spoken or lines)[-1].strip()[:300]


def _closing_lines(closing: str) -> tuple[str, ...]:
    return tuple(line[:500] for line in closing.strip("\n").split("\n")[-_MAX_LINES:])
