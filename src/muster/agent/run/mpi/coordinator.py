"""The keeper's part in an MPI job: reads reports of the ranks' wrappers, and starts mpirun's daemon on this node.

Nothing in it blocks: the keeper gets its descriptors, waits for all of them at once, and passes back those that are
ready. Standard library only.
"""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import signal
import socket
from _operator import _compare_digest as compare_digest
from collections.abc import Callable, Sequence
from typing import Any, Dict, NamedTuple  # noqa: UP035

from muster.agent.run.mpi.remote import answer
from muster.agent.run.mpi.standin import done_fifo, pmix_file
from muster.agent.run.records import LaunchMpi
from muster.host import processes

_LONGEST_REQUEST = 1 << 20
_LONGEST_OUTPUT = 64 << 10
_CLONE_NEWUTS = 0x04000000
_CLONE_NEWUSER = 0x10000000

# This file also runs in the Python 3.8 of an image.
Entry = Dict[str, Any]  # noqa: UP006

# What a rank's wrapper reports; ranks of the job could write here, too.
_WORDS: dict[str, dict[str, type]] = {
    "started": {"pid": int, "at": float},
    "exited": {"status": int, "max_rss_kb": int, "interrupted": bool, "at": float},
    "refused": {"message": str, "exit_code": int},
    "interrupted": {},
    "here": {},
}


class _Caller(NamedTuple):
    """A connection, until it has shown that it knows the secret."""

    line: socket.socket
    challenge: str
    unread: bytearray


