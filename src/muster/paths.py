"""Every path on disk that Muster owns. Standard library only."""

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from muster.host.locks import FileLock


def user_runtime_dir() -> Path:
    """A short, private, host-local folder for sockets."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    if base and os.access(base, os.W_OK) and len(base) < 40:
        return Path(base) / "muster"
    return Path(tempfile.gettempdir()) / f"muster-{os.getuid()}"


def environments_dir() -> Path:
    """Built environments of this user on this host; MUSTER_ENVIRONMENTS_DIR moves it."""
    return _cache_dir("MUSTER_ENVIRONMENTS_DIR", "environments")


def data_cache_dir() -> Path:
    """Staged data, shared by all agents of a user on a host; MUSTER_CACHE_DIR puts it on another disk."""
    return _cache_dir("MUSTER_CACHE_DIR", "data")


def file_servers_dir() -> Path:
    """What file servers on this host hold, unless they are given a folder."""
    return Path.home() / ".local" / "share" / "muster" / "fileservers"


def _cache_dir(variable: str, name: str) -> Path:
    if chosen := os.environ.get(variable):
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muster" / name


def shared_memory_dir(attempt: Path) -> Path:
    """In memory: where the ranks of an attempt meet on a node; killed ones leave it to be removed."""
    return Path("/dev/shm") / f"muster-{hashlib.sha256(str(attempt).encode()).hexdigest()[:16]}"


def host_ports_dir() -> Path:
    """Shared by all users of a host, so that ports are held host-wide."""
    return Path("/tmp/muster-ports")


class _Below:
    """An attribute that is a path below its owner's `root`."""

    def __init__(self, inner: str) -> None:
        self._inner = inner

    def __get__(self, owner: "WorkspacePaths | NodePaths | AttemptPaths | FileServerPaths", kind: type) -> Path:
        return owner.root / self._inner


@dataclass(frozen=True)
class WorkspacePaths:
    """A workspace folder (`.muster`)."""

    root: Path

    config = _Below("workspace.json")
    server_dir = _Below("server")
    database = _Below("server/muster.db")
    server_lock = _Below("server/server.lock")
    start_lock = _Below("server/start.lock")
    server_info = _Below("server/server.json")
    """Where the running server listens; mode 0600."""
    server_log = _Below("server/server.log")
    backups = _Below("server/backups")
    """Copies of the database that the server makes by itself."""
    clock = _Below("server/clock.json")
    """How the server's clock stood."""
    reserve = _Below("server/reserve")
    """Room for a server that starts on a full disk."""
    admin_token = _Below("server/admin.token")
    tls_dir = _Below("server/tls")
    portal_port = _Below("server/portal.port")
    """The port of this machine that browsers use."""
    telemetry = _Below("server/telemetry.json")
    """How far the export of each run to a collector is."""
    store = _Below("store")
    nodes = _Below("nodes")
    handed_on = _Below("handed-on")
    """What the scripts print that were handed to somebody else's queue."""
    spool = _Below("spool")
    """Calls of agents that cannot reach the server, and its answers; mode 0700."""

    def node(self, name: str) -> "NodePaths":
        return NodePaths(self.nodes / name)


@dataclass(frozen=True)
class NodePaths:
    """The folder of one node agent."""

    root: Path

    config = _Below("agent.json")
    """What the engine tells the agent (AgentConfig); mode 0600, holds the token."""
    lock = _Below("agent.lock")
    """Held by the living agent: a second one exits at once."""
    seen = _Below("agent.seen")
    """There once a server on another machine saw the lock held: it then also sees when nobody holds it any more."""
    log = _Below("agent.log")
    contact = _Below("contact.json")
    """Whether the agent has reached the server, and what it met instead (ServerContact)."""
    setup_log = _Below("setup.log")
    """What the node's set-up command printed."""
    setup_done = _Below("setup.done")
    """The hash of the set-up command that has succeeded here."""
    runtime = _Below("runtime")
    """Holds a copy of the standard-library runtime; goes on PYTHONPATH of ranks."""
    containers_used = _Below("containers-used")
    """There once an attempt ran in a container: a later agent then looks for some that were left."""
    code_cache = _Below("cache/code")
    data_cache = _Below("cache/data")
    """Staged data of a node that keeps it to itself; others use the host's."""
    environments = _Below("cache/environments")
    """Built environments of such a node."""
    attempts = _Below("attempts")

    def agent_lives(self) -> bool:
        """Whether an agent holds the lock; where that cannot be known, as if it did."""
        return not FileLock(self.lock).is_free(shared=True)

    def attempt(self, run: str, number: int) -> "AttemptPaths":
        return AttemptPaths(self.attempts / f"{run}.{number}")


@dataclass(frozen=True)
class AttemptPaths:
    """One attempt of a run on one node."""

    root: Path

    order = _Below("order.json")
    launch = _Below("launch.json")
    """What the keeper starts."""
    container = _Below("container.json")
    """The container that the keeper starts it in; absent where there is none."""
    journal = _Below("journal.jsonl")
    """What the keeper saw: starts, exits, its own end."""
    delivered = _Below("delivered.json")
    """How much of each stream the server has."""
    work = _Below("work")
    tmp = _Below("tmp")
    home = _Below("home")
    """What ranks in a container or a sandbox find as HOME."""
    added = _Below("pip")
    """What a command adds with pip: others use the same environment."""
    mpi = _Below("mpi")
    """Tables and programs around mpirun."""
    inside = _Below("inside")
    """What passes between the keepers outside and inside of a container: a socket, and the stop file."""
    inputs = _Below("inputs")
    mounts = _Below("mounts")
    """Shares that its cluster mounts, by name."""
    uploads = _Below("uploads")
    """Files that the script uploads by name while it runs."""
    out = _Below("out")
    """Outputs that go to a datastore, by name."""
    sent_outputs = _Below("outputs.json")
    """What was sent of them while the job ran."""
    checkpoints = _Below("checkpoints")
    resume = _Below("resume")
    """The checkpoint that this attempt resumes from."""
    streams = _Below("streams")
    """Growing files shipped by offset: logs (`user_logs/…`) and events (`events/…`)."""


@dataclass(frozen=True)
class FileServerPaths:
    """The folder of one file server on its node."""

    root: Path

    owner = _Below("owner.json")
    """Whose it is, so that no other server's folder is taken for it."""
    data = _Below("data")
    """What is served."""
    state = _Below("state")
    """Mode 0700: configuration and log of the NFS server, and how far fills are."""
    lock = _Below("state/lock")
    config = _Below("state/ganesha.conf")
    settings = _Below("state/nfs.json")
    """The same for Muster's own NFS server."""
    log = _Below("state/nfs.log")
    pid = _Below("state/ganesha.pid")
    recovery = _Below("state/recovery")
    """What the NFS server remembers of its clients over a restart."""
    fills = _Below("state/fills")
