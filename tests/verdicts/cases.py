"""Jobs that fail, each with its true cause: what the corpus of verdicts is made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """One failing job and what is true about it."""

    name: str
    code: str
    """The true cause."""
    rank: int | None
    """The rank to blame; None: none is."""
    job: dict[str, Any]
    way: str
    """How it fails, in a word; cases of one way differ in convention and size."""
    convention: str = "single"
    num_ranks: int = 1
    node: str | None = None
    intervene: str = ""
    """What is done to it from outside while it runs."""
    timeout_s: float = 90.0
    also: tuple[int, ...] = ()
    """Ranks that are as much to blame."""
    extra: dict[str, Any] = field(default_factory=dict)
    """More for the submission, past the checks of the client."""


def all_cases() -> list[Case]:
    found = [*_singles(), *_infrastructure(), *_per_process(), *_torchrun(), *_mpirun()]
    names = [case.name for case in found]
    assert len(names) == len(set(names)), "every case has a name of its own"
    return found


def _singles() -> list[Case]:
    ways = [
        ("exception", "exception"),
        ("assertion", "exception"),
        ("contract-name", "exception"),
        ("chained", "exception"),
        ("handled-before", "exception"),
        ("exit-3", "exit_code"),
        ("exit-17-at-once", "exit_code"),
        ("exit-text", "exit_code"),
        ("arguments", "bad_input"),
        ("segfault", "signal"),
        ("abort", "signal"),
        ("terminate", "signal"),
        ("SIGKILL", "signal"),
        ("SIGFPE", "signal"),
        ("SIGTERM", "signal"),
        ("memory", "host_oom"),
        ("array-memory", "host_oom"),
        ("tensor-memory", "host_oom"),
        ("cgroup-memory", "host_oom"),
        ("disk", "disk_full"),
        ("disk-torch", "disk_full"),
        ("shm-torch", "shm_too_small"),
        ("port", "port_trouble"),
        ("module", "environment"),
        ("library", "environment"),
        ("no-cuda", "environment"),
    ]
    cases = [Case(f"single-{way}", code, 0, _python(f"{way}-alone"), way) for way, code in ways]
    cases += [
        Case("single-shell-killed", "signal", 0, {"command": "python fail.py SIGKILL-alone; exit $?"}, "SIGKILL"),
        Case("single-shell-segfault", "signal", 0, {"command": "python fail.py segfault-alone; exit $?"}, "segfault"),
        Case("single-syntax", "exception", 0, {"command": "echo 'def f(:' > broken.py && python broken.py"}, "syntax"),
        Case("single-no-script", "bad_input", 0, {"command": 'S=nope.py; python "$S"'}, "no-script"),
        Case("single-no-module-flag", "environment", 0, {"command": "python -m no_such_module"}, "module"),
        Case("single-no-program", "launcher_missing", 0, {"command": ["no-such-program"]}, "no-program"),
        Case("single-no-program-shell", "launcher_missing", 0, {"command": "no-such-program --x"}, "no-program"),
        Case("single-not-executable", "launcher_missing", 0, {"command": ["./notes.txt"]}, "not-executable"),
        Case("single-not-executable-shell", "launcher_missing", 0, {"command": "./notes.txt"}, "not-executable"),
        Case(
            "single-missing-data",
            "data_unavailable",
            0,
            {**_python("missing-data-alone"), "inputs": {"images": {"type": "uri_folder", "path": "./data"}}},
            "missing-data",
        ),
    ]
    return cases


def _infrastructure() -> list[Case]:
    waits = _python("waits-alone")
    nowhere = {"images": {"type": "uri_folder", "path": "/no/such/folder"}}
    two = {"distribution": _process(2), "resources": {"instance_count": 2}}
    return [
        Case("input-absent", "data_unavailable", None, {**waits, "inputs": nowhere}, "missing-data", node="local-0"),
        Case("no-interpreter", "bad_input", None, waits, "no-interpreter", extra={"python": "/no/such/python"}),
        Case("timeout-1", "timeout", None, {**waits, "limits": {"timeout": 2}}, "timeout"),
        Case("timeout-2", "timeout", None, {**waits, **two, "limits": {"timeout": 2}}, "timeout", "process", 2),
        Case("cancelled-1", "cancelled", None, waits, "cancelled", intervene="cancel"),
        Case("cancelled-2", "cancelled", None, {**waits, **two}, "cancelled", "process", 2, intervene="cancel"),
        Case("killed-1", "cancelled", None, waits, "cancelled", intervene="kill"),
        Case("agent-killed-1", "node_lost", None, waits, "node-lost", node="local-0", intervene="kill-agent 0"),
        Case(
            "agent-killed-2", "node_lost", None, {**waits, **two}, "node-lost", "process", 2,
            node="local-1", intervene="kill-agent 1",
        ),
        Case("agent-told-1", "preempted", None, waits, "preempted", node="local-0", intervene="term-agent 0"),
        Case(
            "agent-told-2", "preempted", None, {**waits, **two}, "preempted", "process", 2,
            node="local-1", intervene="term-agent 1",
        ),
        Case("keeper-killed", "platform", 0, waits, "keeper-killed", intervene="kill-keeper"),
        Case(
            "port-held", "port_trouble", 0,
            {**_python("exception"), "distribution": _process(1), "environment_variables": {"MASTER_PORT": "@held"}},
            "port", "process", 1,
        ),
    ]  # fmt: skip


def _per_process() -> list[Case]:
    two = [
        ("exception", "exception", 1),
        ("slow-exception", "exception", 1),
        ("SIGKILL", "signal", 1),
        ("SIGTERM", "signal", 1),
        ("segfault", "signal", 1),
        ("exit-3", "exit_code", 1),
        ("leaves-early", "collective", 1),
        ("hangs", "collective", 1),
        ("misses-barrier", "collective", 1),
        ("never-joins", "rendezvous", 1),
        ("exception-before-joining", "exception", 1),
        ("memory", "host_oom", 0),
        ("disk", "disk_full", 1),
    ]
    cases = [_gang(f"process-2-{way}", way, code, who, 1, 2) for way, code, who in two]
    cases += [
        _gang("process-2-wrong-world-size", "wrong-world-size", "rendezvous", None, 1, 2),
        _gang("process-2x1-exception", "exception", "exception", 1, 2, 1),
        _gang("process-2x1-SIGKILL", "SIGKILL", "signal", 0, 2, 1),
        _gang("process-4-exception", "exception", "exception", 2, 2, 2),
        _gang("process-4-SIGKILL", "SIGKILL", "signal", 3, 1, 4),
        _gang("process-4-leaves-early", "leaves-early", "collective", 2, 1, 4),
        _gang("process-8-exception", "exception", "exception", 3, 2, 4),
        _gang("process-8-SIGKILL", "SIGKILL", "signal", 5, 1, 8),
        _gang("process-8-exit-3", "exit-3", "exit_code", 7, 1, 8),
    ]
    interface = _gang("process-2-interface", "exception", "bad_input", 0, 1, 2)
    job = {**interface.job, "environment_variables": {"GLOO_SOCKET_IFNAME": "nope0", "OMP_NUM_THREADS": "1"}}
    cases.append(Case(interface.name, "bad_input", 0, job, "interface", "process", 2, also=(1,)))
    everyone = {**_python("module-alone"), "distribution": _process(4)}
    cases.append(Case("process-4-module", "environment", 0, everyone, "module", "process", 4, also=(1, 2, 3)))
    return cases


def _torchrun() -> list[Case]:
    def case(way: str, code: str, who: int, procs: int, nodes: int = 1, launcher: str = "torchrun") -> Case:
        meeting = "--node_rank $NODE_RANK --master_addr $MASTER_ADDR --master_port $MASTER_PORT"
        many = f"--nnodes {nodes} {meeting} " if nodes > 1 else "--standalone "
        command = f"{launcher} {many}--nproc-per-node {procs} fail.py {way} {who}"
        job = {**_settings(), "command": command, "distribution": {"type": "pytorch"}}
        job["resources"] = {"instance_count": nodes}
        short = "launch" if " -m " in launcher else "torchrun"
        name = f"{short}-{nodes}x{procs}-{way}"
        return Case(name, code, who, job, way, "torchrun", nodes * procs)

    cases = [
        case("exception", "exception", 1, 2),
        case("exception-before-joining", "exception", 1, 2),
        case("slow-exception", "exception", 1, 2),
        case("SIGKILL", "signal", 1, 2),
        case("segfault", "signal", 0, 2),
        case("exit-3", "exit_code", 1, 2),
        case("leaves-early", "collective", 1, 2),
        case("disk", "disk_full", 1, 2),
        case("exception", "exception", 2, 4),
        case("SIGKILL", "signal", 3, 4),
        case("exception", "exception", 3, 8),
        case("exception", "exception", 3, 2, nodes=2),
        case("SIGKILL", "signal", 1, 2, nodes=2),
        case("exception", "exception", 0, 2, launcher="python -m torch.distributed.launch --use_env"),
    ]
    single = _settings() | {"command": "torchrun --standalone --nproc-per-node 2 fail.py module-alone"}
    cases.append(Case("torchrun-1x2-module", "environment", 0, single, "module", "torchrun", 2, also=(1,)))
    return cases


def _mpirun() -> list[Case]:
    def case(way: str, code: str, who: int, num_ranks: int) -> Case:
        command = f"mpirun --oversubscribe -n {num_ranks} python -m mpi4py fail_mpi.py {way} {who}"
        root = {"OMPI_MCA_btl": "self,sm"}
        job = {"command": f'export PATH="$MPI_BIN:$PATH"; {_AS_ROOT} {command}', "environment_variables": root}
        return Case(f"mpirun-{num_ranks}-{way}", code, who, job, way, "mpirun", num_ranks)

    return [
        case("exception", "exception", 1, 2),
        case("abort", "exit_code", 1, 2),
        case("SIGKILL", "signal", 1, 2),
        case("segfault", "signal", 0, 2),
        case("module", "environment", 1, 2),
        case("disk", "disk_full", 1, 2),
        case("exception", "exception", 2, 4),
        case("SIGKILL", "signal", 3, 4),
        case("SIGKILL", "signal", 3, 8),
    ]


_AS_ROOT = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"


def _gang(name: str, way: str, code: str, who: int | None, nodes: int, procs: int) -> Case:
    job = {
        **_settings(),
        "command": f"python fail.py {way} {who or 0}",
        "distribution": _process(procs),
        "resources": {"instance_count": nodes},
    }
    return Case(name, code, who, job, way, "process", nodes * procs)


def _python(way: str) -> dict[str, Any]:
    return {"command": f"python fail.py {way}"}


def _process(count: int) -> dict[str, Any]:
    return {"type": "pytorch", "process_count_per_instance": count}


def _settings() -> dict[str, Any]:
    return {"environment_variables": {"OMP_NUM_THREADS": "1"}}
