"""How attempts end: the evidence, the verdict, and the one table of its codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from muster.wire.codec import OMIT
from muster.wire.message import wire
from muster.wire.states import RankEnd

Budget = Literal["preemption", "node_loss", "platform", "user_error"]
"""The budget of the retry policy that a verdict draws on."""

Confidence = Literal["certain", "likely", "unsure"]
"""How certain a verdict is: nothing points to another cause; another one is possible; a guess."""

COMPLETED = "completed"
CANCELLED = "cancelled"
TIME_SLICE = "time_slice"


@wire
class RankExit:
    """How one rank ended, as a verdict shows it."""

    rank: int
    node: str
    exit_code: int | None = None
    signal: int | None = None
    expected: bool = False
    """Muster's own signal ended it."""
    ended_at: float | None = None


@wire
class VerdictEvidence:
    """What a verdict rests on."""

    ranks: tuple[RankExit, ...] = ()
    """The failed ranks, the first 64 of them."""
    launcher_rank: int | None = field(default=None, metadata=OMIT)
    """For a process that a launcher started (`torchrun`, `mpirun`): the launcher's own rank."""
    stop_reason: str | None = field(default=None, metadata=OMIT)


@wire
class Candidate:
    """Another possible cause."""

    code: str
    message: str
    rank: int | None = None


@wire
class Similar:
    """Earlier runs of the workspace that failed in the same way."""

    count: int
    """How many in the last seven days, not counting this one."""
    runs: tuple[str, ...] = ()
    """The newest of them."""
    since: str | None = field(default=None, metadata=OMIT)
    """The oldest of them, with its commit or snapshot."""
    text: str = ""
    """All of it in a sentence."""


@wire
class Verdict:
    """The explanation of how an attempt ended."""

    code: str
    message: str
    rank: int | None = None
    node: str | None = None
    evidence: VerdictEvidence = field(default_factory=VerdictEvidence)
    action: str = ""
    """What Muster did next."""
    next: str = ""
    """What the user can do."""
    lines: tuple[str, ...] = ()
    confidence: Confidence = field(default="certain", metadata=OMIT)
    second: Candidate | None = field(default=None, metadata=OMIT)
    """The next best explanation, where it is close."""
    of_script: bool = field(default=False, metadata=OMIT)
    """The script's own fault, whatever the code: no budget of the platform pays for another attempt."""
    similar: Similar | None = field(default=None, metadata=OMIT)


@wire
class Refusal:
    """Why an attempt could not be prepared or started on a node, or its files not be delivered."""

    code: str = field(default="", metadata=OMIT)
    """A verdict's code."""
    message: str = field(default="", metadata=OMIT)
    next: str = field(default="", metadata=OMIT)
    """What the user can do, where more is known than the code tells."""
    lines: tuple[str, ...] = field(default=(), metadata=OMIT)
    late: bool = field(default=False, metadata=OMIT)
    """Its ranks had ended: their files could not be delivered."""


@wire
class Ending:
    """Why the manager that lent the nodes took them back."""

    code: str
    """A verdict's code; empty where it says nothing about the cause."""
    message: str
    lost: tuple[str, ...] = field(default=(), metadata=OMIT)
    """Machines that the manager has lost."""


@wire
class RankEvidence(RankExit, RankEnd):
    """What is known of one rank."""

    essential: bool = True
    state: str = "ended"
    said_at: float | None = field(default=None, metadata=OMIT)
    """When it last wrote to its log."""
    oom_killed: bool = False
    """The kernel's OOM killer struck on the node while it ended by SIGKILL."""
    refusal: str | None = None
    """Why it could not be started."""
    lost_with: str | None = None
    """Nobody saw its end: it was lost with its "keeper" or "agent"."""
    tail: str = ""
    """The end of what it printed."""
    command: str = ""
    """What it ran."""
    launcher_rank: int | None = None
    """For a process that a launcher started (`torchrun`, `mpirun`): the launcher's own rank."""
    role: str = ""


@wire
class NodeEvidence:
    """What is known of one node of the attempt."""

    node_rank: int
    name: str
    lost: bool = False
    """It or its agent vanished without notice."""
    leaving: bool = False
    """It was asked to leave: preempted, or its agent was ended."""
    refusal: Refusal | None = None


@wire
class JobFacts:
    """More about the job, so that advice can be specific."""

    files: tuple[str, ...] = ()
    """Names of the files in its code folder, the first 2,000 of them."""
    master_port: int | None = None
    """The port that Muster assigned; 0: none."""
    gpus: int | None = None
    """How many GPUs its nodes gave it."""
    gpu_clusters: tuple[str, ...] = ()
    """Other clusters of the workspace that have GPUs."""
    environment: str = ""
    """The name of its environment; empty where it runs in the interpreter that submitted it."""
    packages: tuple[str, ...] = ()
    """What its environment lists."""
    completed: str = ""
    """An earlier run of the same code that completed, and what was different about it."""


