"""The process that serves a file server's data over NFS: nfs-ganesha where it can run, else Muster's own."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address, ip_network

from muster.fileserver import ganesha
from muster.fileserver.folder import Impossible, write_private
from muster.fileserver.nfs.serving import Settings
from muster.host.files import write_json
from muster.host.processes import die_with_parent
from muster.paths import FileServerPaths
from muster.wire.codec import to_json

NFS_PORT = 2049
_NFS_PROGRAM, _NFS_VERSION = 100003, 4
_READY_S = 30.0
_ANSWER_S = 5.0
_END_S = 5.0


@dataclass(frozen=True)
class Export:
    """What is served, where, and to whom."""

    name: str
    host: str
    port: int
    clients: str


@dataclass(frozen=True)
class Program:
    """The program that serves."""

    shown: str
    ganesha: str | None = None
    """The path of nfs-ganesha; None: Muster's own server."""

    def command(self, paths: FileServerPaths, export: Export) -> list[str]:
        """Its command line; its configuration is written to the folder."""
        if self.ganesha is not None:
            text = ganesha.configuration(paths, export.name, export.host, export.port, export.clients)
            write_private(paths.config, text)
            return [self.ganesha, "-F", "-f", str(paths.config), "-L", str(paths.log), "-p", str(paths.pid)]
        settings = Settings(export.name, str(paths.data), export.host, export.port, export.clients)
        write_json(paths.settings, to_json(settings))
        return [sys.executable, "-m", "muster.fileserver.nfs", str(paths.settings), str(paths.log)]


def chosen(paths: FileServerPaths) -> Program:
    """nfs-ganesha, the faster one, if it is installed, may run, and can serve the folder; otherwise our own."""
    program, why = ganesha.find_program(paths)
    return Program("nfs-ganesha", program) if program else Program(f"Muster's own server, since {why}")


def check_host(host: str, clients: str) -> None:
    """Refuse an address that would open the data to a public network, or one that no client could reach."""
    address, network = ip_address(host), ip_network(clients, strict=False)
    if not address.is_private:
        raise Impossible(
            f"the node's address {host} is public, and NFS neither encrypts nor asks for a password. Put the cluster "
            "into a private network, and give the node's private address."
        )
    if address.is_loopback and not network.is_loopback:
        raise Impossible(
            f"the node's address is {host}, which no other machine reaches, and {clients} is to read from it. Use a "
            "cluster on machines of their own, or leave --clients out."
        )


def free_port(host: str, kept: int) -> int:
    """The port that it had, or the one that clients expect, or any."""
    expected = 0 if ip_address(host).is_loopback else NFS_PORT
    for port in dict.fromkeys((kept, expected, 0)):
        if port == 0 and port == kept and expected:
            continue
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise Impossible(f"no port of {host} can be used: it is not an address of this node.")


class Process:
    """One process of the NFS server."""

    def __init__(self, command: Sequence[str], paths: FileServerPaths, export: Export) -> None:
        self._export = export
        self._paths = paths
        paths.log.unlink(missing_ok=True)
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # The kernel ends it with us, however we end.
            preexec_fn=partial(die_with_parent, os.getpid()),
        )

    @property
    def pid(self) -> int:
        return self._child.pid

    def wait_ready(self, ended: float = _READY_S) -> bool:
        """Wait until it answers; False if it ends or takes too long."""
        deadline = time.monotonic() + ended
        while time.monotonic() < deadline and self._child.poll() is None:
            if answers(self._export.host, self._export.port):
                return True
            time.sleep(0.05)
        return False

    def exit_code(self) -> int | None:
        return self._child.poll()

    def answers(self) -> bool:
        return answers(self._export.host, self._export.port)

    def end(self) -> None:
        if self._child.poll() is None:
            self._child.terminate()
            try:
                self._child.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._child.send_signal(signal.SIGKILL)
                self._child.wait()

    def last_lines(self, count: int = 5) -> list[str]:
        """Its last messages, without those that it always writes."""
        try:
            lines = self._paths.log.read_text(errors="replace").splitlines()
        except OSError:
            return []
        told = [line.split(" :", 1)[-1] for line in lines if re.search(r":(CRIT|CRITICAL|FATAL|MAJ|WARN) :", line)]
        return [line for line in told if "DBUS" not in line and "krb5" not in line][-count:]


def answers(host: str, port: int) -> bool:
    """Whether an NFS server of version 4 answers a null call."""
    call = struct.pack(">IIIIIIIIII", 0x6D757374, 0, 2, _NFS_PROGRAM, _NFS_VERSION, 0, 0, 0, 0, 0)
    try:
        with socket.create_connection((host, port), _ANSWER_S) as connection:
            connection.sendall(struct.pack(">I", 0x80000000 | len(call)) + call)
            found = _exactly(connection, 28)
    except OSError:
        return False
    # Record, id, reply, accepted, no verifier (two words), success.
    return struct.unpack(">IIIIIII", found)[1:] == (0x6D757374, 1, 0, 0, 0, 0)


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        piece = connection.recv(count - len(found))
        if not piece:
            raise ConnectionError("it closed the connection")
        found += piece
    return found
