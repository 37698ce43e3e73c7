"""Slurm batch scripts as job files: `#SBATCH` lines, and the only command that the script starts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from muster.errors import JobError
from muster.job.translation.job import Translated
from muster.job.translation.launchers import NAMES, Surroundings, from_line, gpus_of
from muster.job.translation.words import program, split, value

_SHORT = {
    "-N": "--nodes",
    "-n": "--ntasks",
    "-G": "--gpus",
    "-t": "--time",
    "-J": "--job-name",
    "-p": "--partition",
    "-A": "--account",
    "-q": "--qos",
    "-c": "--cpus-per-task",
    "-o": "--output",
    "-e": "--error",
    "-C": "--constraint",
    "-D": "--chdir",
    "-a": "--array",
    "-d": "--dependency",
    "-w": "--nodelist",
    "-x": "--exclude",
}
_FLAGS = {"--exclusive", "--requeue", "--no-requeue", "--parsable", "--overcommit", "--contiguous"}
_LOGS = {"--output", "--error", "--open-mode", "--mail-type", "--mail-user", "--parsable", "--verbose", "--comment"}
_OF_CLUSTER = {
    "--partition": "the partition",
    "--account": "the account",
    "--qos": "the QOS",
    "--constraint": "the constraint",
    "--mem": "memory",
    "--mem-per-cpu": "memory",
    "--mem-per-gpu": "memory",
    "--cpus-per-task": "CPUs",
    "--cpus-per-gpu": "CPUs",
    "--exclusive": "exclusive nodes",
    "--reservation": "the reservation",
    "--licenses": "licenses",
    "--hint": "the hint",
    "--nodelist": "the nodes",
    "--exclude": "excluded nodes",
    "--contiguous": "neighbouring nodes",
    "--overcommit": "overcommitted CPUs",
    "--tmp": "local disk",
    "--distribution": "the distribution of tasks",
    "--threads-per-core": "threads of a core",
}
_SEEN_TO = {
    "--signal",
    "--requeue",
    "--no-requeue",
    "--kill-on-invalid-dep",
    "--export",
    "--get-user-env",
    "--wait-all-nodes",
}
_MEANINGLESS = {
    "--array": "A job file runs once. `muster run job.yml --array 0-199` runs it once for each value, which each run "
    "finds in ARRAY_VALUE in place of SLURM_ARRAY_TASK_ID.",
    "--dependency": "Wait for the other run first: `muster wait RUN && muster run job.yml`.",
    "--wrap": "Give its command to `muster run -- COMMAND`.",
    "--chdir": "The command runs in a copy of the folder that `code` names.",
    "--begin": "Muster starts a run as soon as there are nodes for it.",
    "--het-group": "All nodes of a job are alike.",
}
_OF_MUSTER = {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "NODE_RANK", "RDZV_HOST", "RDZV_PORT"}
_NAMES = {
    "SLURM_PROCID": "RANK",
    "SLURM_LOCALID": "LOCAL_RANK",
    "SLURM_NODEID": "NODE_RANK",
    "SLURM_NTASKS": "WORLD_SIZE",
    "SLURM_NPROCS": "WORLD_SIZE",
    "SLURM_JOB_ID": "MUSTER_RUN_ID",
    "SLURM_JOBID": "MUSTER_RUN_ID",
    "SLURM_SUBMIT_DIR": "PWD",
}
_ON_ALL_NODES = ("srun", "mpirun", "mpiexec", "horovodrun")
_ASSIGNED = re.compile(r"(?:export\s+)?([A-Za-z_]\w*)=(.*)", re.S)
_USED = re.compile(r"\$\{?(\w+)\}?")
_CONTROL = ("for", "while", "until", "if", "case", "function", "select")
_QUIET = (
    "echo",
    "date",
    "hostname",
    "nvidia-smi",
    "pwd",
    "ulimit",
    "env",
    "which",
    "sleep",
    "wait",
    "printenv",
    "true",
)
_TIMES = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


@dataclass
class _Script:
    """The parts of the script, collected while its lines are read."""

    options: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By name: the value, and the line number."""
    env: dict[str, str] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)
    """Lines that each rank runs first."""
    launched: list[tuple[str, int]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


def from_sbatch(text: str, source: str = "the script") -> Translated:
    """The job of a batch script; raises JobError with the line that has no meaning here."""
    script = _Script()
    for number, line in _lines(text):
        try:
            _read(script, line, number)
        except JobError as error:
            raise JobError(f"{source}, line {number}: {error.message}", error.hint) from error
    if len(script.launched) != 1:
        raise _not_one(script, source)
    line, number = script.launched[0]
    nodes, per_node = _counts(script, source)
    variables = _variables(nodes, per_node, script)
    script.before = [_filled(item, variables) for item in script.before]
    around = Surroundings(variables=variables)
    if program(split(line)) in _ON_ALL_NODES:
        around = replace(around, nodes=nodes, per_node=per_node)
    elif nodes > 1 and program(split(line)) != "torchrun":
        script.notices.append("without srun, the command runs once, on the first node; so it does here")
    try:
        job = from_line(_filled(_renamed(line, script), variables), around)
    except JobError as error:
        raise JobError(f"{source}, line {number}: {error.message}", error.hint) from error
    return _whole(script, job, source)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; a backslash at the end continues a line in the next one."""
    pending, begin = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        begin = begin or number
        if line.endswith("\\") and not line.lstrip().startswith("#"):
            pending += line[:-1] + " "
            continue
        whole = (pending + line).strip()
        if whole:
            yield begin, whole
        pending, begin = "", 0
    if pending.strip():
        yield begin, pending.strip()


def _read(script: _Script, line: str, number: int) -> None:
    if line.startswith("#SBATCH"):
        _read_options(script, line.removeprefix("#SBATCH").partition(" #")[0], number)
    elif line.startswith(("#", "set ")):
        return
    elif match := _ASSIGNED.fullmatch(line):
        _assign(script, match[1], match[2], line)
    else:
        _read_command(script, line, number)


def _read_options(script: _Script, text: str, number: int) -> None:
    words = [value(word) for word in split(text)]
    index = 0
    while index < len(words):
        name, equals, given = words[index].partition("=")
        if name[:2] in _SHORT and not name.startswith("--") and len(name) > 2:
            name, given, equals = name[:2], name[2:], "="
        name = _SHORT.get(name, name)
        if name in _MEANINGLESS:
            raise JobError(f"{name} has no meaning here", _MEANINGLESS[name])
        if not _is_known(name):
            raise JobError(f"{name} is not known to Muster", "Remove it; `man sbatch` says what it does.")
        if not equals and name not in _FLAGS:
            index += 1
            if index == len(words):
                raise JobError(f"{name} has no value", "Give one.")
            given = words[index]
        script.options[name] = (given, number)
        index += 1


def _is_known(name: str) -> bool:
    used = {"--nodes", "--ntasks", "--ntasks-per-node", "--gpus", "--gpus-per-node", "--gpus-per-task", "--gres"}
    return name in used | {"--time", "--job-name", "--ntasks-per-gpu"} | _LOGS | _SEEN_TO | _FLAGS | _OF_CLUSTER.keys()


def _assign(script: _Script, name: str, given: str, line: str) -> None:
    if name in _OF_MUSTER:
        script.notices.append(f"left out, since Muster sets it: {name}")
    elif "scontrol" in given or "SLURM_JOB_NODELIST" in given or "SLURM_NODELIST" in given:
        script.notices.append(f"left out, since Muster knows the nodes: {name}")
    elif "$" in given or "`" in given or not line.startswith("export"):
        script.before.append(line)
    else:
        script.env[name] = value(given)


def _read_command(script: _Script, line: str, number: int) -> None:
    words = split(line)
    name = program(words)
    if name in _CONTROL or "<<" in line:
        raise JobError(
            f"`{line[:60]}` is more than one command",
            "Put what the script does into a separate script, and start that: `srun bash work.sh`.",
        )
    if name in NAMES or name.endswith((".sh", ".py")):
        script.launched.append((line, number))
    elif name not in _QUIET:
        script.before.append(line)
        if name in ("module", "ml", "conda", "source", "."):
            script.notices.append(f"each rank runs `{line}` first; an `environment` in the job file starts faster")


def _not_one(script: _Script, source: str) -> JobError:
    if not script.launched:
        known = ", ".join(NAMES)
        return JobError(f"{source} starts nothing that Muster knows", f"One line must begin with one of {known}.")
    where = " and ".join(str(number) for _, number in script.launched)
    return JobError(
        f"{source} starts {len(script.launched)} commands, on lines {where}; a job has one",
        "Make a job file of each, or put them into one script: `srun bash work.sh`.",
    )


def _counts(script: _Script, source: str) -> tuple[int, int | None]:
    """The number of nodes, and of tasks on each if the script gives one."""
    nodes = _number(script, "--nodes", source)
    per_node = _number(script, "--ntasks-per-node", source)
    total = _number(script, "--ntasks", source)
    if total is None:
        return nodes or 1, per_node
    nodes = nodes or (total // per_node if per_node and total % per_node == 0 else 1)
    if total % nodes:
        raise JobError(
            f"{source}: --ntasks {total} cannot be shared equally by {nodes} nodes",
            "Each node of a job has the same number of ranks: give numbers that divide.",
        )
    return nodes, per_node or total // nodes


def _number(script: _Script, name: str, source: str) -> int | None:
    text, line = script.options.get(name, ("", 0))
    if not text:
        return None
    if not text.isdigit() or not int(text):
        raise JobError(f"{source}, line {line}: {name} {text} is no number", "Give one whole number above zero.")
    return int(text)


def _gpus(script: _Script, nodes: int, per_node: int | None) -> int | None:
    """The number of GPUs on each node."""
    given = {name: gpus_of(script.options[name][0]) for name in ("--gpus-per-node", "--gres") if name in script.options}
    if found := next((count for count in given.values() if count), None):
        return found
    if "--gpus" in script.options and (total := gpus_of(script.options["--gpus"][0])):
        return max(1, total // nodes)
    if "--gpus-per-task" in script.options and (each := gpus_of(script.options["--gpus-per-task"][0])):
        return each * (per_node or 1)
    return None


def _variables(nodes: int, per_node: int | None, script: _Script) -> Mapping[str, str]:
    """The values of the script's own variables in the options of its launcher."""
    gpus = _gpus(script, nodes, per_node)
    known = {"SLURM_NNODES": nodes, "SLURM_JOB_NUM_NODES": nodes, "SLURM_NTASKS_PER_NODE": per_node or 1}
    known |= {"SLURM_NTASKS": nodes * (per_node or 1), "SLURM_TASKS_PER_NODE": per_node or 1}
    if gpus:
        known |= {"SLURM_GPUS_ON_NODE": gpus, "SLURM_GPUS_PER_NODE": gpus}
    assigned = [match for line in script.before if (match := _ASSIGNED.fullmatch(line))]
    own = {match[1]: value(match[2]) for match in assigned}
    found = {name: str(number) for name, number in known.items()}
    return {**{name: found.get(text.strip("${}"), text) for name, text in own.items()}, **script.env, **found}


def _renamed(line: str, script: _Script) -> str:
    """The command with Muster's names in place of Slurm's."""
    used = [name for name in _USED.findall(line) if name in _NAMES]
    for name in dict.fromkeys(used):
        script.notices.append(f"${name} is ${_NAMES[name]} here")
    return _USED.sub(lambda match: f"${_NAMES[match[1]]}" if match[1] in _NAMES else match[0], line)


def _filled(line: str, variables: Mapping[str, str]) -> str:
    """A line with numbers in place of Slurm's variables for them."""
    slurm = {name: number for name, number in variables.items() if name.startswith("SLURM_")}
    return _USED.sub(lambda match: slurm.get(match[1], match[0]), line)


def _whole(script: _Script, job: Translated, source: str) -> Translated:
    options = script.options
    notices = [*script.notices, *job.notices]
    if kept := sorted({_OF_CLUSTER[name] for name in options if name in _OF_CLUSTER}):
        notices.append(f"left to the cluster that `compute` names: {', '.join(kept)}")
    if any(name in _LOGS for name in options):
        notices.append("left out: where output goes and who gets mail; `muster logs` has the output of each rank")
    if left := sorted(
        {name for name in _USED.findall(job.command) if name.startswith("SLURM_") and name not in _NAMES}
    ):
        raise JobError(
            f"{source}: the command uses {', '.join('$' + name for name in left)}, which no rank has",
            f"Muster sets {', '.join(sorted(set(_NAMES.values())))}; docs/launch-contract.md has all of them.",
        )
    command = "\n".join([*script.before, job.command])
    if script.before and job.per_node is not None:
        command = "\n".join([*script.before, f"exec {job.command}" if _is_plain(job.command) else job.command])
    name, _ = options.get("--job-name", ("", 0))
    limit, line = options.get("--time", ("", 0))
    return replace(
        job,
        command=command,
        env={**script.env, **job.env},
        name=name or job.name,
        gpus_per_node=_gpus(script, job.nodes, job.per_node) or job.gpus_per_node,
        timeout_s=seconds(limit, f"{source}, line {line}") if limit else None,
        notices=tuple(dict.fromkeys(notices)),
    )


def _is_plain(command: str) -> bool:
    """Whether a shell can replace itself by the command: no pipes, no list of commands."""
    return not any(char in command for char in "|;&<>")


def seconds(text: str, where: str) -> int:
    """The seconds in Slurm's `30`, `30:00`, `1:30:00`, `2-0`, `2-12:30` and the like."""
    match = _TIMES.fullmatch(text)
    if not match:
        raise JobError(f"{where}: --time {text} is no time", "Write minutes, HH:MM:SS or D-HH:MM:SS.")
    days, first, second, third = (int(part) if part is not None else None for part in match.groups())
    if days is not None:
        return days * 86_400 + (first or 0) * 3600 + (second or 0) * 60 + (third or 0)
    if third is not None:
        return (first or 0) * 3600 + (second or 0) * 60 + third
    return (first or 0) * 60 + (second or 0)
