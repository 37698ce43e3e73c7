"""Collects facts about this machine, without judging them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import pwd
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from muster import defaults
from muster.client.workspace import find_folder
from muster.host.files import read_json
from muster.host.sandbox import machine
from muster.paths import WorkspacePaths

EXTRAS = {"torch": "torch", "mpi": "mpi4py", "tensorflow": "tensorflow", "postgres": "psycopg"}
NVIDIA_SMI_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Gpu:
    name: str
    memory_mb: int
    driver: str


@dataclass(frozen=True)
class Interface:
    name: str
    address: str
    up: bool
    speed_mbit: int = 0


@dataclass(frozen=True)
class Filesystem:
    """The workspace's filesystem."""

    path: str
    kind: str
    free_bytes: int
    writable: bool
    clock_skew_s: float | None
    """How far the filesystem's clock is ahead of this machine's."""


@dataclass(frozen=True)
class Facts:
    python: tuple[int, int, int]
    executable: str
    system: str
    cpus: int
    usable_cpus: int
    memory_bytes: int
    memory_limit_bytes: int | None
    """The limit of the control group (container); None: no limit."""
    shm_bytes: int | None
    limits: Mapping[str, int | None]
    """Soft limits by name; None: unlimited."""
    ports_taken: tuple[int, ...]
    interfaces: tuple[Interface, ...]
    rdma_devices: Mapping[str, bool]
    """RDMA devices by name, and whether a port is active."""
    extras: Mapping[str, str | None]
    """Version of each optional part; None: not installed."""
    mpirun: str | None
    workspace: Filesystem
    now: float
    gpus: tuple[Gpu, ...] = ()
    gpu_trouble: str = ""
    """The error of nvidia-smi."""
    nvidia_devices: int = 0
    """GPUs that the kernel driver shows."""
    account: str = ""
    """The account of ranks that are not isolated."""
    isolation: str = ""
    """The workspace's setting: none, sandbox, or empty."""
    sandbox_trouble: str = ""
    """Why there is no sandbox here; empty: there is one."""


def gather() -> Facts:
    gpus, trouble = _gpus()
    return Facts(
        python=sys.version_info[:3],
        executable=sys.executable,
        system=platform.system(),
        cpus=os.cpu_count() or 1,
        usable_cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        memory_limit_bytes=_memory_limit_bytes(),
        shm_bytes=_total_bytes(Path("/dev/shm")),
        limits=_limits(),
        ports_taken=tuple(p for p in (defaults.MASTER_PORT, defaults.TENSORFLOW_PORT) if not _is_free(p)),
        interfaces=_interfaces(),
        rdma_devices=_rdma_devices(Path("/sys/class/infiniband")),
        extras={extra: _version(module) for extra, module in EXTRAS.items()},
        mpirun=shutil.which("mpirun"),
        workspace=_workspace(),
        now=time.time(),
        gpus=gpus,
        gpu_trouble=trouble,
        nvidia_devices=len(list(Path("/proc/driver/nvidia/gpus").glob("*"))),
        account=_account(),
        isolation=_isolation(),
        sandbox_trouble=machine.trouble(),
    )


def _account() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _isolation() -> str:
    found = read_json(WorkspacePaths(find_folder(Path.cwd()) or Path.home() / ".muster").config)
    return str(found.get("isolation") or "") if isinstance(found, dict) else ""


def _gpus() -> tuple[tuple[Gpu, ...], str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return (), ""
    query = [program, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=NVIDIA_SMI_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return (), str(error)
    if answer.returncode != 0:
        return (), (answer.stdout or answer.stderr).strip()
    return parse_gpus(answer.stdout), ""


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """GPUs of nvidia-smi's comma-separated answer."""
    rows = [[cell.strip() for cell in line.rsplit(",", 2)] for line in text.splitlines()]
    return tuple(
        Gpu(name, int(memory) if memory.isdigit() else 0, driver)
        for name, memory, driver in (row for row in rows if len(row) == 3)
    )


def _memory_limit_bytes() -> int | None:
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        # The first kind says max, the second a figure beyond any memory.
        return int(text) if text.isdigit() and int(text) < 1 << 60 else None
    return None


def _total_bytes(path: Path) -> int | None:
    try:
        return shutil.disk_usage(path).total
    except OSError:
        return None


def _limits() -> dict[str, int | None]:
    wanted = {"nofile": resource.RLIMIT_NOFILE, "memlock": resource.RLIMIT_MEMLOCK, "nproc": resource.RLIMIT_NPROC}
    soft = {name: resource.getrlimit(limit)[0] for name, limit in wanted.items()}
    return {name: None if value == resource.RLIM_INFINITY else value for name, value in soft.items()}


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _interfaces() -> tuple[Interface, ...]:
    stats = psutil.net_if_stats()
    found = []
    for name, addresses in psutil.net_if_addrs().items():
        for entry in addresses:
            if entry.family == socket.AF_INET and not entry.address.startswith("127."):
                state = stats.get(name)
                found.append(Interface(name, entry.address, bool(state and state.isup), state.speed if state else 0))
    return tuple(found)


def _rdma_devices(folder: Path) -> dict[str, bool]:
    try:
        devices = sorted(folder.iterdir())
    except OSError:
        return {}
    return {device.name: _has_active_port(device) for device in devices}


def _has_active_port(device: Path) -> bool:
    for state in device.glob("ports/*/state"):
        try:
            if "ACTIVE" in state.read_text():
                return True
        except OSError:
            continue
    return False


def _version(module: str) -> str | None:
    if importlib.util.find_spec(module) is None:
        return None
    try:
        return importlib.metadata.version(module)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _workspace() -> Filesystem:
    folder = find_folder(Path.cwd()) or Path.home()
    skew = _clock_skew(folder)
    return Filesystem(
        path=str(folder),
        kind=_filesystem_kind(folder),
        free_bytes=shutil.disk_usage(folder).free,
        writable=skew is not None,
        clock_skew_s=skew,
    )


def _clock_skew(folder: Path) -> float | None:
    """How far a new file's time is ahead of this clock; None: no file can be written."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".muster-doctor-") as probe:
            probe.write(b"x")
            probe.flush()
            return os.fstat(probe.fileno()).st_mtime - time.time()
    except OSError:
        return None


def _filesystem_kind(folder: Path) -> str:
    resolved = folder.resolve()
    mounts = [part for part in psutil.disk_partitions(all=True) if resolved.is_relative_to(part.mountpoint)]
    # Of equal mount points the last mounted one is visible.
    best = max(enumerate(mounts), key=lambda item: (len(item[1].mountpoint), item[0]), default=None)
    return best[1].fstype if best else "unknown"
