"""Restricts ports of a node, including those of ranks, to its cluster's subnet, whatever framework opened them.

Frameworks listen on every interface, and few can be configured otherwise. The agent, an ancestor of their processes,
duplicates each listening socket and attaches a filter; the kernel then drops packets from elsewhere.
"""

from __future__ import annotations

import ctypes
import errno
import ipaddress
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

from muster.host import processes
from muster.host.network import Network, answer_only, network_of

log = logging.getLogger(__name__)

LOOK_S = 0.25
_LISTENS = "0A"
_SOCKET = re.compile(r"socket:\[([0-9]+)\]")
_PIDFD_GETFD = 438
_TABLES = ("/proc/self/net/tcp", "/proc/self/net/tcp6")


class Fence(threading.Thread):
    """Finds sockets that have begun to listen since the last scan."""

    def __init__(self, subnet: Network) -> None:
        super().__init__(name="fence", daemon=True)
        self._subnet = subnet
        self._known: frozenset[str] = frozenset()

    def run(self) -> None:
        while True:
            try:
                self.look()
            except Exception:
                log.exception("ports could not be scanned")
            time.sleep(LOOK_S)

    def look(self) -> None:
        """Restrict sockets that are new since the last scan."""
        listening = frozenset(_listening())
        new = listening - self._known
        if new:
            own_pids = [process.pid for process in processes.descendants([os.getpid()], processes.table())]
            self._close(own_pids, set(new))
        self._known = listening

    def _close(self, pids: Iterable[int], wanted: set[str]) -> None:
        allowed = [self._subnet, *_own_addresses()]
        for pid, descriptor, inode in _sockets(pids):
            if inode not in wanted:
                continue
            wanted.discard(inode)
            try:
                copy = _copy(pid, descriptor)
            except ProcessLookupError:
                continue
            except OSError as error:
                log.warning("a port of process %d cannot be closed to others: %s", pid, error.strerror)
                continue
            with copy:
                self._attach(copy, allowed, pid)

    def _attach(self, listener: socket.socket, allowed: list[Network], pid: int) -> None:
        try:
            answer_only(listener, allowed)
            log.info("%s of process %d answers only %s", listener.getsockname()[:2], pid, self._subnet)
        except OSError as error:
            what = "is open to all, as its owner wants it" if error.errno == errno.EPERM else f"stays open: {error}"
            log.info("%s of process %d %s", listener.getsockname()[:2], pid, what)


def start_fence(subnet: str | None) -> None:
    """Restrict ports to a subnet from now on, where one is known and the system has such filters."""
    network = network_of(subnet)
    if network is not None and Path(_TABLES[0]).exists():
        Fence(network).start()


def _listening() -> Iterator[str]:
    """The inodes of sockets that listen on other addresses than loopback."""
    for table in _TABLES:
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except FileNotFoundError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTENS and not fields[1].startswith(("0100007F:", f"{'0' * 24}01000000:")):
                yield fields[9]


def _sockets(pids: Iterable[int]) -> Iterator[tuple[int, int, str]]:
    """Process, descriptor and inode of every socket of these processes."""
    for pid in pids:
        try:
            entries = list(os.scandir(f"/proc/{pid}/fd"))
        except OSError:
            continue
        for entry in entries:
            try:
                found = _SOCKET.fullmatch(str(Path(entry.path).readlink()))
            except OSError:
                continue
            if found is not None:
                yield pid, int(entry.name), found[1]


def _copy(pid: int, descriptor: int) -> socket.socket:
    """A duplicate of a process's socket."""
    process = os.pidfd_open(pid)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        copied = libc.syscall(_PIDFD_GETFD, process, descriptor, 0)
        if copied < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(process)
    return socket.socket(fileno=copied)


def _own_addresses() -> Iterator[Network]:
    """This machine's own addresses, any of which a process may use to reach another one here."""
    for entries in psutil.net_if_addrs().values():
        for entry in entries:
            if entry.family in (socket.AF_INET, socket.AF_INET6):
                yield ipaddress.ip_network(entry.address.split("%")[0])
