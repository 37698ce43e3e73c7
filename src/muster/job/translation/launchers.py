"""`torchrun`, `mpirun`, `accelerate launch`, `deepspeed`, `horovodrun` and `srun` command lines as jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from muster.errors import JobError
from muster.job.translation.job import Kind, Translated
from muster.job.translation.options import Grammar, Parsed, parse
from muster.job.translation.words import program, quoted, split, value

_RENDEZVOUS = {"--rdzv-backend": True, "--rdzv-endpoint": True, "--rdzv-id": True, "--rdzv-conf": True}
_MASTER = {"--master-addr": True, "--master-port": True, "--node-rank": True}
_IN_FILE = "Write a job file that starts the launcher itself on each node: docs/launchers.md shows how."

_TORCHRUN = Grammar(
    "torchrun",
    valued={"--nproc-per-node": "per_node", "--nnodes": "nodes", "--max-restarts": "restarts"},
    flags={"-m": "module", "--module": "module", "--no-python": "plain", "--use-env": "use_env"},
    unneeded={
        **_RENDEZVOUS,
        **_MASTER,
        "--standalone": False,
        "--monitor-interval": True,
        "--start-method": True,
        "--role": True,
        "--local-addr": True,
    },
    meaningless={
        "--log-dir": "Muster keeps each rank's output: `muster logs RUN --rank N`.",
        "--redirects": "Muster keeps each rank's output: `muster logs RUN --rank N`.",
        "--tee": "Muster keeps each rank's output: `muster logs RUN --rank N`.",
        "-r": "Muster keeps each rank's output: `muster logs RUN --rank N`.",
        "-t": "Muster keeps each rank's output: `muster logs RUN --rank N`.",
    },
)
_MPIRUN = Grammar(
    "mpirun",
    valued={
        "-n": "total",
        "-np": "total",
        "--np": "total",
        "--n": "total",
        "-c": "total",
        "-N": "per_node",
        "-npernode": "per_node",
        "--npernode": "per_node",
        "-ppn": "per_node",
        "--ppn": "per_node",
        "-perhost": "per_node",
        "-H": "hosts",
        "-host": "hosts",
        "--host": "hosts",
        "-hosts": "hosts",
        "-x": "variable",
        "--map-by": "map",
        "-map-by": "map",
    },
    pairs=frozenset({"-mca", "--mca", "-genv"}),
    unneeded={
        "--allow-run-as-root": False,
        "-allow-run-as-root": False,
        "--oversubscribe": False,
        "-oversubscribe": False,
        "--bind-to": True,
        "-bind-to": True,
        "--tag-output": False,
        "--report-bindings": False,
        "-genvall": False,
        "-v": False,
        "-q": False,
    },
    meaningless={
        "--hostfile": "Nodes come from a cluster: give -H HOST:SLOTS,… for their number, or -n and --npernode.",
        "-hostfile": "Nodes come from a cluster: give -H HOST:SLOTS,… for their number, or -n and --npernode.",
        "-machinefile": "Nodes come from a cluster: give -H HOST:SLOTS,… for their number, or -n and --npernode.",
        "-f": "Nodes come from a cluster: give -n and -ppn.",
        "--rankfile": "Muster gives each node as many ranks as the next: give --npernode.",
        "-wdir": "The command runs in a copy of the code folder.",
        "--wdir": "The command runs in a copy of the code folder.",
    },
)
_HOROVODRUN = Grammar(
    "horovodrun",
    valued={"-np": "total", "--num-proc": "total", "-H": "hosts", "--hosts": "hosts"},
    unneeded={"--mpi": False, "--gloo": False, "--verbose": False, "--network-interface": True, "-p": True},
    meaningless={
        "--min-np": "Muster's gangs have a fixed size: give -np.",
        "--max-np": "Muster's gangs have a fixed size: give -np.",
        "--hostfile": "Nodes come from a cluster: give -H HOST:SLOTS,… for their number.",
        "--host-discovery-script": "Nodes come from a cluster, and their number is fixed.",
    },
)
_ACCELERATE = Grammar(
    "accelerate launch",
    valued={
        "--num-processes": "total",
        "--num-machines": "nodes",
        "--mixed-precision": "precision",
        "--gradient-accumulation-steps": "accumulation",
        "--num-cpu-threads-per-process": "threads",
    },
    flags={"--multi-gpu": "many", "--multi-cpu": "many", "-m": "module", "--module": "module", "--cpu": "cpu"},
    unneeded={
        "--main-process-ip": True,
        "--main-process-port": True,
        "--machine-rank": True,
        "--same-network": False,
        "--rdzv-backend": True,
        "--dynamo-backend": True,
    },
    meaningless={
        "--config-file": _IN_FILE,
        "--use-deepspeed": _IN_FILE,
        "--use-fsdp": _IN_FILE,
        "--use-megatron-lm": _IN_FILE,
        "--tpu": "Muster has no TPUs.",
        "--gpu-ids": "Reserve a number of GPUs instead: `muster run --gpus-per-node N`.",
    },
)
_DEEPSPEED = Grammar(
    "deepspeed",
    valued={"--num-nodes": "nodes", "--num-gpus": "per_node"},
    flags={"--module": "module", "--no-python": "plain", "--no-local-rank": "no_local_rank"},
    unneeded={**_MASTER, "--launcher": True, "--launcher-args": True, "--force-multi": False, "--no-ssh": False},
    meaningless={
        "--hostfile": "Nodes come from a cluster: give --num_nodes and --num_gpus.",
        "-H": "Nodes come from a cluster: give --num_nodes and --num_gpus.",
        "--include": "Muster chooses nodes and GPUs: give --num_nodes and --num_gpus.",
        "-i": "Muster chooses nodes and GPUs: give --num_nodes and --num_gpus.",
        "--exclude": "Muster chooses nodes and GPUs: give --num_nodes and --num_gpus.",
        "-e": "Muster chooses nodes and GPUs: give --num_nodes and --num_gpus.",
        "--autotuning": _IN_FILE,
        "--elastic-training": "Muster's gangs have a fixed size.",
    },
)
_SRUN = Grammar(
    "srun",
    valued={
        "-n": "total",
        "--ntasks": "total",
        "-N": "nodes",
        "--nodes": "nodes",
        "--ntasks-per-node": "per_node",
        "--gpus-per-node": "gpus",
        "--gres": "gres",
        "--mpi": "mpi",
        "-J": "name",
        "--job-name": "name",
    },
    unneeded={
        "-c": True,
        "--cpus-per-task": True,
        "--cpu-bind": True,
        "--gpu-bind": True,
        "--gpus-per-task": True,
        "-l": False,
        "--label": False,
        "-u": False,
        "--unbuffered": False,
        "-K": False,
        "--kill-on-bad-exit": True,
        "-o": True,
        "--output": True,
        "-e": True,
        "--error": True,
        "-p": True,
        "--partition": True,
        "-A": True,
        "--account": True,
        "--exclusive": False,
        "-t": True,
        "--time": True,
        "--export": True,
        "--wait": True,
        "--mem": True,
    },
    meaningless={
        "--pty": "For a shell in a run: `muster shell RUN`.",
        "--jobid": "For a command in a run: `muster shell RUN -- COMMAND`.",
        "--container-image": "Name the image in the job file: `environment: {image: …}`.",
        "--multi-prog": "All ranks of a job run one command.",
        "-w": "Nodes come from a cluster.",
        "--nodelist": "Nodes come from a cluster.",
    },
)


_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "deepspeed")


@dataclass(frozen=True)
class Surroundings:
    """What is known from outside a launcher's own options: from a batch script, or from an outer launcher."""

    nodes: int | None = None
    per_node: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    """The variables of the shell in which it would run."""

    def number(self, parsed: Parsed, name: str, launcher: str) -> int | None:
        """A count that may be given as a variable of the batch system."""
        text = parsed.given.get(name)
        if text is not None:
            parsed.given[name] = self.filled(text)
        return parsed.number(name, launcher)

    def filled(self, text: str) -> str:
        """A text, or the value of the variable that it consists of."""
        name = text.removeprefix("$").strip("{}")
        return self.variables.get(name, text) if text.startswith("$") else text


