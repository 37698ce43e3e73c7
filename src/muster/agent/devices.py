"""The network devices and GPUs of this machine: from the kernel's files in a few milliseconds, and by `nvidia-smi`."""

from __future__ import annotations

import resource
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from muster.host.children import spawning
from muster.wire.node.devices import Devices, Interface, RdmaPort

_CAP_IPC_LOCK = 14
_PCI_INFINIBAND = "0x0207"
# By the kernel's numbers of hardware types (if_arp.h).
_KINDS = {"1": "ethernet", "32": "infiniband", "772": "loopback"}


class Gpu(NamedTuple):
    id: str
    percent: float
    memory_used_bytes: float


def gather(root: Path = Path("/")) -> Devices:
    """Everything that decides which network ranks use; `root` is the parent of /sys, /proc and /dev."""
    devices = root / "sys/class/infiniband"
    return Devices(
        interfaces=_interfaces(root),
        rdma=tuple(port for device in _entries(devices) for port in _ports(device)),
        uverbs=any(root.glob("dev/infiniband/uverbs*")),
        memlock_bytes=_memlock_bytes(root),
        idle_adapters=tuple(_idle_adapters(root)),
        network_direct=(root / "sys/module/hv_network_direct").exists(),
        gpus=gpu_count(root) or 0,
    )


def interface_names(root: Path = Path("/")) -> list[str]:
    return [entry.name for entry in _entries(root / "sys/class/net")] or sorted(psutil.net_if_addrs())


def gpu_count(root: Path = Path("/")) -> int | None:
    """How many GPUs the kernel's NVIDIA driver shows; None: there is no such driver."""
    if not (root / "proc/driver/nvidia").is_dir():
        return None
    return len(_entries(root / "proc/driver/nvidia/gpus"))


def query_gpus() -> list[Gpu]:
    """Every GPU with its load; empty where there is no driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, "--query-gpu=index,utilization.gpu,memory.used", "--format=csv,noheader,nounits"]
    try:
        with spawning:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return parse_gpus(answer.stdout)


def parse_gpus(text: str) -> list[Gpu]:
    found = []
    for line in text.splitlines():
        fields = [part.strip() for part in line.split(",")]
        if len(fields) == 3 and fields[0]:
            found.append(Gpu(fields[0], _number(fields[1]), _number(fields[2]) * (1 << 20)))
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _interfaces(root: Path) -> tuple[Interface, ...]:
    addresses = psutil.net_if_addrs()
    stats = psutil.net_if_stats()
    found = []
    for name in interface_names(root):
        folder = root / "sys/class/net" / name
        state = stats.get(name)
        own = [
            entry.address.split("%")[0]
            for entry in addresses.get(name, ())
            if entry.family in (socket.AF_INET, socket.AF_INET6)
        ]
        found.append(
            Interface(
                name,
                tuple(own),
                up=bool(state and state.isup),
                kind=_KINDS.get(_read(folder / "type"), "other"),
                speed_mbit=state.speed if state else 0,
                driver=_linked(folder / "device/driver"),
            )
        )
    return tuple(found)


def _ports(device: Path) -> Iterator[RdmaPort]:
    netdevs = [entry.name for entry in _entries(device / "device/net")]
    for port in _entries(device / "ports"):
        if not port.name.isdigit():
            continue
        # Such as "4: ACTIVE" and "200 Gb/sec (4X HDR)".
        state = _read(port / "state").partition(":")[2].strip()
        rate = _read(port / "rate").split(" ")[0]
        yield RdmaPort(
            device.name,
            int(port.name),
            link_layer=_read(port / "link_layer"),
            state=state or "unknown",
            rate_gbit=float(rate) if rate.replace(".", "", 1).isdigit() else 0.0,
            driver=_linked(device / "device/driver"),
            netdev=netdevs[0] if netdevs else "",
        )


def _memlock_bytes(root: Path) -> int | None:
    """How much memory a process may pin; with CAP_IPC_LOCK (root) there is no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    for line in _read(root / "proc/self/status").splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff" and int(value, 16) >> _CAP_IPC_LOCK & 1:
            return None
    return None if soft == resource.RLIM_INFINITY else soft


def _idle_adapters(root: Path) -> Iterator[str]:
    for device in _entries(root / "sys/bus/pci/devices"):
        if _read(device / "class").startswith(_PCI_INFINIBAND) and not (device / "driver").exists():
            yield device.name


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, ValueError):
        return ""


def _linked(path: Path) -> str:
    """The last part of a link's target, which is how the kernel shows a device's driver."""
    try:
        return path.readlink().name
    except OSError:
        return ""
