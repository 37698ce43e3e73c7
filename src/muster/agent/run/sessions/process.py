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
from muster.agent.run.sessions.place import Place
from muster.host import processes

_LAST_WORDS_S = 0.5
_PASS_S = 0.01
_MOST_OPEN = 65_536


def start(command: SessionCommand, descriptor: int, places: Mapping[int, Place]) -> int:
    """The pid of a child that carries a session; the descriptor is the child's from then on."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(command, descriptor, places, parent)
    os.close(descriptor)
    return pid


def _become(command: SessionCommand, descriptor: int, places: Mapping[int, Place], parent: int) -> None:
    """In the child: never returns."""
    try:
        os.setsid()
        processes.die_with_parent(parent)
        _forget_keeper(descriptor)
        processes.become_subreaper()
        processes.set_name("muster-session")
        _carry(command, Carrier(socket.socket(fileno=descriptor)), places)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _forget_keeper(kept: int) -> None:
    """Close what the keeper has open: its locks and its word with the agent must end with it alone."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.closerange(3, kept)
    os.closerange(kept + 1, max(kept + 1, _MOST_OPEN))


def _carry(command: SessionCommand, carrier: Carrier, places: Mapping[int, Place]) -> None:
    signal.signal(signal.SIGTERM, lambda *_: carrier.stop())
    # Only a signal that has a handler wakes the carrier: output mostly ends a moment before the process that wrote it.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        if command["session"] == "stacks":
            python_stacks.carry(command, carrier, places)
            return
        place = _place(command["rank"], places)
        if command["session"] == "port":
            port.carry(command, carrier, place)
        else:
            shell.carry(command, carrier, place)
    except Trouble as trouble:
        carrier.say_trouble(str(trouble))
        carrier.finish(_LAST_WORDS_S)
    finally:
        end_all_below()


def _place(rank: int | None, places: Mapping[int, Place]) -> Place:
    if rank is None and places:
        rank = min(places)
    if rank not in places or rank is None:
        raise Trouble(f"rank {rank} is not running here")
    return places[rank]


def end_all_below() -> None:
    """Kill what is left of all that the session started; orphans have become this process's children."""
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        processes.kill(processes.descendants([os.getpid()], processes.table()))
        select.select([], [], [], _PASS_S)