def is_launcher(arguments: Sequence[str]) -> bool:
    """Whether a command line starts a launcher; a Python is one if it runs a launcher's module."""
    name = arguments[0].rpartition("/")[2] if arguments else ""
    if name in ("python", "python3"):
        return list(arguments[1:2]) == ["-m"] and "".join(arguments[2:3]) in _MODULES
    return name in _LAUNCHERS


def from_arguments(arguments: Sequence[str], variables: Mapping[str, str]) -> Translated:
    """The job of a command line that a shell has already split."""
    job = translate(quoted(arguments), Surroundings(variables=variables))
    scripts = [argument for argument in arguments[1:] if argument.endswith(".py")]
    return job if job.name or not scripts else replace(job, name=scripts[0].rpartition("/")[2].removesuffix(".py"))


def from_line(line: str, around: Surroundings) -> Translated:
    """The job for a line of a script."""
    return translate(split(line), around)


def translate(words: Sequence[str], around: Surroundings) -> Translated:
    """The job of a command line; without a launcher, one process on each node. Raises JobError if there is none."""
    launch = _LAUNCHERS.get(program(words))
    if launch is None:
        many = around.nodes is not None or around.per_node is not None
        return Translated(" ".join(words), around.nodes or 1, (around.per_node or 1) if many else None)
    return launch(words, around)


