"""Runs jobs that fail and keeps the evidence: `python recorder.py DEFINITIONS.py FOLDER [NAME…]`. See README.md.

Standard library alone, and apart from Muster's own code, so that a case does not depend on the rules that judge it. It
does what a keeper does: ranks write straight to their logs; half a second after the first failure the others show their
stacks, get SIGTERM, and 0.3 s later SIGKILL.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GRACE_S = 0.5
KILL_AFTER_TERM_S = 0.3
GRACE_AT_LIMIT_S = 2.0
MOST_LOG = 1 << 20
STACKS = signal.SIGRTMAX - 6
STACKS_SET_UP = f"""import faulthandler, os
faulthandler.register({int(STACKS)}, file=2, all_threads=True, chain=False)
if "TORCHELASTIC_RUN_ID" in os.environ and "RANK" in os.environ and "TMPDIR" in os.environ:
    name = os.environ["TMPDIR"] + "/.muster_stack_" + os.environ["RANK"] + "_" + str(os.getpid())
    faulthandler.register(15, file=open(name, "ab"), all_threads=True, chain=True)
    os.register_at_fork(after_in_child=lambda: faulthandler.unregister(15))
"""
"""What each Python of a job runs first: it answers with its stacks, and below torchrun leaves them at SIGTERM."""
LIBRARY = r"site-packages|dist-packages|/lib(?:64)?/python3|^<"
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Failure:
    """One job that fails, and what is true about it (README.md says what each label means)."""

    name: str
    code: str
    command: str
    wanted: str | tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    """What lies in the code folder: path to contents. `.sh` files are executable."""
    helpful: tuple[str, ...] = ()
    misleading: tuple[str, ...] = ()
    rank: int | None = 0
    also: tuple[int, ...] = ()
    also_codes: tuple[str, ...] = ()
    way: str = ""
    convention: str = "single"
    """single, process, torchrun, mpirun, mpi, spawn, shell: what starts the processes."""
    processes: int = 1
    """Ranks that Muster starts: all of them, over all nodes."""
    nodes: int = 1
    num_ranks: int | None = None
    """Where a launcher inside the command starts more."""
    variables: Mapping[str, str] = field(default_factory=dict)
    limit_s: float | None = None
    """The job's own time limit, `limits.timeout`."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    venv: str = ""
    """The `bin` folder of another environment, given as `--venv NAME=FOLDER`."""


@dataclass
class Process:
    """A rank that was started."""

    rank: int
    node: str
    log: Path
    popen: subprocess.Popen[bytes]
    role: str = ""
    ended_at: float | None = None
    said_at: float | None = None
    expected: bool = False
    oom_killed: bool = False


def main() -> None:
    if sys.argv[1:2] == ["--wrap"]:
        wrap(Path(sys.argv[2]), sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("definitions", help="a Python file with FAILURES, a list of Failure")
    parser.add_argument("folder", help="where the cases are kept")
    parser.add_argument("names", nargs="*", help="only those whose names begin so")
    parser.add_argument("--new", action="store_true", help="leave out those that are there already")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that ranks find as `python`")
    parser.add_argument("--venv", action="append", default=[], help="NAME=FOLDER of other environments")
    options = parser.parse_intermixed_args()
    venvs = dict(item.split("=", 1) for item in options.venv)
    folder = Path(options.folder)
    folder.mkdir(exist_ok=True, parents=True)
    chosen = [f for f in load(options.definitions) if not options.names or f.name.startswith(tuple(options.names))]
    for failure in chosen:
        target = folder / f"{failure.name}.json"
        if options.new and target.exists():
            continue
        began = time.monotonic()
        document = record(failure, options.python, venvs)
        target.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        ends = [_outcome(rank) for rank in document["evidence"]["ranks"]]
        print(f"{failure.name:<44} {time.monotonic() - began:5.1f} s  {' '.join(ends)}", flush=True)


def load(definitions: str) -> list[Failure]:
    sys.modules.setdefault("recorder", sys.modules[__name__])
    spec = importlib.util.spec_from_file_location(Path(definitions).stem, definitions)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: list[Failure] = module.FAILURES
    names = [failure.name for failure in found]
    assert len(names) == len(set(names)), "every case has a name of its own"
    return found


def record(failure: Failure, python: str, venvs: Mapping[str, str]) -> dict[str, Any]:
    """Run the job in a folder of its own; the case as it is kept."""
    with tempfile.TemporaryDirectory(prefix="mvc-") as name:
        base = Path(name)
        code = base / "work"
        code.mkdir()
        for path, text in failure.files.items():
            target = code / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text.encode())
            if path.endswith(".sh"):
                target.chmod(0o755)
        (base / "tmp").mkdir()
        (base / "hook").mkdir()
        (base / "hook" / "sitecustomize.py").write_text(STACKS_SET_UP)
        binaries = Path(venvs[failure.venv]) / "bin" if failure.venv else Path(python).parent
        port = _free_port()
        processes = start(failure, base, code, binaries, port)
        stop_reason = watch(processes, failure)
        evidence = gathered(failure, processes, base, stop_reason, port)
        replaced = [(str(base), "/home/user/project"), *_places(binaries)]
        return case(failure, _clean(evidence, replaced))


