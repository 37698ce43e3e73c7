"""A real Slurm on this machine, private to a test or a benchmark: munge, a controller and some nodes, no systemd."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

_NO_ACCOUNTS = "AccountingStorageType=accounting_storage/none\nJobAcctGatherType=jobacct_gather/none"
_ACCOUNTS = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={root}/munge.socket
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1"""
_DATABASE = """\
AuthType=auth/munge
AuthInfo=socket={root}/munge.socket
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser={user}
LogFile={root}/slurmdbd.log
PidFile={root}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct
"""
ACCOUNTING_PROGRAMS = ("slurmdbd", "mariadbd")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "sinfo", "scontrol", "scancel")
_PLACES = os.pathsep.join(("/usr/sbin", "/usr/local/sbin", os.environ.get("PATH", os.defpath)))
_PATIENCE_S = 30.0

_CONFIG = """\
ClusterName=muster
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={root}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool.%n
TmpFS={root}/tmp.%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
SlurmdParameters=config_overrides
SlurmctldTimeout=10
SlurmdTimeout=6
MessageTimeout=5
InactiveLimit=0
KillWait=5
MinJobAge=60
ReturnToService=2
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{accounting}
JobCompType=jobcomp/none
GresTypes=gpu
Licenses=fluent:4
{nodes}
PartitionName=batch Nodes={most} Default=YES MaxTime=60 PriorityTier=1 State=UP OverSubscribe=NO
PartitionName=short Nodes={last} MaxTime=1 PriorityTier=1 State=UP
PartitionName=urgent Nodes=ALL MaxTime=60 PriorityTier=10 PreemptMode=OFF State=UP
"""


def missing(programs: Sequence[str] = PROGRAMS) -> list[str]:
    """What a private Slurm needs and this machine lacks."""
    return [name for name in programs if shutil.which(name, path=_PLACES) is None]