class MpiCoordinator:
    """This node's part of an MPI job."""

    def __init__(self, launch: LaunchMpi) -> None:
        self.ranks = tuple(launch["ranks"])
        listen, pmix = launch["listen"], launch["pmix"]
        self.listen = (str(listen[0]), int(listen[1])) if listen else None
        """Where mpirun's request for this node arrives; None on the first node, where mpirun itself runs."""
        self.daemon: int | None = None
        """Pid of what was started for mpirun."""
        self._launch = launch
        # Before the fifo, whose existence means that everything is in place.
        self._pmix = PmixStep(pmix["folder"], pmix["program"], self.ranks, self._spawn_rank) if pmix else None
        fifo = launch["fifo"]
        os.mkfifo(fifo, 0o600)
        # Open for writing, too: it must not reach its end when the first writer leaves.
        self._fifo = os.open(fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._unread = b""
        self.trouble = ""
        """Why mpirun cannot reach this node."""
        self._listener: socket.socket | None = None
        if self.listen is not None:
            try:
                self._listener = _listener(*self.listen)
            except OSError as error:
                self.trouble = f"{self.listen[0]} port {self.listen[1]} cannot be listened on: {error.strerror}"
        self._callers: dict[int, _Caller] = {}
        self._asker: socket.socket | None = None
        self._is_quiet = False
        self._noisy: set[str] = set()

    def descriptors(self) -> list[int]:
        listener = [self._listener.fileno()] if self._listener else []
        return [self._fifo, *listener, *self._callers]

    def hear(self) -> list[Entry]:
        """What wrappers reported since the last call; invalid entries are left out."""
        entries = [entry for entry in self._lines() if isinstance(entry, dict)]
        for entry in entries:
            if entry.get("kind") == "daemon":
                self._noisy.add(str(entry.get("host")))
            elif entry.get("kind") == "quiet":
                self._noisy.discard(str(entry.get("host")))
        valid = [entry for entry in entries if entry.get("rank") in self.ranks and _is_whole(entry)]
        return [self._served(entry) for entry in valid] if self._pmix else valid

    def serve(self, ready: list[int]) -> str | None:
        """Accept callers, and start the daemon for an authenticated one; returns why it could not be started."""
        for descriptor in ready:
            if self._listener is not None and descriptor == self._listener.fileno():
                self._accept()
            elif descriptor in self._callers and (trouble := self._listen_to(self._callers[descriptor])):
                return trouble
        return None

    def reaped(self, pid: int, status: int) -> bool:
        """Whether this was the daemon; its exit code and output are sent to mpirun's side."""
        if pid != self.daemon:
            return False
        self.daemon = None
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        self._say({"kind": "exited", "code": code, "output": _tail(self._launch["daemon_log"])})
        if self._asker is not None:
            self._asker.close()
            self._asker = None
        return True

    def fell_silent(self) -> bool:
        """No rank runs here any more while the gang is being stopped; True when that is so for the whole gang."""
        if self.listen is None:
            return not self._noisy
        if not self._is_quiet:
            self._is_quiet = True
            self._say({"kind": "quiet"})
        return self.daemon is None

    def _served(self, entry: Entry) -> Entry:
        """Start a rank whose stand-in has come, and release the stand-in of an ended one."""
        assert self._pmix is not None
        if entry["kind"] == "exited":
            self._pmix.ended(entry["rank"], entry["status"])
        elif entry["kind"] == "here" and (trouble := self._pmix.start(entry["rank"])):
            return {"kind": "refused", "rank": entry["rank"], "message": trouble, "exit_code": 126}
        return entry

    def _lines(self) -> list[Any]:
        try:
            data = os.read(self._fifo, 1 << 20)
        except BlockingIOError:
            return []
        *lines, self._unread = (self._unread + data).split(b"\n")
        found = []
        for line in lines:
            try:
                found.append(json.loads(line))
            except (ValueError, RecursionError):
                continue
        return found

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            line, _ = self._listener.accept()
            line.setblocking(False)
            caller = _Caller(line, os.urandom(16).hex(), bytearray())
            line.sendall(caller.challenge.encode() + b"\n")
        except OSError:
            return
        self._callers[line.fileno()] = caller

    def _listen_to(self, caller: _Caller) -> str | None:
        try:
            data = caller.line.recv(65536)
        except OSError:
            data = b""
        caller.unread.extend(data)
        if data and b"\n" not in caller.unread and len(caller.unread) < _LONGEST_REQUEST:
            return None
        del self._callers[caller.line.fileno()]
        command = self._granted(caller)
        if command is None or self.daemon is not None:
            caller.line.close()
            return None
        return self._start(command, caller.line)

    def _granted(self, caller: _Caller) -> str | None:
        """The command of a caller that has proved that it knows the secret."""
        try:
            request = json.loads(caller.unread)
            command, proof = str(request["command"]), str(request["proof"])
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        wanted = answer(self._launch["secret"], caller.challenge, command)
        return command if compare_digest(proof.encode(), wanted.encode()) else None

    def _spawn_rank(self, command: str, added: dict[str, str]) -> str:
        return _spawn(command, {**self._launch, "daemon_env": {**self._launch["daemon_env"], **added}})[1]

    def _start(self, command: str, asker: socket.socket) -> str | None:
        pid, report = _spawn(command, self._launch)
        if report:
            asker.close()
            return report
        self.daemon, self._asker = pid, asker
        self._say({"kind": "daemon"})
        # One daemon is all that an attempt needs here.
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        return None

    def _say(self, entry: Entry) -> None:
        if self._asker is None:
            return
        try:
            self._asker.setblocking(True)
            self._asker.settimeout(1.0)
            self._asker.sendall(json.dumps(entry).encode() + b"\n")
        except OSError:
            # mpirun's side is gone; the daemon notices by itself.
            self._asker.close()
            self._asker = None


class PmixStep:
    """Ranks that Slurm's PMIx serves: `srun` starts a stand-in for each, and this keeper starts the rank itself."""

    def __init__(
        self, folder: str, program: str, ranks: Sequence[int], spawn: Callable[[str, dict[str, str]], str]
    ) -> None:
        """`spawn` runs a command with additions to its environment; it returns why it could not be started."""
        self._folder = folder
        self._program = program
        self._spawn = spawn
        self._came: set[int] = set()
        self._waiting: dict[int, int] = {}
        """By rank: the fifo that its stand-in waits at."""
        for rank in ranks:
            os.mkfifo(done_fifo(folder, rank), 0o600)
            # Open for reading, too: it need not wait for the stand-in.
            self._waiting[rank] = os.open(done_fifo(folder, rank), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def start(self, rank: int) -> str:
        """Start a rank whose stand-in has come; returns why it could not be started."""
        if rank in self._came:
            return ""
        self._came.add(rank)
        try:
            with open(pmix_file(self._folder, rank), "rb") as file:  # noqa: PTH123
                lines = file.read().decode("utf-8", "surrogateescape").split("\0")
        except OSError as error:
            return f"what PMIx gave it cannot be read: {error.strerror}"
        given = dict(line.split("=", 1) for line in lines if "=" in line)
        return self._spawn(shlex.quote(self._program), given)

    def ended(self, rank: int, status: int) -> None:
        """Release the stand-in of a rank that succeeded. Others stay: srun would end the step."""
        waiting = self._waiting.pop(rank, None) if status == 0 else None
        if waiting is not None:
            os.write(waiting, b".")
            os.close(waiting)


def _is_whole(entry: Entry) -> bool:
    wanted = _WORDS.get(str(entry.get("kind")))
    return wanted is not None and all(isinstance(entry.get(name), kind) for name, kind in wanted.items())


def _spawn(command: str, launch: LaunchMpi) -> tuple[int, str]:
    """The pid of a child that runs a command, or why it cannot be run."""
    # Closed by a successful exec; otherwise it carries what went wrong.
    read_end, write_end = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become_daemon(command, launch, parent, write_end)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as trouble:
        report = trouble.read().decode(errors="replace")
    if report:
        os.waitpid(pid, 0)
    return pid, report


def _become_daemon(command: str, launch: LaunchMpi, parent: int, trouble: int) -> None:
    """In the child: never returns."""
    try:
        os.setsid()
        processes.die_with_parent(parent)
        log = os.open(launch["daemon_log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if launch["hostname"]:
            _take_name(launch["hostname"])
        os.chdir("/")
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execve("/bin/sh", ["sh", "-c", command], launch["daemon_env"])
    except BaseException as error:
        os.write(trouble, (str(error) or repr(error)).encode())
    finally:
        os._exit(127)


def _take_name(name: str) -> None:
    """Set a host name for this process and its descendants only."""
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    if uid == 0 and libc.unshare(_CLONE_NEWUTS) == 0:
        socket.sethostname(name)
        return
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWUTS) != 0:
        raise OSError(
            f"Open MPI needs a separate host name for each simulated node, and the kernel does not let this user "
            f"have one ({os.strerror(ctypes.get_errno())} from unshare). Allow user namespaces, run on one node, "
            "or use MPICH"
        )
    for file, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        descriptor = os.open(f"/proc/self/{file}", os.O_WRONLY)
        os.write(descriptor, text.encode())
        os.close(descriptor)
    socket.sethostname(name)


def _listener(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(16)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _tail(path: str) -> str:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LONGEST_OUTPUT))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
