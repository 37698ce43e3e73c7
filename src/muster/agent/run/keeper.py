"""The keeper of one attempt: starts its ranks, records how they end, and leaves no process behind.

Standard library only and single-threaded: it is forked from the nursery in about a millisecond, and nothing
that it does may depend on the server, on the agent being quick, or on the ranks behaving.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
import time
from typing import NamedTuple

from muster.agent.run import stacks
from muster.agent.run.memory import MemoryWatch
from muster.agent.run.mpi.coordinator import MpiCoordinator
from muster.agent.run.records import Channel, Launch, LaunchRank, SessionCommand, StopCommand, Value, entry_line
from muster.agent.run.sessions import process
from muster.agent.run.sessions.session_rank import SessionRank, session_rank_of
from muster.host import clock, processes

KILL_PASS_S = 0.01
SPARE_CLEANERS_S = 0.2
DAEMON_PATIENCE_S = 10.0
DESERTED_S = 0.3


class Running(NamedTuple):
    """A rank that has not ended."""

    rank: int
    essential: bool = True
    wrapped: bool = False
    """Started by mpirun."""


class Refused(Exception):
    """A rank could not be started; carries the shell's exit code for that."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def start_rank(launch: LaunchRank) -> int:
    """The pid of a child that runs the rank; raises Refused."""
    if not launch["program"]:
        path = launch["env"].get("PATH", "")
        raise Refused(f"there is no program {launch['argv'][0]!r} on PATH ({path})", 127)
    parent = os.getpid()
    # Closed by a successful exec; otherwise it carries what went wrong.
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(launch, parent, write_end)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as trouble:
        report = trouble.read()
    if report:
        os.waitpid(pid, 0)
        raise _refusal(launch, *json.loads(report))
    return pid


