"""What mpirun starts for every rank: finds out which rank it is, runs its command, records start and exit.

Run as a file with `-I -S`, because it is in the way of every rank; it imports no more than it needs.
`rank.py RANKS`: the node's file with each rank's command, environment and log.
"""

from __future__ import annotations

import marshal
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import NoReturn

    from muster.agent.run.records import RankCommand, RankTable
else:
    # Not `signal`, whose enumerations take as long to create as the rest of this program.
    import _signal as signal

_RANK_NAMES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PMI_ID")
# Set by mpirun, and more accurate than the plan.
_LAUNCHERS_OWN = ("OMPI_COMM_WORLD_", "OMPI_MCA_orte_hnp_uri")
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def main() -> None:
    with open(sys.argv[1], "rb") as file:  # noqa: PTH123
        node = marshal.load(file)
    sys.exit(_run(node))


def _run(node: RankTable) -> int:
    number = next((os.environ[name] for name in _RANK_NAMES if name in os.environ), "")
    rank = node["ranks"].get(number)
    if rank is None:
        known = ", ".join(node["ranks"])
        print(f"muster: mpirun started rank {number or '?'} on {node['name']}, which has the ranks {known}", flush=True)
        return 126
    tell = _Teller(node["fifo"], int(number))
    env = dict(os.environ)
    env.update(rank["env"])
    env.update((name, value) for name, value in os.environ.items() if name.startswith(_LAUNCHERS_OWN))
    env.pop("OLDPWD", None)
    _redirect(rank["log"])
    try:
        argv = _expanded(rank, env, node["library"])
    except ValueError as error:
        return _refuse(tell, str(error), 126)
    # Blocked before the fork, so that no signal falls between the child's start and the wait for it.
    signal.pthread_sigmask(signal.SIG_BLOCK, (*_PASSED_ON, signal.SIGCHLD))
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(argv, env, rank["cwd"], write_end)
    os.close(write_end)
    trouble = os.read(read_end, 4096)
    if trouble:
        os.waitpid(pid, 0)
        return _refuse(tell, trouble.decode(), 126 if b"not found" not in trouble else 127)
    tell(kind="started", wrapper=os.getpid(), pid=pid)
    return _follow(pid, tell, node["stop_file"])


def _follow(pid: int, tell: _Teller, stop_file: str) -> int:
    """Wait for the rank; pass signals on. The keeper learns how it ended before mpirun can see it."""
    interrupted = False
    while True:
        number = signal.sigwaitinfo((*_PASSED_ON, signal.SIGCHLD)).si_signo
        if number != signal.SIGCHLD:
            if number in (signal.SIGTERM, signal.SIGINT) and not interrupted and not os.path.exists(stop_file):  # noqa: PTH110
                interrupted = True
                tell(kind="interrupted")
            _send(pid, number)
            continue
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if not ended:
            continue
        tell(kind="exited", status=status, max_rss_kb=usage.ru_maxrss, interrupted=interrupted)
        if not interrupted and (status != 0 or os.path.exists(stop_file)):  # noqa: PTH110
            _linger()
        return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _linger() -> None:
    """Keep from mpirun that the rank has ended: it would end the others at once.

    They get Muster's grace period to save a checkpoint or to print what they saw; then the keeper ends all.
    """
    while signal.sigwaitinfo(_PASSED_ON).si_signo not in (signal.SIGTERM, signal.SIGINT):
        pass


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _redirect(log: str) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)


def _expanded(rank: RankCommand, env: dict[str, str], library: str) -> list[str]:
    argv = rank["argv"]
    if rank["expand"] and any("$" in element for element in argv):
        sys.path.append(library)
        from muster.errors import JobError
        from muster.launch.expand import expand_all

        try:
            argv = list(expand_all(argv, env))
        except JobError as error:
            raise ValueError(f"{error.message}. {error.hint}") from error
    return argv


def _refuse(tell: _Teller, message: str, code: int) -> int:
    print(f"muster: rank {tell.rank} could not be started: {message}", flush=True)
    tell(kind="refused", message=message[:2000], exit_code=code)
    return code


def _become(argv: list[str], env: dict[str, str], cwd: str, trouble: int) -> NoReturn:
    """In the child: never returns."""
    try:
        parent = os.getppid()
        os.setsid()
        _die_with(parent)
        os.chdir(cwd)
        os.umask(0o022)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        program = _found(argv[0], env.get("PATH", os.defpath))
        if not program:
            os.write(trouble, f"there is no program {argv[0]!r} on PATH ({env.get('PATH')}): not found".encode())
            os._exit(127)
        os.execve(program, [program, *argv[1:]], env)
    except OSError as error:
        os.write(trouble, f"{argv[0]} cannot be run: {error.strerror}".encode())
    finally:
        os._exit(127)


def _found(program: str, path: str) -> str:
    if "/" in program:
        return program
    for folder in path.split(os.pathsep):
        candidate = os.path.join(folder, program)  # noqa: PTH118
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):  # noqa: PTH112
            return candidate
    return ""


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(137)


def _json(value: str | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return repr(value)
    if value.isalpha():
        return f'"{value}"'
    import json

    return json.dumps(value)


class _Teller:
    """Reports to the node's keeper what happens to a rank."""

    def __init__(self, fifo: str, rank: int) -> None:
        self.rank = rank
        self._fifo = fifo

    def __call__(self, **entry: str | float) -> None:
        fields = {"rank": self.rank, "at": time.time(), **entry}
        line = ("{" + ", ".join(f'"{name}": {_json(value)}' for name, value in fields.items()) + "}\n").encode()
        try:
            descriptor = os.open(self._fifo, os.O_WRONLY | os.O_NONBLOCK)
            os.write(descriptor, line)
            os.close(descriptor)
        except OSError:
            # No keeper: then this process is about to be ended too.
            pass


if __name__ == "__main__":
    main()
