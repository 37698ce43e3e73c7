"""The process of one session: forked from the keeper, holds the tunnel's end, and leaves nothing behind."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Mapping

from muster.agent.run.records import SessionCommand
from muster.agent.run.sessions import port, python_stacks, shell
from muster.agent.run.sessions.carrier import Carrier, Trouble
from muster.agent.run.sessions.session_rank import SessionRank
from muster.host import processes

_LAST_WORDS_S = 0.5
_PASS_S = 0.01
_MOST_OPEN = 65_536


def start(command: SessionCommand, descriptor: int, ranks: Mapping[int, SessionRank]) -> int:
    """The pid of a child that runs a session; it takes over the descriptor."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(command, descriptor, ranks, parent)
    os.close(descriptor)
    return pid


def _become(command: SessionCommand, descriptor: int, ranks: Mapping[int, SessionRank], parent: int) -> None:
    """In the child: never returns."""
    try:
        os.setsid()
        processes.die_with_parent(parent)
        _forget_keeper(descriptor)
        processes.become_subreaper()
        processes.set_name("muster-session")
        _carry(command, Carrier(socket.socket(fileno=descriptor)), ranks)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _forget_keeper(kept: int) -> None:
    """Close the keeper's descriptors: its locks and its channel to the agent must end with it alone."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.closerange(3, kept)
    os.closerange(kept + 1, max(kept + 1, _MOST_OPEN))


def _carry(command: SessionCommand, carrier: Carrier, ranks: Mapping[int, SessionRank]) -> None:
    signal.signal(signal.SIGTERM, lambda *_: carrier.stop())
    # Only a signal with a handler wakes the carrier: output mostly ends a moment before the process that wrote it.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        if command["session"] == "stacks":
            python_stacks.carry(command, carrier, ranks)
            return
        target = _pick(command["rank"], ranks)
        if command["session"] == "port":
            port.carry(command, carrier, target)
        else:
            shell.carry(command, carrier, target)
    except Trouble as trouble:
        carrier.say_trouble(str(trouble))
        carrier.finish(_LAST_WORDS_S)
    finally:
        end_all_below()


def _pick(rank: int | None, ranks: Mapping[int, SessionRank]) -> SessionRank:
    if rank is None and ranks:
        rank = min(ranks)
    if rank not in ranks or rank is None:
        raise Trouble(f"rank {rank} is not running here")
    return ranks[rank]


def end_all_below() -> None:
    """Kill all remaining processes of the session; orphans have become this process's children."""
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        processes.kill(processes.descendants([os.getpid()], processes.table()))
        select.select([], [], [], _PASS_S)