def _torchrun(words: Sequence[str], around: Surroundings) -> Translated:
    return _torch(parse(words[1:], _TORCHRUN), around, adds_local_rank=False)


def _torch(parsed: Parsed, around: Surroundings, adds_local_rank: bool) -> Translated:
    for name, allowed in (
        ("per_node", "gpu, cpu and auto depend on the machine"),
        ("nodes", "gangs have a fixed size"),
    ):
        text = around.filled(parsed.given.get(name, "1"))
        if not text.isdigit():
            option = "--nproc-per-node" if name == "per_node" else "--nnodes"
            raise JobError(f"torchrun: {option} {text} is no number: {allowed}", "Give a whole number.")
    nodes = around.number(parsed, "nodes", "torchrun") or around.nodes or 1
    per_node = around.number(parsed, "per_node", "torchrun") or 1
    extra = ["--local-rank=$LOCAL_RANK"] if adds_local_rank else []
    job = Translated(_script(parsed, extra), nodes, per_node, notices=_left_out(parsed, "torchrun"))
    restarts = parsed.given.get("restarts", "0")
    return replace(job, retries=int(restarts)) if restarts.isdigit() else job


def _python(words: Sequence[str], around: Surroundings) -> Translated:
    """`python -m torch.distributed.run` and the like; any other Python is a plain command."""
    inner = [value(word) for word in words[1:3]]
    if inner == ["-m", "torch.distributed.run"]:
        return _torch(parse(words[3:], _TORCHRUN), around, adds_local_rank=False)
    if inner == ["-m", "torch.distributed.launch"]:
        parsed = parse(words[3:], _TORCHRUN)
        return _torch(parsed, around, adds_local_rank="use_env" not in parsed.given)
    if inner in (["-m", "accelerate.commands.launch"], ["-m", "deepspeed"]):
        name = "accelerate" if "accelerate" in inner[1] else "deepspeed"
        return _LAUNCHERS[name]([name, *(["launch"] if name == "accelerate" else []), *words[3:]], around)
    many = around.nodes is not None or around.per_node is not None
    return Translated(" ".join(words), around.nodes or 1, (around.per_node or 1) if many else None)