def _become(launch: LaunchRank, parent: int, trouble: int) -> None:
    """In the child: never returns. Every descriptor above 2 is closed on exec."""
    stage = "session"
    try:
        os.setsid()
        processes.die_with_parent(parent)
        stage = "log"
        log = os.open(launch["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        stage = "cwd"
        os.chdir(launch["cwd"])
        os.umask(0o022)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        processes.allow_tracing(parent)
        stage = "exec"
        os.execve(launch["program"], launch["argv"], {**launch["env"], "MUSTER_KEEPER": str(parent)})
    except OSError as error:
        os.write(trouble, json.dumps([stage, error.errno, os.strerror(error.errno or 0)]).encode())
    except BaseException as error:
        os.write(trouble, json.dumps([stage, 0, repr(error)]).encode())
    finally:
        os._exit(127)


def _refusal(launch: LaunchRank, stage: str, number: int, text: str) -> Refused:
    program = launch["program"]
    if stage == "cwd":
        return Refused(f"the working folder {launch['cwd']} cannot be entered: {text}", 126)
    if stage == "log":
        return Refused(f"the log {launch['log']} cannot be opened: {text}", 126)
    if number == errno.ENOENT and os.path.exists(program):  # noqa: PTH110
        return Refused(_no_interpreter(program), 127)
    return Refused(f"{program} cannot be run: {text}", 127 if number == errno.ENOENT else 126)


def _no_interpreter(program: str) -> str:
    """Why an existing program could not be executed: the interpreter that it names is missing."""
    try:
        with open(program, "rb") as file:  # noqa: PTH123
            first = file.readline(256)
    except OSError:
        first = b""
    if not first.startswith(b"#!"):
        return f"{program} is there, but not the loader that it needs: it was built for another system"
    words = first[2:].decode(errors="replace").strip(" \n").split(" ")
    return f"the interpreter {words[0]!r} that {program} names in its first line does not exist"


class Ending:
    """When the ranks get SIGTERM and when SIGKILL, and why: a decision without processes or clocks."""

    def __init__(self, grace_failure_s: float, kill_after_term_s: float) -> None:
        self._grace_failure_s = grace_failure_s
        self._kill_after_term_s = kill_after_term_s
        self.reason = ""
        self.term_at: float | None = None
        self.kill_at: float | None = None
        self._asked = False

    def failed(self, now: float) -> None:
        """An essential rank failed: a short delay, in which the others may print what they saw."""
        self._schedule("rank_failed", now + self._grace_failure_s, self._kill_after_term_s)

    def done(self, now: float) -> None:
        """No essential rank is left: the others are not waited for.

        Unless a stop was requested: a shell dies at once, and the grace period is for the processes that it started.
        """
        if not self._asked:
            self._schedule("done", now, self._kill_after_term_s)

    def stop(self, now: float, grace_s: float, reason: str) -> None:
        self._asked = True
        self._schedule(reason, now, grace_s)

    def _schedule(self, reason: str, term_at: float, grace_s: float) -> None:
        """The first reason stays; the earlier time wins."""
        self.reason = self.reason or reason
        kill_at = term_at + grace_s
        self.term_at = term_at if self.term_at is None else min(self.term_at, term_at)
        self.kill_at = kill_at if self.kill_at is None else min(self.kill_at, kill_at)

    def hurry(self, now: float) -> None:
        """Nobody is left who needs the grace period."""
        self.kill_at = now if self.kill_at is None else min(self.kill_at, now)

    def killing(self, now: float) -> bool:
        return self.kill_at is not None and now >= self.kill_at

    def terminating(self, now: float) -> bool:
        return self.term_at is not None and now >= self.term_at

    def wait_s(self, now: float, termed: bool) -> float | None:
        """How long there is nothing to do."""
        moments = [moment for moment in (None if termed else self.term_at, self.kill_at) if moment is not None]
        if not moments:
            return None
        return max(KILL_PASS_S if self.killing(now) else 0.0, min(moments) - now)


class Keeper:
    """Runs one attempt's ranks on this node to their end."""

    def __init__(self, launch: Launch, agent: socket.socket, wake: int) -> None:
        self._launches = launch["ranks"]
        self._logs = {rank["rank"]: rank["log"] for rank in launch["ranks"]}
        self._whole_gang = launch["whole_gang"]
        self._stop_file = launch["stop_file"]
        self._ending = Ending(launch["grace_failure_s"], launch["kill_after_term_s"])
        self._agent = Channel(agent)
        self._agent_gone = False
        self._wake = wake
        self._journal = os.open(launch["journal"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._mpi = MpiCoordinator(launch["mpi"]) if launch["mpi"] else None
        self._awaited = set(self._mpi.ranks) if self._mpi else set()
        """Ranks that mpirun will start and that have not reported yet."""
        self._running: dict[int, Running] = {}
        self._signalled = False
        self._spared: list[processes.Process] = []
        """Processes that got no SIGTERM, because their parents got it."""
        self._waited = False
        """A failed rank blamed other ranks in its log."""
        self._interrupted: set[int] = set()
        """Ranks that mpirun has told to end."""
        self._deserted: tuple[str, float] | None = None
        """Launchers that ended before their ranks, and when to check for ranks that are left."""
        self._memory = MemoryWatch()
        self._sessions: set[int] = set()
        """Sessions of people in this attempt."""

    def run(self) -> None:
        self._record("keeper", pid=os.getpid())
        if self._mpi is not None and self._mpi.trouble:
            self._refuse_wrapped(self._mpi.trouble)
        else:
            self._start_ranks()
        while self._reap() or (self._awaited and not self._signalled):
            self._send_due_signals()
            self._wait()
        self._close_wrapped()
        self._record("ended", reason=self._ending.reason or "done")

    def _start_ranks(self) -> None:
        for launch in self._launches:
            try:
                pid = start_rank(launch)
            except Refused as refused:
                self._refuse(launch, refused)
                return
            self._running[pid] = Running(launch["rank"], launch["essential"])
            self._record("started", rank=launch["rank"], pid=pid)
        self._record("running")

    def _refuse(self, launch: LaunchRank, refused: Refused) -> None:
        """A gang that cannot start as a whole does not start."""
        line = f"muster: rank {launch['rank']} could not be started: {refused}\n".encode()
        try:
            log = os.open(launch["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            os.write(log, line)
            os.close(log)
        except OSError:
            pass
        self._record("refused", rank=launch["rank"], message=str(refused), exit_code=refused.exit_code)
        self._ending.stop(time.monotonic(), 0.0, "rank_failed")

    def _refuse_wrapped(self, trouble: str) -> None:
        """mpirun cannot start its ranks on this node."""
        assert self._mpi is not None
        self._awaited.clear()
        self._record("refused", rank=min(self._mpi.ranks), message=trouble, exit_code=126)
        self._ending.stop(time.monotonic(), 0.0, "rank_failed")

    def _reap(self) -> bool:
        """Collect the dead; False when no descendant is left (orphans become children of a sub-reaper)."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                self._read_wrappers()
                return False
            self._read_wrappers()
            if pid == 0:
                return True
            if self._mpi is not None and self._mpi.reaped(pid, status):
                self._deserted = ("daemon of mpirun", time.monotonic() + DESERTED_S)
                continue
            self._sessions.discard(pid)
            ended = self._running.pop(pid, None)
            if ended is None:
                continue
            self._exited(ended, status, usage.ru_maxrss, interrupted=ended.rank in self._interrupted)
            if self._mpi is not None and ended.essential and not ended.wrapped and status == 0:
                self._deserted = ("mpirun", time.monotonic() + DESERTED_S)

    def _read_wrappers(self) -> None:
        """Read what the wrapper of each rank of mpirun reports."""
        for entry in self._mpi.hear() if self._mpi else ():
            kind, rank = entry["kind"], entry["rank"]
            if kind == "interrupted":
                self._interrupted.add(rank)
            elif kind == "refused" and rank in self._awaited:
                self._awaited.discard(rank)
                self._record("refused", rank=rank, message=entry["message"], exit_code=entry["exit_code"])
                self._ending.failed(time.monotonic())
            elif kind == "started" and rank in self._awaited:
                self._awaited.discard(rank)
                self._running[entry["pid"]] = Running(rank, wrapped=True)
                self._record("started", rank=rank, pid=entry["pid"], at=entry["at"])
            elif kind == "exited":
                pid = next((pid for pid, running in self._running.items() if running.rank == rank), None)
                if pid is not None:
                    ended = self._running.pop(pid)
                    self._exited(ended, entry["status"], entry["max_rss_kb"], entry["interrupted"], entry["at"])

    def _lose_deserted(self, now: float) -> None:
        """mpirun or its daemon is gone; ranks that it should have waited for are lost, and with them the gang."""
        if self._deserted is None or now < self._deserted[1]:
            return
        lost_with, self._deserted = self._deserted[0], None
        left = self._awaited | {running.rank for running in self._running.values() if running.wrapped}
        if not left or self._signalled or self._interrupted:
            return
        lost = min(left)
        self._awaited.discard(lost)
        self._running = {pid: running for pid, running in self._running.items() if running.rank != lost}
        self._record("exited", rank=lost, exit_code=None, signal=None, expected=False, lost_with=lost_with)
        self._ending.failed(time.monotonic())

    def _close_wrapped(self) -> None:
        """No process is left: ranks of mpirun whose end nobody saw were lost with it."""
        for rank in [running.rank for running in self._running.values()]:
            expected = self._signalled or rank in self._interrupted
            self._record("exited", rank=rank, exit_code=None, signal=None, expected=expected, lost_with="mpirun")

    def _exited(self, ended: Running, status: int, max_rss_kb: int, interrupted: bool, at: float | None = None) -> None:
        """Record how a rank ended; `interrupted`: mpirun had told it to end."""
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        by_itself = ended.essential and code != 0 and not self._signalled and not interrupted
        said_at = stacks.last_said(self._logs.get(ended.rank, "")) if by_itself else None
        if by_itself and (launch := self._of(ended.rank)) is not None:
            stacks.collect(launch["log"], launch["env"].get("TMPDIR", ""), launch["cwd"])
        waited = by_itself and stacks.has_waited(self._logs.get(ended.rank, ""))
        self._record(
            "exited",
            at=clock.now() if at is None else at,
            rank=ended.rank,
            exit_code=code,
            signal=number,
            max_rss_kb=max_rss_kb,
            core_dumped=bool(number and os.WCOREDUMP(status)),
            expected=self._signalled or interrupted,
            oom_killed=code != 0 and not self._signalled and self._memory.killed(),
            waited=waited,
            **({"said_at": said_at} if said_at is not None else {}),
        )
        now = time.monotonic()
        if by_itself:
            self._waited = self._waited or waited
            self._ending.failed(now)
        # With ranks on other nodes too, only the server knows whether a helper here is still needed.
        needed = self._awaited or any(other.essential or not self._whole_gang for other in self._running.values())
        if not needed:
            # mpirun's daemon ends by itself, a moment after the last rank.
            self._ending.done(now + (DAEMON_PATIENCE_S if self._mpi and self._mpi.listen else 0.0))

    def _of(self, rank: int) -> LaunchRank | None:
        return next((launch for launch in self._launches if launch["rank"] == rank), None)

    def _send_due_signals(self) -> None:
        """Send the signals that are due."""
        now = time.monotonic()
        self._lose_deserted(now)
        if self._ending.terminating(now) and not self._signalled:
            self._show_stacks()
        if self._ending.killing(now):
            overdue_s = now - (self._ending.kill_at or now)
            self._announce("killing")
            processes.kill(self._descendants(), spare_cleaners=overdue_s < SPARE_CLEANERS_S)
        elif self._ending.terminating(now) and not self._signalled:
            # The processes are found first, which takes a while: signal and announcement should coincide.
            addressed = self._addressed()
            left_to_parent = [process for process in addressed if processes.is_part_of_parent(process)]
            # A session is a fork too, but not waited for: it ends what it started at once.
            signalled = self._running.keys() | self._sessions
            self._spared = [process for process in left_to_parent if process.pid not in signalled]
            self._announce("stopping")
            processes.terminate(set(addressed) - set(self._spared))
        elif self._spared:
            self._address_orphans()
        if self._mpi and self._signalled and not self._wrapped() and self._mpi.fell_silent():
            self._ending.hurry(now)

    def _show_stacks(self) -> None:
        """Have the remaining ranks dump their stacks, if that may explain why the attempt ends."""
        reason = self._ending.reason
        if reason in ("timeout", "rank_waited") or (reason == "rank_failed" and self._waited):
            ranks = {pid: running.rank for pid, running in self._running.items()}
            stacks.show(self._descendants(), ranks)

    def _announce(self, kind: str) -> None:
        if self._signalled:
            return
        self._signalled = True
        ranks = sorted(running.rank for running in self._running.values())
        entered = {below.pid for below in processes.descendants(self._sessions, processes.table())} | self._sessions
        known = entered | self._running.keys()
        left = [process.pid for process in self._descendants() if not process.dead and process.pid not in known]
        self._record(kind, reason=self._ending.reason, ranks=ranks, other_pids=left[:100])
        # Last, so that the signal follows at once: a script may check the file before its handler has run.
        try:
            os.close(os.open(self._stop_file, os.O_WRONLY | os.O_CREAT, 0o644))
        except OSError:
            pass

    def _descendants(self) -> list[processes.Process]:
        return processes.descendants([os.getpid()], processes.table())

    def _addressed(self) -> list[processes.Process]:
        """Who gets SIGTERM: all but mpirun and its helpers, which would kill the ranks during their grace period."""
        everything = processes.table()
        below = processes.descendants([os.getpid()], everything)
        if self._mpi is None:
            return below
        ranks = self._wrapped()
        own = [pid for pid in (*self._running.keys() - ranks, self._mpi.daemon) if pid is not None]
        helpers = {process.pid for process in processes.descendants(own, everything)} | set(own)
        helpers -= {process.pid for process in processes.descendants(ranks, everything)} | ranks
        return [process for process in below if process.pid not in helpers]

    def _address_orphans(self) -> None:
        """Signal spared processes whose parent has ended."""
        now = [(before, processes.read(before.pid)) for before in self._spared]
        self._spared = [before for before, process in now if process and process.parent == before.parent]
        processes.terminate(process for before, process in now if process and process.parent != before.parent)

    def _wrapped(self) -> set[int]:
        """Pids of living ranks that mpirun started."""
        return {pid for pid, running in self._running.items() if running.wrapped}

    def _wait(self) -> None:
        watched = [self._wake] if self._agent_gone else [self._wake, self._agent.fileno()]
        watched += self._mpi.descriptors() if self._mpi else []
        now = time.monotonic()
        wait_s = self._ending.wait_s(now, self._signalled)
        if self._deserted is not None:
            wait_s = DESERTED_S
        look_s = self._memory.wait_s(now)
        ready, _, _ = select.select(watched, [], [], look_s if wait_s is None else min(wait_s, look_s))
        self._memory.look(time.monotonic(), lambda: [process.pid for process in self._descendants()])
        if self._wake in ready:
            os.read(self._wake, 4096)
        if self._agent.fileno() in ready:
            self._listen()
        if self._mpi is not None and (trouble := self._mpi.serve(ready)):
            self._refuse_wrapped(trouble)

    def _listen(self) -> None:
        commands: list[StopCommand | SessionCommand] | None = self._agent.receive()
        if commands is None:
            self._agent_gone = True
            self._ending.stop(time.monotonic(), 0.0, "agent_lost")
            return
        for command in commands:
            if "session" in command:
                self._begin_session(command)
            else:
                self._ending.stop(time.monotonic(), command["grace_s"], command["reason"])

    def _begin_session(self, command: SessionCommand) -> None:
        """Begin a session; it ends with the ranks, because it is a descendant like any other."""
        descriptor = self._agent.take_descriptor()
        if descriptor is None:
            return
        if self._signalled:
            os.close(descriptor)
            return
        try:
            self._sessions.add(process.start(command, descriptor, self._session_ranks()))
        except OSError:
            os.close(descriptor)

    def _session_ranks(self) -> dict[int, SessionRank]:
        """The ranks that a session can enter. A rank of mpirun has the environment that mpirun gave it."""
        pids = {running.rank: pid for pid, running in self._running.items()}
        if self._mpi is not None:
            return {rank: session_rank_of(rank, pids[rank]) for rank in self._mpi.ranks if rank in pids}
        return {
            item["rank"]: SessionRank(item["rank"], item["env"], item["cwd"], pids.get(item["rank"]))
            for item in self._launches
        }

    def _record(self, kind: str, **data: Value) -> None:
        """Write a line to the journal and to the agent; neither a full disk nor a busy agent may block it."""
        line = entry_line(kind, **data)
        try:
            os.write(self._journal, line)
        except OSError:
            pass
        self._agent.send(line)
