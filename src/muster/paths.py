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
    chosen = os.environ.get("MUSTER_ENVIRONMENTS_DIR")
    if chosen:
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "muster" / "environments"


def data_cache_dir() -> Path:
    """Staged data, shared by all agents of a user on a host; MUSTER_CACHE_DIR puts it on another disk."""
    given = os.environ.get("MUSTER_CACHE_DIR")
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(given) if given else (Path(base) if base else Path.home() / ".cache") / "muster" / "data"


def shared_memory_dir(attempt: Path) -> Path:
    """In memory: where the ranks of an attempt meet on a node; killed ones leave it to be removed."""
    return Path("/dev/shm") / f"muster-{hashlib.sha256(str(attempt).encode()).hexdigest()[:16]}"


def host_ports_dir() -> Path:
    """Shared by all users of a host, so that ports are held host-wide."""
    return Path("/tmp/muster-ports")


@dataclass(frozen=True)
class WorkspacePaths:
    """A workspace folder (`.muster`)."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "workspace.json"

    @property
    def server_dir(self) -> Path:
        return self.root / "server"

    @property
    def database(self) -> Path:
        return self.server_dir / "muster.db"

    @property
    def server_lock(self) -> Path:
        return self.server_dir / "server.lock"

    @property
    def start_lock(self) -> Path:
        return self.server_dir / "start.lock"

    @property
    def server_info(self) -> Path:
        """Where the running server listens; mode 0600."""
        return self.server_dir / "server.json"

    @property
    def server_log(self) -> Path:
        return self.server_dir / "server.log"

    @property
    def admin_token(self) -> Path:
        return self.server_dir / "admin.token"

    @property
    def tls_dir(self) -> Path:
        return self.server_dir / "tls"

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def nodes(self) -> Path:
        return self.root / "nodes"

    @property
    def handed_on(self) -> Path:
        """What the scripts print that were handed to somebody else's queue."""
        return self.root / "handed-on"

    @property
    def spool(self) -> Path:
        """Calls of agents that cannot reach the server, and its answers; mode 0700."""
        return self.root / "spool"

    def node(self, name: str) -> "NodePaths":
        return NodePaths(self.nodes / name)


@dataclass(frozen=True)
class NodePaths:
    """The folder of one node agent."""

    root: Path

    @property
    def config(self) -> Path:
        """What the engine tells the agent (AgentConfig); mode 0600, holds the token."""
        return self.root / "agent.json"

    @property
    def lock(self) -> Path:
        """Held by the living agent: a second one exits at once."""
        return self.root / "agent.lock"

    def agent_lives(self) -> bool:
        """Whether an agent holds the lock; where that cannot be known, as if it did."""
        return not FileLock(self.lock).is_free(shared=True)

    @property
    def log(self) -> Path:
        return self.root / "agent.log"

    @property
    def setup_log(self) -> Path:
        """What the node's set-up command printed."""
        return self.root / "setup.log"

    @property
    def setup_done(self) -> Path:
        """The hash of the set-up command that has succeeded here."""
        return self.root / "setup.done"

    @property
    def runtime(self) -> Path:
        """Holds a copy of the standard-library runtime; goes on PYTHONPATH of ranks."""
        return self.root / "runtime"

    @property
    def containers_used(self) -> Path:
        """There once an attempt ran in a container: a later agent then looks for some that were left."""
        return self.root / "containers-used"

    @property
    def code_cache(self) -> Path:
        return self.root / "cache" / "code"

    @property
    def attempts(self) -> Path:
        return self.root / "attempts"

    def attempt(self, run: str, number: int) -> "AttemptPaths":
        return AttemptPaths(self.attempts / f"{run}.{number}")


@dataclass(frozen=True)
class AttemptPaths:
    """One attempt of a run on one node."""

    root: Path

    @property
    def order(self) -> Path:
        return self.root / "order.json"

    @property
    def launch(self) -> Path:
        """What the keeper starts."""
        return self.root / "launch.json"

    @property
    def container(self) -> Path:
        """The container that the keeper starts it in; absent where there is none."""
        return self.root / "container.json"

    @property
    def journal(self) -> Path:
        """What the keeper saw: starts, exits, its own end."""
        return self.root / "journal.jsonl"

    @property
    def delivered(self) -> Path:
        """How much of each stream the server has."""
        return self.root / "delivered.json"

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def tmp(self) -> Path:
        return self.root / "tmp"

    @property
    def inputs(self) -> Path:
        return self.root / "inputs"

    @property
    def uploads(self) -> Path:
        """Files that the script uploads by name while it runs."""
        return self.root / "uploads"

    @property
    def out(self) -> Path:
        """Outputs that go to a datastore, by name."""
        return self.root / "out"

    @property
    def sent_outputs(self) -> Path:
        """What was sent of them while the job ran."""
        return self.root / "outputs.json"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def resume(self) -> Path:
        """The checkpoint that this attempt resumes from."""
        return self.root / "resume"

    @property
    def streams(self) -> Path:
        """Growing files shipped by offset: logs (`user_logs/…`) and events (`events/…`)."""
        return self.root / "streams"