def start(failure: Failure, base: Path, code: Path, binaries: Path, port: int) -> list[Process]:
    count, per_node = failure.processes, failure.processes // failure.nodes
    if failure.convention == "mpi":
        return [start_mpi(failure, base, code, binaries)]
    started = []
    for rank in range(count):
        env = base_environment(base, binaries)
        if failure.convention in ("process", "torchrun"):
            env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NODE_RANK": str(rank // per_node)}
            env |= {"RANK": str(rank), "WORLD_SIZE": str(count)}
        if failure.convention == "torchrun":
            env["TMPDIR"] = str(process_folder(base, rank))
        if failure.convention == "process":
            env |= {"LOCAL_RANK": str(rank % per_node), "LOCAL_WORLD_SIZE": str(per_node)}
        log = base / f"rank_{rank}.log"
        popen = _start(["bash", "-c", failure.command], {**env, **failure.variables}, code, log)
        started.append(Process(rank, f"node-{rank // per_node}", log, popen))
    return started


def process_folder(base: Path, rank: int) -> Path:
    """A launcher's own TMPDIR, as each node has one."""
    folder = base / "tmp" / str(rank)
    folder.mkdir(exist_ok=True)
    return folder


def base_environment(base: Path, binaries: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("HOME", "USER", "LOGNAME") if name in os.environ}
    path = f"{binaries}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    threads = {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {
        **kept,
        **threads,
        "PATH": path,
        "LANG": "C.UTF-8",
        "TMPDIR": str(base / "tmp"),
        "PYTHONPATH": str(base / "hook"),
    }


def start_mpi(failure: Failure, base: Path, code: Path, binaries: Path) -> Process:
    """mpirun beside the ranks, each behind a wrapper that keeps its output and its end."""
    wrapper = [sys.executable, "-S", "-E", str(HERE / "recorder.py"), "--wrap", str(base)]
    argv = ["mpirun", "--oversubscribe", "-n", str(failure.processes), *wrapper, "bash", "-c", failure.command]
    log = base / "mpi.log"
    env = base_environment(base, binaries) | {"OMPI_MCA_btl": "self,sm"}
    popen = _start(argv, {**env, **failure.variables}, code, log)
    return Process(failure.processes, "node-0", log, popen, role="launcher")


def _start(argv: Sequence[str], env: Mapping[str, str], cwd: Path, log: Path) -> subprocess.Popen[bytes]:
    hook = str(log.parent / "hook")
    if env.get("PYTHONPATH", hook) != hook:
        env = {**env, "PYTHONPATH": f"{hook}:{env['PYTHONPATH']}"}
    with log.open("ab") as out:
        return subprocess.Popen(
            argv,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=_usual_signals,
        )


