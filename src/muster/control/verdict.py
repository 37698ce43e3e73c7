"""How an attempt ended and why: a pure judgement over recorded evidence.

First cause, not last symptom: candidates are ordered by kind of cause, then by time, because clocks differ
and culprits exit slowly. "The peer closed the connection" is never first while something else is known.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

COMPLETED = "completed"

NEXT = {
    "completed": "",
    "cancelled": "Submit it again when you want it to run.",
    "bad_input": "Put right what the message names and submit again.",
    "data_unavailable": "Check that the path exists and that the node may read it.",
    "disk_full": "Free space on the node (or point the workspace at a larger disk) and submit again.",
    "port_trouble": "Set MASTER_PORT in environment_variables to a free port, or end what holds it.",
    "launcher_missing": "Check the command's first word, or use an environment that has it.",
    "environment": "Install what is missing in the environment that the job uses.",
    "exception": "The traceback names the line in the script.",
    "exit_code": "The last lines of the rank's log say what the program thought of it.",
    "signal": "A crash inside native code: run one rank under `python -X faulthandler`, or look for a core file.",
    "host_oom": "Use a smaller batch, fewer ranks per node or loader workers, or a node with more memory.",
    "gpu_oom": "Use a smaller batch, gradient accumulation, or a GPU with more memory.",
    "shm_too_small": "Raise resources.shm_size, or use fewer data-loader workers.",
    "collective": "Another rank went away first; see the evidence.",
    "node_lost": "The node or its agent went away. Submit again; what was delivered is kept.",
    "timeout": "Raise limits.timeout, or resume from the last checkpoint.",
    "platform": "A fault of Muster's own. `muster show --json` has the evidence; please report it.",
}

_CONTRACT_NAMES = re.compile(r"KeyError: '(LOCAL_RANK|RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT)'")

# (code, pattern): the first that matches the end of a rank's log names the cause.
_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("gpu_oom", re.compile(r"CUDA out of memory|torch\.OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY|OOM when allocating")),
    (
        "shm_too_small",
        re.compile(r"insufficient shared memory|Bus error.*shared memory|unable to (?:open|allocate) shared"),
    ),
    (
        "disk_full",
        re.compile(r"No space left on device|Errno 28\b|Disk quota exceeded|file write failed.*PytorchStreamWriter"),
    ),
    (
        "host_oom",
        re.compile(r"^MemoryError|Cannot allocate memory|std::bad_alloc|DefaultCPUAllocator: can't allocate", re.M),
    ),
    ("port_trouble", re.compile(r"EADDRINUSE|Address already in use|address already in use|Errno 98\b")),
    ("environment", re.compile(r"^(?:ModuleNotFoundError|ImportError):", re.M)),
    (
        "collective",
        re.compile(
            r"Connection (?:closed|reset) by (?:remote )?peer|Broken pipe|remote process exited"
            r"|ncclRemoteError|ncclSystemError"
            r"|NCCL error.*(?:remote|unhandled system)|Timed out waiting \d+ms|gloo/transport|Gloo connectFullMesh"
            r"|DistNetworkError|DistBackendError|recvValue failed|sendBytes failed|failed to recv|HorovodInternalError"
            r"|UnavailableError|CollectiveAllReduce.*abort|Watchdog caught collective operation timeout"
        ),
    ),
)
_TRACEBACK = re.compile(r"^(?:\[?rank\d+\]?:\s?)?Traceback \(most recent call last\):", re.M)


@dataclass(frozen=True)
class RankEvidence:
    """What is known of one rank that had to do with the end."""

    rank: int
    node: str
    exit_code: int | None = None
    signal: int | None = None
    expected: bool = False
    essential: bool = True
    state: str = "ended"
    ended_at: float | None = None
    oom_killed: bool = False
    refusal: str | None = None
    """Why it could not be started."""
    lost_with: str | None = None
    """Nobody saw its end: it went with its "keeper" or "agent"."""
    tail: str = ""
    """The end of what it printed."""


@dataclass(frozen=True)
class NodeEvidence:
    node_rank: int
    name: str
    lost: bool = False
    refusal: dict[str, Any] | None = None


@dataclass(frozen=True)
class Evidence:
    """All that the judgement looks at."""

    ranks: Sequence[RankEvidence] = ()
    nodes: Sequence[NodeEvidence] = ()
    stop_reason: str | None = None
    cancel_by: str | None = None
    timeout_s: float | None = None


@dataclass(frozen=True)
class Verdict:
    """The explanation of how an attempt ended."""

    code: str
    message: str
    rank: int | None = None
    node: str | None = None
    evidence: dict[str, Any] = field(default_factory=dict)
    next: str = ""
    lines: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "lines": list(self.lines)}


def judge(evidence: Evidence) -> Verdict:
    """The verdict of an attempt that has ended."""
    if evidence.stop_reason in ("cancelled", "killed"):
        who = f" by {evidence.cancel_by}" if evidence.cancel_by else ""
        return _verdict("cancelled", f"cancelled{who}", evidence)
    refused = next((node for node in evidence.nodes if node.refusal), None)
    if refused and refused.refusal:
        code = refused.refusal.get("code", "platform")
        return _verdict(
            code, f"{refused.name}: {refused.refusal.get('message', 'refused')}", evidence, node=refused.name
        )
    failures = sorted((_classify(rank) for rank in evidence.ranks if _failed(rank)), key=lambda item: item[0])
    lost = next((node for node in evidence.nodes if node.lost), None)
    first = failures[0] if failures else None
    if lost and (first is None or first[1] in ("collective", "platform")):
        return _verdict(
            "node_lost", f"node {lost.name} or its agent went away while the job ran", evidence, node=lost.name
        )
    if first is not None:
        return _of_rank(first[1], first[2], evidence)
    if evidence.stop_reason == "timeout":
        limit = f" of {evidence.timeout_s:g} s" if evidence.timeout_s else ""
        return _verdict("timeout", f"the time limit{limit} passed", evidence)
    unfinished = [rank for rank in evidence.ranks if rank.essential and (rank.state != "ended" or rank.exit_code != 0)]
    if unfinished:
        return _verdict("platform", f"rank {unfinished[0].rank} has no record of its end", evidence, unfinished[0])
    return _verdict(COMPLETED, "every rank ended well", evidence)


def _failed(rank: RankEvidence) -> bool:
    return rank.state == "ended" and not rank.expected and (rank.exit_code != 0 or rank.signal is not None)


def _classify(rank: RankEvidence) -> tuple[tuple[int, float, int], str, RankEvidence]:
    code = _cause(rank)
    kind = {"platform": 0, "signal": 1, "exit_code": 2, "collective": 3}.get(code, 0)
    if code == "signal" and rank.signal == signals.SIGTERM:
        kind = 4
    return (kind, rank.ended_at or 0.0, rank.rank), code, rank


def _cause(rank: RankEvidence) -> str:
    if rank.refusal:
        return "launcher_missing"
    if rank.lost_with:
        return "platform"
    if rank.oom_killed:
        return "host_oom"
    # Only what follows the last traceback's head counts: earlier, handled ones do not end a program.
    heads = list(_TRACEBACK.finditer(rank.tail))
    closing = rank.tail[heads[-1].start() :] if heads else rank.tail[-4000:]
    if rank.signal is not None and rank.signal not in (signals.SIGABRT, signals.SIGBUS):
        return "signal"
    for code, pattern in _PATTERNS:
        if pattern.search(closing):
            return code
    if rank.signal is not None:
        return "signal"
    return "exception" if heads else "exit_code"


def _of_rank(code: str, rank: RankEvidence, evidence: Evidence) -> Verdict:
    where = f"rank {rank.rank} on {rank.node}"
    lines = tuple(_closing_lines(rank.tail))
    last = next((line for line in reversed(lines) if line.strip()), "")
    if code == "signal" and rank.signal is not None:
        message = f"{where} was ended by {_signal_name(rank.signal)}"
    elif code == "exit_code":
        message = f"{where} exited with code {rank.exit_code}"
    elif code == "platform":
        message = f"{where} was ended because the {rank.lost_with} that kept it was killed"
    elif code == "launcher_missing":
        message = f"{where} could not be started: {rank.refusal}"
    elif code == "host_oom" and rank.oom_killed:
        message = f"{where} was killed because the node ran out of memory"
    else:
        message = f"{where}: {last[:300]}" if last else f"{where} failed"
    hint = None
    missing = _CONTRACT_NAMES.search(rank.tail[-4000:])
    if missing:
        hint = (
            f"{missing[1]} is set only when processes are counted: give a process count "
            "(`--procs`, process_count_per_instance), or start the script with torchrun."
        )
    return _verdict(code, message, evidence, rank, lines=lines, hint=hint)


def _verdict(
    code: str,
    message: str,
    evidence: Evidence,
    rank: RankEvidence | None = None,
    *,
    node: str | None = None,
    lines: tuple[str, ...] = (),
    hint: str | None = None,
) -> Verdict:
    facts: dict[str, Any] = {
        "ranks": [
            {"rank": item.rank, "node": item.node, "exit_code": item.exit_code, "signal": item.signal,
             "expected": item.expected, "ended_at": item.ended_at}
            for item in evidence.ranks
            if _failed(item) or item is rank
        ][:64]
    }  # fmt: skip
    if evidence.stop_reason:
        facts["stop_reason"] = evidence.stop_reason
    return Verdict(
        code=code,
        message=message,
        rank=rank.rank if rank else None,
        node=rank.node if rank else node,
        evidence=facts,
        next=hint or NEXT.get(code, ""),
        lines=lines,
    )


def _closing_lines(tail: str) -> list[str]:
    heads = list(_TRACEBACK.finditer(tail))
    text = tail[heads[-1].start() :] if heads else tail
    return [line[:500] for line in text.rstrip("\n").split("\n")][-30:]


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
