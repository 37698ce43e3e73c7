"""nfs-ganesha: its configuration, and the process."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import time
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address, ip_network

from muster.fileserver.folder import Impossible, write_private
from muster.host.processes import die_with_parent
from muster.paths import FileServerPaths

PROGRAM = "ganesha.nfsd"
NFS_PORT = 2049
_NFS_PROGRAM, _NFS_VERSION = 100003, 4
_READY_S = 30.0
_ANSWER_S = 5.0
_END_S = 5.0
_SYSTEM = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
_PLAIN_PATH = re.compile(r"/[^\"\n;{}#]*")


@dataclass(frozen=True)
class Export:
    """What is served, where, and to whom."""

    name: str
    host: str
    port: int
    clients: str


def configuration(paths: FileServerPaths, export: Export) -> str:
    """The server's own file: version 4 alone, over TCP, read-only, and for nobody outside of `clients`."""
    if not _PLAIN_PATH.fullmatch(str(paths.root)):
        raise Impossible(f"{paths.root} has letters that {PROGRAM} cannot read. Give another --folder.")
    clients = ", ".join(dict.fromkeys((export.clients, "127.0.0.1")))
    return f"""\
NFS_CORE_PARAM {{
    Bind_Addr = {export.host};
    NFS_Port = {export.port};
    Protocols = 4;
    Enable_NLM = false;
    Enable_RQUOTA = false;
    Enable_UDP = none;
}}
NFSv4 {{
    Graceless = true;
    Minor_Versions = 0, 1, 2;
    Only_Numeric_Owners = true;
    RecoveryBackend = fs;
    RecoveryRoot = "{paths.recovery}";
}}
EXPORT {{
    Export_Id = 1;
    Path = "{paths.data}";
    Pseudo = "/{export.name}";
    Protocols = 4;
    Transports = TCP;
    SecType = sys;
    Squash = All_Squash;
    Access_Type = NONE;
    FSAL {{ Name = VFS; }}
    CLIENT {{ Clients = {clients}; Access_Type = RO; }}
}}
LOG {{ Default_Log_Level = EVENT; }}
"""


def find_program() -> str:
    """The NFS server; Impossible where it is not there, or may not run."""
    program = shutil.which(PROGRAM, path=f"{os.environ.get('PATH', '')}:{_SYSTEM}")
    if program is None:
        raise Impossible(
            f"this node has no {PROGRAM}. Install it: `apt-get install nfs-ganesha nfs-ganesha-vfs` on Debian and "
            "Ubuntu, `dnf install nfs-ganesha-vfs` on Fedora; then `muster fileserver restart`."
        )
    if os.geteuid() != 0:
        raise Impossible(
            f"the agent of this node runs as user {os.geteuid()}, and {PROGRAM} opens files by their handles, which "
            "only root may. Use a cluster whose agents run as root, or a share of your own: "
            "`muster datastore create NAME --nfs FOLDER`."
        )
    return program


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
    """One life of the NFS server."""

    def __init__(self, program: str, paths: FileServerPaths, export: Export) -> None:
        self._export = export
        self._paths = paths
        write_private(paths.config, configuration(paths, export))
        paths.log.unlink(missing_ok=True)
        self._child = subprocess.Popen(
            [program, "-F", "-f", str(paths.config), "-L", str(paths.log), "-p", str(paths.pid)],
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
        """Whether it answers, after a while at the most."""
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
        """What it wrote last, without what it always complains of."""
        try:
            lines = self._paths.log.read_text(errors="replace").splitlines()
        except OSError:
            return []
        told = [line.split(" :", 1)[-1] for line in lines if re.search(r":(CRIT|FATAL|MAJ|WARN) :", line)]
        return [line for line in told if "DBUS" not in line and "krb5" not in line][-count:]


def answers(host: str, port: int) -> bool:
    """Whether an NFS server of version 4 answers the call that does nothing."""
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