@wire
class Evidence:
    """The input of the verdict."""

    ranks: tuple[RankEvidence, ...] = ()
    nodes: tuple[NodeEvidence, ...] = ()
    stop_reason: str | None = None
    cancel_by: str | None = None
    timeout_s: float | None = None
    ending: Ending | None = None
    facts: JobFacts = field(default_factory=JobFacts, metadata=OMIT)


@dataclass(frozen=True)
class Code:
    """The consequences of a verdict, for any run."""

    name: str
    next: str
    """What the user can do, unless the verdict has better advice."""
    budget: Budget | None = "user_error"
    """None: no budget limits it (a time slice), or it is never retried."""
    final: bool = False
    """It would only recur: retried only where the policy names the code."""
    never_retried: bool = False
    """Requested by a person, or a success."""
    avoid_node: bool = False
    """The next attempt avoids the node: another one may work, and on this one it would recur."""
    blames_node: bool = False
    """Counts against the node, which is set aside after several in a row. Not a preemption, which is no fault of the
    node; but also a full disk and a fault of the platform, which one attempt alone does not hold against it."""

    @property
    def is_user_error(self) -> bool:
        """Whether it has no budget of its own, so that `retry.on_codes` may name it."""
        return self.budget == "user_error"


_TABLE = (
    Code(COMPLETED, "", budget=None, never_retried=True),
    Code(
        CANCELLED,
        "`muster retry` goes on from its last checkpoint when you want it to run.",
        budget=None,
        never_retried=True,
    ),
    Code("bad_input", "Put right what the message names and submit again.", final=True),
    Code(
        "data_unavailable",
        "Check that the path exists and that the node may read it, or give another place: --input NAME=PATH.",
    ),
    Code(
        "disk_full",
        "Free space on the node (or point the workspace at a larger disk) and submit again.",
        blames_node=True,
    ),
    Code(
        "port_trouble",
        "Set MASTER_PORT to a free port, or GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to an interface "
        "that the node has, in environment_variables; or leave them out.",
        budget="platform",
    ),
    Code("launcher_missing", "Check the command's first word, or use an environment that has it.", final=True),
    Code("environment", "Install what is missing in the environment that the job uses."),
    Code("exception", "The traceback names the line in the script."),
    Code("exit_code", "The last lines of the rank's log say what the program thought of it."),
    Code(
        "signal",
        "A crash inside native code: run one rank under `python -X faulthandler`, or look for a core file.",
    ),
    Code("host_oom", "Use a smaller batch, fewer ranks per node or loader workers, or a node with more memory."),
    Code("gpu_oom", "Use a smaller batch, gradient accumulation, or a GPU with more memory."),
    Code(
        "gpu_fault",
        "Look at `nvidia-smi -q` and the kernel's log (Xid) on the node; on good hardware run once with "
        "CUDA_LAUNCH_BLOCKING=1 to find the kernel.",
        budget="node_loss",
        avoid_node=True,
        blames_node=True,
    ),
    Code("shm_too_small", "Raise resources.shm_size, or use fewer data-loader workers."),
    Code(
        "collective",
        "Look at what the named rank did last; where none is named, at the network between the nodes.",
    ),
    Code(
        "rendezvous",
        "Check that every rank is started, that all agree on the world size, and that the nodes reach "
        "MASTER_ADDR:MASTER_PORT.",
    ),
    Code(
        "node_lost",
        "The node or its agent went away; what was delivered is kept.",
        budget="node_loss",
        avoid_node=True,
        blames_node=True,
    ),
    Code(
        "preempted",
        "The node was taken back; with a checkpoint the next attempt goes on from there.",
        budget="preemption",
        avoid_node=True,
    ),
    Code(TIME_SLICE, "The next attempt goes on from the last checkpoint.", budget=None),
    Code("timeout", "Raise limits.timeout, or go on from the last checkpoint with `muster retry`.", final=True),
    Code(
        "platform",
        "A fault of Muster's own. `muster show --json` has the evidence; please report it.",
        budget="platform",
        blames_node=True,
    ),
)

CODES: Mapping[str, Code] = {code.name: code for code in _TABLE}
"""Every verdict code of Muster itself."""

USER_ERRORS = tuple(sorted(code.name for code in _TABLE if code.is_user_error))
"""Codes that `retry.on_codes` may name."""


def code_of(name: str) -> Code:
    """The entry of a code; an unknown one counts as an error of the job, without advice."""
    return CODES.get(name) or Code(name, "")
