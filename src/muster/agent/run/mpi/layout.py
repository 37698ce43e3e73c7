"""From a node's plan to the files that mpirun, its daemons and the ranks' wrappers use on the node."""

from __future__ import annotations

import ipaddress
import marshal
import os
import shlex
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import muster.agent
from muster.agent.refusal import Refusal
from muster.agent.run.mpi.find import Found
from muster.agent.run.records import LaunchMpi, RankTable, RemoteTable
from muster.errors import JobError
from muster.host.files import PRIVATE, write_file, write_json
from muster.launch.expand import Variable, expand, parse
from muster.launch.mpi import (
    OPEN_MPI,
    RANK_PROGRAM,
    REMOTE_PROGRAM,
    SLURM,
    STAND_IN_PROGRAM,
    Host,
    command,
    named,
    srun_command,
    without_batch_system,
)
from muster.paths import AttemptPaths, shared_memory_dir
from muster.wire.node.plan import NodePlan, RankPlan

# Known only once mpirun has started the rank.
_SET_BY_LAUNCHER = ("OMPI_", "PMIX_", "PMI_", "MPI_", "PRTE_", "I_MPI_")
_SEGMENT_SETTINGS = ("OMPI_MCA_btl_sm_backing_directory", "OMPI_MCA_btl_vader_backing_directory")
# Supported since Python 3.4.
_MARSHAL_VERSION = 4
_OF_ONE_RANK = ("OMPI_COMM_WORLD_", "MUSTER_EVENTS_FILE", "OMPI_MCA_orte_hnp_uri")

Wrapped = Sequence[tuple[RankPlan, dict[str, str]]]


class Installation(NamedTuple):
    """The Python and the copy of Muster that its own programs run on: this installation, or one in a container."""

    python: str
    library: Path
    named: bool = False
    """The container's engine gives the node its host name."""
    own_memory: bool = False
    """Shared memory of ranks vanishes with the container."""


HERE = Installation(sys.executable, Path(muster.agent.__file__).parents[2])