class SlurmSite:
    """Daemons in a folder of their own; `environment` points Slurm's commands at them.

    The last node is the partition `short`, the others are `batch`; jobs of `urgent` preempt those of both.
    """

    def __init__(self, num_nodes: int = 5, cpus: int = 4, accounting: bool = False) -> None:
        # Short, because munge's socket path is limited.
        self.root = Path(tempfile.mkdtemp(prefix="msl-", dir="/tmp"))
        self.nodes = [f"n{index}" for index in range(1, num_nodes + 1)]
        self.config = self.root / "slurm.conf"
        self.cpus = cpus
        self._accounting = accounting
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._configure()

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.config)}

    def start(self) -> None:
        self._spawn(
            "munge",
            ["munged", "--foreground", "--force", f"--socket={self.root}/munge.socket", "--num-threads=2",
             f"--key-file={self.root}/munge.key", f"--pid-file={self.root}/munge.pid",
             f"--seed-file={self.root}/munge.seed", f"--log-file={self.root}/munge.log"],
        )  # fmt: skip
        self._wait(lambda: (self.root / "munge.socket").exists(), "munge")
        if self._accounting:
            self._start_accounting()
        self.start_controller()
        for node in self.nodes:
            self.start_node(node)
        self._wait(self._all_idle, "idle nodes")

    def _start_accounting(self) -> None:
        """A database and Slurm's daemon in front of it, with the account `lab` for whoever runs this."""
        data = self.root / "database"
        install = shutil.which("mariadb-install-db", path=_PLACES) or "mariadb-install-db"
        base = Path(install).resolve().parents[1]
        options = [
            f"--datadir={data}",
            "--auth-root-authentication-method=socket",
            "--skip-test-db",
            f"--basedir={base}",
        ]
        command = [install, "--no-defaults", *options]
        done = subprocess.run(command, env=self._env(), capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            raise RuntimeError(f"mariadb-install-db failed: {done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        socket_file, port = self.root / "database.socket", self._ports["database"]
        first = self.root / "first.sql"
        first.write_text(
            "CREATE USER slurm@'127.0.0.1' IDENTIFIED BY 'slurm';\nGRANT ALL ON *.* TO slurm@'127.0.0.1';\n"
        )
        self._spawn(
            "mariadb",
            ["mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={socket_file}", "--bind-address=127.0.0.1",
             f"--port={port}", "--skip-name-resolve", f"--init-file={first}",
             f"--user={getpass.getuser()}", f"--pid-file={self.root}/mariadb.pid", f"--basedir={base}"],
        )  # fmt: skip
        self._wait(socket_file.exists, "the database")
        self._spawn("slurmdbd", ["slurmdbd", "-D"])
        self._wait(lambda: "normal" in self.command("sacctmgr", "--noheader", "show", "qos", "format=name"), "slurmdbd")
        add = ("sacctmgr", "--immediate", "add")
        self.command(*add, "cluster", "muster")
        self.command(*add, "account", "lab")
        self.command(*add, "user", getpass.getuser(), "account=lab")

    def start_controller(self) -> None:
        self._spawn("slurmctld", ["slurmctld", "-D"])
        self._wait(lambda: "is UP" in self.command("scontrol", "ping"), "the controller")

    def has_saved(self, since: Path) -> bool:
        """Whether the controller has written its jobs down since a file was made."""
        record = self.root / "state" / "job_state"
        return record.exists() and record.stat().st_mtime > since.stat().st_mtime

    def kill_controller(self) -> None:
        self._end("slurmctld")

    def start_node(self, node: str) -> None:
        self._spawn(node, ["slurmd", "-D", "-N", node])

    def kill_node(self, node: str) -> None:
        """The daemon of a node dies; what it started works on, as it does on a machine that is only cut off."""
        self._end(node)

    def port_of(self, node: str) -> int:
        """Where the daemon of a node listens."""
        return self._node_ports[node]

    def command(self, *command: str) -> str:
        """What one of Slurm's commands prints."""
        done = subprocess.run(command, env=self._env(), capture_output=True, text=True, check=False, timeout=30)
        return done.stdout.strip()

    def close(self) -> None:
        self.command("scancel", "--full", "--user", getpass.getuser())
        with contextlib.suppress(TimeoutError):
            self._wait(lambda: not self.command("squeue", "-h"), "the end of the jobs")
        for name in reversed(list(self._daemons)):
            self._end(name)
        self._end_steps()
        shutil.rmtree(self.root, ignore_errors=True)

    def _end_steps(self) -> None:
        """What steps left whose node's daemon was killed: they wait for it for ever."""
        for process in psutil.process_iter(["name"]):
            with contextlib.suppress(psutil.Error):
                if process.info["name"] == "slurmstepd" and process.environ().get("SLURM_CONF") == str(self.config):
                    process.kill()

    def _all_idle(self) -> bool:
        return self.command("sinfo", "-h", "-t", "idle", "-p", "urgent", "-o", "%D") == str(len(self.nodes))

    def _configure(self) -> None:
        ports = _free_ports(len(self.nodes) + 3)
        self._node_ports = dict(zip(self.nodes, ports, strict=False))
        self._ports = {"slurmdbd": ports[-2], "database": ports[-3]}
        nodes = "\n".join(
            f"NodeName={node} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={port} CPUs={self.cpus} "
            "RealMemory=1000 Gres=gpu:2 State=UNKNOWN"
            for node, port in self._node_ports.items()
        )
        accounts = _ACCOUNTS.format(port=self._ports["slurmdbd"], root=self.root) if self._accounting else _NO_ACCOUNTS
        text = _CONFIG.format(
            accounting=accounts,
            host=socket.gethostname(),
            port=ports[-1],
            user=getpass.getuser(),
            root=self.root,
            nodes=nodes,
            most=",".join(self.nodes[:-1]),
            last=self.nodes[-1],
        )
        self.config.write_text(text)
        # Any two device files stand for GPUs: Slurm binds them by number.
        (self.root / "gres.conf").write_text("Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n")
        (self.root / "slurmdbd.conf").write_text(
            _DATABASE.format(
                host=socket.gethostname(),
                port=self._ports["slurmdbd"],
                database=self._ports["database"],
                user=getpass.getuser(),
                root=self.root,
            )
        )
        (self.root / "slurmdbd.conf").chmod(0o600)
        (self.root / "state").mkdir()
        # PMIx keeps a folder for each step there, under the same name on every node.
        for node in self.nodes:
            (self.root / f"tmp.{node}").mkdir()
        key = self.root / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)

    def _spawn(self, name: str, command: Sequence[str]) -> None:
        program = shutil.which(command[0], path=_PLACES) or command[0]
        with (self.root / f"{name}.out").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                [program, *command[1:]], env=self._env(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/"
            )

    def _end(self, name: str) -> None:
        daemon = self._daemons.pop(name, None)
        if daemon is not None:
            daemon.kill()
            daemon.wait()

    def _env(self) -> dict[str, str]:
        return {**os.environ, **self.environment, "PATH": _PLACES}

    def _wait(self, condition: object, what: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():  # type: ignore[operator]
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} did not come within {_PATIENCE_S:g} s; see {self.root}")
            time.sleep(0.05)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