def _mpirun(words: Sequence[str], around: Surroundings) -> Translated:
    parsed = parse(words[1:], _MPIRUN)
    per_node = around.number(parsed, "per_node", "mpirun") or _mapped(parsed)
    env: dict[str, str] = {}
    for text in parsed.repeated.get("variable", []):
        name, equals, given = text.partition("=")
        if not equals and name not in around.variables:
            raise JobError(f"mpirun: -x {name}: there is no {name} in this shell", f"Give a value: -x {name}=VALUE.")
        env[name] = given if equals else around.variables[name]
    for option in ("-mca", "--mca"):
        for text in parsed.repeated.get(option, []):
            name, _, given = text.partition(" ")
            env[f"OMPI_MCA_{name}"] = given
    for text in parsed.repeated.get("-genv", []):
        name, _, given = text.partition(" ")
        env[name] = given
    nodes, per_node = _shared(parsed, around, per_node, "mpirun")
    notices = (*_left_out(parsed, "mpirun"), *_hosts_notice(parsed))
    return Translated(" ".join(parsed.rest), nodes, per_node, "mpi", env=env, notices=notices)


def _horovodrun(words: Sequence[str], around: Surroundings) -> Translated:
    parsed = parse(words[1:], _HOROVODRUN)
    nodes, per_node = _shared(parsed, around, None, "horovodrun")
    notices = (*_left_out(parsed, "horovodrun"), *_hosts_notice(parsed))
    return Translated(" ".join(parsed.rest), nodes, per_node, "mpi", notices=notices)