def _usual_signals() -> None:
    """What runs in the background of a shell ignores SIGINT; ranks do not."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)


def watch(processes: Sequence[Process], failure: Failure) -> str:
    """Until nothing is left; why it was stopped."""
    began = time.monotonic()
    limit = failure.limit_s or 600.0
    kills = _oom_kills()
    failed_at = None
    while True:
        living = _reap(processes, kills)
        now = time.monotonic()
        failed = any(process.popen.returncode for process in processes if process.ended_at is not None)
        if failed and failed_at is None:
            failed_at = now
        if not living:
            return "rank_failed" if failed else "done"
        if failed_at is not None and now - failed_at > GRACE_S:
            end(processes, kills, KILL_AFTER_TERM_S)
            return "rank_failed"
        if now - began > limit:
            if failure.limit_s is None:
                print(f"{failure.name} did not end in {limit:g} s")
            end(processes, kills, GRACE_AT_LIMIT_S)
            return "timeout"
        time.sleep(0.01)


def end(processes: Sequence[Process], kills: int, grace_s: float) -> None:
    """Stacks, SIGTERM, SIGKILL."""
    for process in processes:
        if process.popen.returncode is None:
            process.expected = True
            show_stacks(process)
    for process in processes:
        for pid in [process.popen.pid, *_descendants(process.popen.pid)] if process.popen.returncode is None else ():
            _send(pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while _reap(processes, kills) and time.monotonic() < deadline:
        time.sleep(0.01)
    for process in processes:
        for pid in [*_descendants(process.popen.pid), process.popen.pid] if process.popen.returncode is None else ():
            _send(pid, signal.SIGKILL)
    while _reap(processes, kills):
        time.sleep(0.01)


def show_stacks(process: Process) -> None:
    """Have every Python below a rank write where it is, each under a line that says whose stack it is."""
    for pid in [process.popen.pid, *_descendants(process.popen.pid)]:
        if not _catches_stacks(pid):
            continue
        variables = _read(pid, "environ").split(b"\0")
        own = next((v.split(b"=", 1)[1] for v in variables if v.startswith((b"RANK=", b"OMPI_COMM_WORLD_RANK="))), b"")
        whose = f"rank {own.decode()}" if own else f"rank {process.rank}"
        own_log = Path(f"/proc/{pid}/fd/2")
        with (own_log if own_log.is_file() else process.log).open("ab") as log:
            log.write(f"muster: where {whose} (process {pid}) was when it was stopped:\n".encode())
        _send(pid, STACKS)
        time.sleep(0.03)
    show_sources(process)


def collect_stacks(process: Process) -> None:
    """Of a launcher that has failed: where its processes were when it ended them."""
    shown = ""
    for file in sorted((process.log.parent / "tmp" / str(process.rank)).glob(".muster_stack_*")):
        _, _, rank, pid = file.name.split("_")
        stacks = file.read_text(errors="replace")[: 1 << 14]
        file.unlink()
        if stacks:
            shown += f"muster: where rank {rank} (process {pid}) was when it was stopped:\n{stacks}"
    if shown:
        with process.log.open("a") as log:
            log.write(shown)
        show_sources(process)


def show_sources(process: Process) -> None:
    """Below the stacks, the lines of the user's own code that they name."""
    logs = {process.log}
    for pid in _descendants(process.popen.pid):
        own_log = Path(f"/proc/{pid}/fd/2")
        logs |= {own_log.resolve()} if own_log.is_file() else set()
    for path in logs:
        text = _log(path)
        _, mark, shown = text.partition("muster: where rank ")
        named = re.findall(r'^  File "([^"]+)", line (\d+) in ', shown, re.M)
        own = dict.fromkeys(item for item in named if not re.search(LIBRARY, item[0]))
        with path.open("a") as log:
            for file, line in own if mark and '\nmuster: "' not in shown else ():
                log.write(source_line(file, int(line), Path(file)))


def source_line(shown: str, line: int, file: Path) -> str:
    try:
        source = file.read_text(errors="replace").split("\n")[line - 1].strip()[:160]
    except (OSError, IndexError):
        return ""
    return f'muster: "{shown}" line {line}: {source}\n'


def wrap(base: Path, argv: Sequence[str]) -> None:
    """What mpirun starts in front of each rank: its log, and how it ended."""
    rank = os.environ["OMPI_COMM_WORLD_RANK"]
    told = []
    with (base / f"rank_{rank}.log").open("ab") as out:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def pass_on(number: int, _frame: object) -> None:
        told.append(number)
        child.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    code = child.wait()
    end = {"code": code, "told": bool(told), "at": time.time()}
    (base / f"rank_{rank}.end").write_text(json.dumps(end))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    os._exit(code)


def gathered(failure: Failure, processes: Sequence[Process], base: Path, reason: str, port: int) -> dict[str, Any]:
    ranks = [_fact(process, failure) for process in processes]
    if failure.convention == "mpi":
        ranks += [_of_wrapped(base, rank, failure, processes[0]) for rank in range(failure.processes)]
    order = sorted(ranks, key=lambda rank: (rank["expected"] or rank["exit_code"] == 0, rank["ended_at"] or 0.0))
    nodes = [{"node_rank": number, "name": f"node-{number}"} for number in range(failure.nodes)]
    facts = {"files": sorted(failure.files), "master_port": port, "gpus": 0, **failure.facts}
    return {
        "ranks": order, "nodes": nodes, "stop_reason": reason, "timeout_s": failure.limit_s, "facts": facts
    }  # fmt: skip


def _fact(process: Process, failure: Failure) -> dict[str, Any]:
    code = process.popen.returncode
    return {
        "rank": process.rank,
        "node": process.node,
        "exit_code": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "expected": process.expected,
        "ended_at": process.ended_at,
        **({"said_at": process.said_at} if process.said_at is not None else {}),
        "oom_killed": process.oom_killed,
        "tail": _log(process.log),
        "command": failure.command,
        "role": process.role,
    }