class MpiFiles:
    """The files of one attempt's MPI part on one node."""

    def __init__(
        self, node: NodePlan, paths: AttemptPaths, found: Found, secret: str, installation: Installation = HERE
    ) -> None:
        self._node = node
        self._paths = paths
        self._found = found
        self._secret = secret
        self._installation = installation
        self._folder = paths.mpi

    def launcher(self, rank: RankPlan, env: dict[str, str]) -> tuple[RankPlan, dict[str, str]]:
        """mpirun with its whole command, and an environment in which it finds Muster's own programs first."""
        if self._found.kind.name == SLURM:
            return self._srun(rank, env)
        own = socket.gethostname()
        hosts = [Host(named(host.name) if number else own, host.ranks) for number, host in enumerate(self._node.mpi)]
        argv = command(
            self._found.kind,
            self._found.program,
            hosts,
            settings=env,
            loopback=all(_is_loopback(host.address) for host in self._node.mpi),
            root=os.getuid() == 0,
        )
        return replace(rank, argv=argv), self._launching(env)

    def _srun(self, rank: RankPlan, env: dict[str, str]) -> tuple[RankPlan, dict[str, str]]:
        hosts = [Host(host.name, host.ranks) for host in self._node.mpi]
        stand_in, own = self._folder / "bin" / STAND_IN_PROGRAM, os.environ
        argv = srun_command(self._found.program, self._found.kind.version, own["SLURM_JOB_ID"], hosts, str(stand_in))
        site = {"SLURM_CONF": own["SLURM_CONF"]} if "SLURM_CONF" in own else {}
        return replace(rank, argv=argv), {**self._launching(env), **site}

    def make(self, wrapped: Wrapped, stop_file: str) -> LaunchMpi:
        """Write the programs' files; returns the keeper's part."""
        for rank, env in wrapped:
            _check(rank, env)
        programs = self._folder / "bin"
        programs.mkdir(parents=True, exist_ok=True)
        wrapped = [(rank, {**self._shared_memory(), **env}) for rank, env in wrapped]
        ranks = self._folder / "ranks"
        hosts = self._folder / "hosts.json"
        # Read by a Python in front of every rank: this format loads fastest, and every Python in question reads it.
        table = dict(self._ranks(wrapped, stop_file))
        write_file(ranks, marshal.dumps(table, _MARSHAL_VERSION), mode=PRIVATE)
        write_json(hosts, self._hosts(), mode=PRIVATE)
        self._write_program(programs / RANK_PROGRAM, "rank.py", str(ranks))
        self._write_program(programs / REMOTE_PROGRAM, "remote.py", str(hosts))
        by_srun = self._found.kind.name == SLURM
        if by_srun:
            nodes, inside = self._shared_folders()
            self._write_program(programs / STAND_IN_PROGRAM, "standin.py", nodes, inside)
        here = self._node.mpi[self._node.node_rank]
        shared_env = {name: value for name, value in wrapped[0][1].items() if not name.startswith(_OF_ONE_RANK)}
        return {
            "fifo": str(self._fifo),
            "ranks": [rank.rank for rank, _ in wrapped],
            "listen": [here.address, here.port] if self._node.node_rank and not by_srun else None,
            "secret": self._secret,
            "daemon_env": self._launching(shared_env),
            "daemon_log": str(self._folder / "daemon.log"),
            "hostname": None if self._installation.named else self.hostname,
            "pmix": {"folder": str(self._folder), "program": str(programs / RANK_PROGRAM)} if by_srun else None,
        }

    @property
    def hostname(self) -> str | None:
        """Open MPI names shared memory after the host, so nodes that share a machine need host names of their own."""
        here = self._node.mpi[self._node.node_rank]
        if not (here.shared and self._node.node_rank and self._found.kind.name in (OPEN_MPI, SLURM)):
            return None
        # An address, which every library can resolve.
        return f"127.0.0.{self._node.node_rank + 1}" if _is_loopback(here.address) else named(here.name)

    @property
    def _fifo(self) -> Path:
        return self._folder / "said"

    def _shared_folders(self) -> tuple[str, str]:
        """The common prefix of all nodes' folders for stand-ins, and the path below each."""
        nodes = os.environ["MUSTER_NODES"]
        return nodes, str(self._folder.relative_to(f"{nodes}.{self._node.node_rank}"))

    def _launching(self, env: Mapping[str, str]) -> dict[str, str]:
        return {**without_batch_system(env), "PATH": f"{self._folder / 'bin'}:{env['PATH']}"}

    def _shared_memory(self) -> dict[str, str]:
        """The attempt's own folder, because Open MPI leaves its segments behind when it is killed."""
        folder = shared_memory_dir(self._paths.root)
        if self._installation.own_memory or not folder.parent.is_dir():
            return {}
        folder.mkdir(mode=0o700, exist_ok=True)
        return dict.fromkeys(_SEGMENT_SETTINGS, str(folder))

    def _ranks(self, wrapped: Wrapped, stop_file: str) -> RankTable:
        return {
            "name": self._node.name,
            "fifo": str(self._fifo),
            "stop_file": stop_file,
            "library": str(self._installation.library),
            "ranks": {
                str(rank.rank): {
                    "argv": list(rank.argv),
                    "expand": rank.expand,
                    "env": env,
                    "cwd": str(self._paths.work),
                    "log": str(self._paths.streams / rank.log),
                }
                for rank, env in wrapped
            },
        }

    def _hosts(self) -> RemoteTable:
        others = {named(host.name): (host.address, host.port) for host in self._node.mpi[1:]}
        return {"secret": self._secret, "fifo": str(self._fifo), "hosts": others}

    def _write_program(self, path: Path, program: str, *arguments: str) -> None:
        file = self._installation.library / "muster" / "agent" / "run" / "mpi" / program
        parts = (self._installation.python, "-I", "-S", str(file), *arguments)
        write_file(path, f'#!/bin/sh\nexec {shlex.join(parts)} "$@"\n', mode=0o700)


def _check(rank: RankPlan, env: Mapping[str, str]) -> None:
    """Refuse a variable that no rank will have; those that mpirun sets are not known yet."""
    if not rank.expand:
        return
    try:
        for element in rank.argv:
            names = [part.name for part in parse(element) if isinstance(part, Variable)]
            later = {name: "" for name in names if name.startswith(_SET_BY_LAUNCHER)}
            expand(element, {**later, **env})
    except JobError as error:
        raise Refusal("bad_input", f"rank {rank.rank}: {error.message}. {error.hint}") from error


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
