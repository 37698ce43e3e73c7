"""Ports held host-wide: a file lock per port, shared by all users, agents and workspaces of a machine.

The lock's descriptor travels to the keeper, so the port stays held until the ranks are gone.
"""

from __future__ import annotations

import errno
import socket
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from muster.agent.refusal import Refusal
from muster.host.locks import FileLock, HeldLock
from muster.paths import host_ports_dir

_UPWARDS = 500
_EPHEMERAL_TRIES = 200


class HeldPort(NamedTuple):
    port: int
    lock: HeldLock
    """The port is free again when every copy of its descriptor is closed."""


def hold(
    count: int, preferred: int = 0, avoid: Collection[int] = (), folder: Path | None = None, chosen: int | None = None
) -> list[HeldPort]:
    """Hold `count` free ports: the preferred one and those above it first, then any; raises if `chosen` is not free."""
    if count == 0:
        return []
    folder = folder or host_ports_dir()
    _make_folder(folder)
    held: list[HeldPort] = []
    for port in _candidates(preferred):
        if (port in avoid and port != chosen) or any(port == other.port for other in held):
            continue
        lock = FileLock(folder / str(port), all_users=True).try_acquire()
        if lock is None:
            if port == chosen:
                raise _taken(port, "another job on this machine holds it")
            continue
        if not _is_free(port):
            lock.release()
            if port == chosen:
                raise _taken(port, f"another program listens there{_listener(port)}")
            continue
        held.append(HeldPort(port, lock))
        if len(held) == count:
            return held
    for other in held:
        other.lock.release()
    raise _trouble(
        f"no {count} free ports were found (asked for {preferred or 'any'}, tried {_UPWARDS} above it and others). "
        f"End what listens there, or set MASTER_PORT to a free port."
    )


def _taken(port: int, why: str) -> Refusal:
    return _trouble(
        f"MASTER_PORT is {port} as the job asks, and {why}. "
        "End it, choose a free port, or leave MASTER_PORT out: Muster finds one."
    )


def _trouble(message: str) -> Refusal:
    return Refusal("port_trouble", message)


def _candidates(preferred: int) -> Iterator[int]:
    if preferred:
        yield from range(preferred, min(preferred + _UPWARDS, 65536))
    for _ in range(_EPHEMERAL_TRIES):
        with socket.socket() as probe:
            probe.bind(("0.0.0.0", 0))
            port = probe.getsockname()[1]
        yield port


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir()
        folder.chmod(0o1777)
    except FileExistsError:
        pass
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise _trouble(f"{folder} is not a folder, so ports cannot be held. Remove it.")


def _is_free(port: int) -> bool:
    return _can_listen(socket.AF_INET, "0.0.0.0", port) and _can_listen(socket.AF_INET6, "::", port)


def _listener(port: int) -> str:
    """Who listens on a port, as far as this user can see."""
    try:
        found = [
            item for item in psutil.net_connections("tcp") if item.status == "LISTEN" and item.laddr[1:] == (port,)
        ]
        pids = sorted({item.pid for item in found if item.pid})
        return f" ({', '.join(f'{psutil.Process(pid).name()}, process {pid}' for pid in pids)})" if pids else ""
    except psutil.Error:
        return ""


def _can_listen(family: int, address: str, port: int) -> bool:
    try:
        probe = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        # No such address family on this machine: nothing can take the port there.
        return family == socket.AF_INET6
    with probe:
        # As frameworks do: a port whose last connections linger in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((address, port))
            probe.listen(1)
        except OSError as error:
            return family == socket.AF_INET6 and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    return True