def _accelerate(words: Sequence[str], around: Surroundings) -> Translated:
    if len(words) < 2 or value(words[1]) != "launch":
        raise JobError(f"{' '.join(words[:2])} starts no training", "Only `accelerate launch` can be run as a job.")
    parsed = parse(words[2:], _ACCELERATE)
    nodes = around.number(parsed, "nodes", "accelerate launch") or around.nodes or 1
    total = around.number(parsed, "total", "accelerate launch") or nodes
    per_node = _divided(total, nodes, "accelerate launch")
    env = {}
    if precision := parsed.given.get("precision"):
        env["ACCELERATE_MIXED_PRECISION"] = precision
    if steps := parsed.given.get("accumulation"):
        env["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] = steps
    if threads := parsed.given.get("threads"):
        env["OMP_NUM_THREADS"] = threads
    if "cpu" in parsed.given:
        env["ACCELERATE_USE_CPU"] = "true"
    return Translated(_script(parsed), nodes, per_node, env=env, notices=_left_out(parsed, "accelerate launch"))


def _deepspeed(words: Sequence[str], around: Surroundings) -> Translated:
    parsed = parse(words[1:], _DEEPSPEED)
    nodes = around.number(parsed, "nodes", "deepspeed") or around.nodes or 1
    per_node = around.number(parsed, "per_node", "deepspeed") or around.per_node
    if per_node is None:
        raise JobError("deepspeed without --num_gpus takes all GPUs of a machine", "Give --num_gpus N.")
    extra = [] if "no_local_rank" in parsed.given else ["--local_rank=$LOCAL_RANK"]
    return Translated(_script(parsed, extra), nodes, per_node, notices=_left_out(parsed, "deepspeed"))


def _srun(words: Sequence[str], around: Surroundings) -> Translated:
    parsed = parse(words[1:], _SRUN)
    nodes = around.number(parsed, "nodes", "srun") or around.nodes
    given = around.number(parsed, "per_node", "srun") or (None if "total" in parsed.given else around.per_node)
    total = around.number(parsed, "total", "srun")
    if total is not None:
        nodes = nodes or (total // given if given and total % given == 0 else 1)
        given = given or _divided(total, nodes, "srun")
    around = replace(around, nodes=nodes or 1, per_node=given or 1)
    inner = translate(parsed.rest, around)
    kind: Kind = "mpi" if parsed.given.get("mpi", "none") != "none" else inner.kind
    gpus = gpus_of(parsed.given.get("gpus") or parsed.given.get("gres"))
    notices = (*_left_out(parsed, "srun"), *inner.notices)
    return replace(inner, kind=kind, notices=notices, gpus_per_node=gpus or inner.gpus_per_node,
                   name=parsed.given.get("name") or inner.name)  # fmt: skip


def gpus_of(text: str | None) -> int | None:
    """The number in `4`, `a100:4`, `gpu:4` or `gpu:a100:4`; None if there are no GPUs."""
    if not text:
        return None
    for part in text.split(","):
        first, *others = part.split(":")
        if first == "gpu" and not others:
            return 1
        last = others[-1] if others else first
        if last.isdigit():
            return int(last)
    return None


def _shared(parsed: Parsed, around: Surroundings, per_node: int | None, launcher: str) -> tuple[int, int]:
    """The number of nodes, and of ranks on each, from a total and the hosts."""
    total = around.number(parsed, "total", launcher)
    hosts = [host for host in parsed.given.get("hosts", "").split(",") if host]
    slots = {int(host.rpartition(":")[2]) for host in hosts if host.rpartition(":")[2].isdigit() and ":" in host}
    nodes = len({host.partition(":")[0] for host in hosts}) or around.nodes
    if per_node is None and len(slots) == 1:
        per_node = slots.pop()
    elif per_node is None and len(slots) > 1:
        raise JobError(
            f"{launcher}: -H {parsed.given['hosts']} gives hosts different numbers of ranks",
            "Each node of a job has the same number: give --npernode.",
        )
    if total is None:
        return nodes or 1, per_node or around.per_node or 1
    if per_node is not None:
        nodes = _divided(total, per_node, launcher)
        return nodes, per_node
    return nodes or 1, _divided(total, nodes or 1, launcher)


def _divided(total: int, parts: int, launcher: str) -> int:
    if total % parts:
        raise JobError(
            f"{launcher}: {total} processes cannot be shared equally by {parts}",
            "Each node of a job has the same number of ranks: give numbers that divide.",
        )
    return total // parts


def _mapped(parsed: Parsed) -> int | None:
    """The number in `--map-by ppr:4:node`."""
    parts = parsed.given.get("map", "").split(":")
    if len(parts) >= 3 and parts[0] == "ppr" and parts[1].isdigit() and parts[2].startswith("node"):
        return int(parts[1])
    return None


def _script(parsed: Parsed, extra: Sequence[str] = ()) -> str:
    """The command of each rank: a script, a module, or a program as given."""
    first, *others = parsed.rest
    start = [] if "plain" in parsed.given else ["python", "-m"] if "module" in parsed.given else ["python"]
    return " ".join([*start, first, *extra, *others])


def _left_out(parsed: Parsed, launcher: str) -> tuple[str, ...]:
    if not parsed.left_out:
        return ()
    return (f"left out, since Muster sees to it: {', '.join(dict.fromkeys(parsed.left_out))} of {launcher}",)


def _hosts_notice(parsed: Parsed) -> tuple[str, ...]:
    if not parsed.given.get("hosts"):
        return ()
    return ("the hosts of -H are counted, not used: nodes come from the job's cluster (`compute`)",)


_LAUNCHERS: Mapping[str, Callable[[Sequence[str], Surroundings], Translated]] = {
    "torchrun": _torchrun,
    "python": _python,
    "python3": _python,
    "mpirun": _mpirun,
    "mpiexec": _mpirun,
    "horovodrun": _horovodrun,
    "accelerate": _accelerate,
    "deepspeed": _deepspeed,
    "srun": _srun,
}
NAMES = tuple(_LAUNCHERS)