def _of_wrapped(base: Path, rank: int, failure: Failure, launcher: Process) -> dict[str, Any]:
    try:
        ended = json.loads((base / f"rank_{rank}.end").read_text())
    except (OSError, ValueError):
        ended = {"code": None, "told": True, "at": launcher.ended_at}
    code = ended["code"]
    return {
        "rank": rank,
        "node": "node-0",
        "exit_code": code if code is None or code >= 0 else None,
        "signal": -code if code is not None and code < 0 else None,
        "expected": ended["told"],
        "ended_at": ended["at"],
        "tail": _log(base / f"rank_{rank}.log"),
        "command": failure.command,
        "role": "worker",
        **({"lost_with": "mpirun"} if code is None else {}),
    }


def case(failure: Failure, evidence: Mapping[str, Any]) -> dict[str, Any]:
    wanted = (failure.wanted,) if isinstance(failure.wanted, str) else failure.wanted
    return {
        "name": failure.name,
        "way": failure.way or failure.name,
        "convention": failure.convention,
        "num_ranks": failure.num_ranks or failure.processes,
        "code": failure.code,
        "also_codes": list(failure.also_codes),
        "rank": failure.rank,
        "also": list(failure.also),
        "wanted": list(wanted),
        "helpful": list(failure.helpful),
        "misleading": list(failure.misleading),
        "evidence": evidence,
    }


def _reap(processes: Sequence[Process], kills: int) -> bool:
    """Whether any lives."""
    for process in processes:
        if process.ended_at is None and process.popen.poll() is not None:
            process.ended_at = time.time()
            if process.popen.returncode and not process.expected:
                process.said_at = process.log.stat().st_mtime if process.log.stat().st_size else None
                collect_stacks(process)
            killed = process.popen.returncode in (-9, 137)
            process.oom_killed = killed and not process.expected and _oom_kills() > kills
    return any(process.ended_at is None for process in processes)


def _descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        stat = _read(int(entry.name), "stat") if entry.name.isdigit() else b""
        if stat:
            parents.setdefault(int(stat[stat.rindex(b")") + 2 :].split()[1]), []).append(int(entry.name))
    found, pending = [], [pid]
    while pending:
        below = parents.get(pending.pop(), [])
        found += below
        pending += below
    return found


def _catches_stacks(pid: int) -> bool:
    """Without a handler the signal would end the process."""
    mask = re.search(rb"^SigCgt:\s*([0-9a-f]+)", _read(pid, "status"), re.M)
    return bool(mask and int(mask[1], 16) >> (STACKS - 1) & 1)


def _read(pid: int, name: str) -> bytes:
    try:
        return Path("/proc", str(pid), name).read_bytes()
    except OSError:
        return b""


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _oom_kills() -> int:
    found = re.search(r"^oom_kill (\d+)", Path("/proc/vmstat").read_text(), re.M)
    return int(found[1]) if found else 0


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _log(path: Path) -> str:
    """The whole log; of a very long one its beginning and its end."""
    data = path.read_bytes() if path.exists() else b""
    if len(data) > MOST_LOG:
        data = data[: MOST_LOG // 2] + b"\n" + data[-MOST_LOG // 2 :]
    return data.decode(errors="replace")


def _places(binaries: Path) -> list[tuple[str, str]]:
    """What a path of this machine is called in a case."""
    prefix = binaries.parent
    packages = sorted(prefix.glob("lib/python*/site-packages"))
    found = [(str(place), "/opt/venv/lib/python3.11/site-packages") for place in packages]
    return [*found, (str(prefix), "/opt/venv"), (sysconfig.get_config_var("prefix"), "/usr"), (sys.base_prefix, "/usr")]


def _clean(evidence: Mapping[str, Any], replaced: Sequence[tuple[str, str]]) -> Mapping[str, Any]:
    """Without the paths and names of the machine on which it was made."""
    text = json.dumps(evidence, ensure_ascii=False)
    for path, shown in (*replaced, (str(HERE), "/home/user/tests"), (socket.gethostname(), "vm")):
        text = text.replace(path, shown) if path else text
    cleaned: dict[str, Any] = json.loads(text)
    return cleaned


def _outcome(rank: Mapping[str, Any]) -> str:
    ended = f"SIG{rank['signal']}" if rank["signal"] else str(rank["exit_code"])
    return f"{rank['rank']}:{ended}{'*' if rank['expected'] else ''}"


if __name__ == "__main__":
    main()
