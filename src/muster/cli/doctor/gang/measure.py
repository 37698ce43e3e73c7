"""Measures the network between the nodes of a gang: one process on each node, plain sockets, a few seconds.

`muster doctor --nodes N` runs it as a job. Standard library only, for any Python 3.8: it runs in the ranks' Python.
Rank 0 listens on MASTER_PORT and leads: one pair of nodes after the other measures, everybody else keeps quiet.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

BUDGET_S = 8.0
MOST_PAIR_S = 0.6
LEAST_PAIR_S = 0.1
MOST_PAIRS = 45
ROUND_TRIPS = 200
STREAMS = 4
PIECE = 1 << 20
PATIENCE_S = 60.0
DISK_BYTES = 64 << 20


@dataclass
class Member:
    """A node that has joined, its devices, and its address."""

    rank: int
    address: str
    host: str
    machine: str
    cpus: int | None
    memory_bytes: int
    gpus: list[str]
    interface: str
    infiniband_gbit: float
    disk_bytes_per_s: float
    port: int


@dataclass
class Order:
    """A command of the leader to a node."""

    do: str
    seconds: float = 0.0
    target: tuple[str, int] | None = None


@dataclass
class Report:
    """Measurements of a node: latency where it connects, bandwidth where it serves."""

    bytes_per_s: float | None = None
    round_trip_s: float | None = None
    error: str | None = None


@dataclass
class Pair:
    """Two nodes, and the connection between them."""

    nodes: tuple[int, int]
    bytes_per_s: float | None
    round_trip_s: float | None
    error: str | None


@dataclass
class Result:
    """The gang's measurements."""

    members: list[Member]
    pairs: list[Pair]
    all_pairs: bool

    def to_json(self) -> str:
        nodes = [{key: value for key, value in asdict(member).items() if key != "port"} for member in self.members]
        pairs = [{key: value for key, value in asdict(pair).items() if value is not None} for pair in self.pairs]
        return json.dumps({"nodes": nodes, "pairs": pairs, "all_pairs": self.all_pairs})


def main() -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if rank != 0:
        follow(rank)
        return
    result = lead(size)
    Path("outputs").mkdir(exist_ok=True)
    Path("outputs/network.json").write_text(result.to_json())
    print(f"measured {len(result.pairs)} pairs of {size} nodes")


def lead(size: int) -> Result:
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    here = address_towards((address, port))
    listener, own = listen(here, port), listen(here, 0)
    members = {0: this_node(0, address, own)}
    lines: dict[int, Line] = {}
    while len(lines) < size - 1:
        try:
            line = Line(listener.accept()[0])
        except OSError:
            sys.exit(
                f"only {len(lines) + 1} of {size} nodes reached {address} port {port} in {PATIENCE_S:g} s: "
                "is the network between the nodes open?"
            )
        member = Member(**line.receive())
        lines[member.rank] = line
        members[member.rank] = member
    chosen = pairs_of(size)
    seconds = max(LEAST_PAIR_S, min(MOST_PAIR_S, BUDGET_S / max(1, 2 * len(chosen))))
    measured = [measure_pair(first, second, members, lines, seconds) for first, second in chosen]
    for line in lines.values():
        line.send(Order("end"))
    return Result([members[rank] for rank in sorted(members)], measured, len(chosen) == size * (size - 1) // 2)


def measure_pair(first: int, second: int, members: dict[int, Member], lines: dict[int, Line], seconds: float) -> Pair:
    """The second node serves; the first connects to it and measures."""
    lines[second].send(Order("serve", seconds))
    target = members[second].address, members[second].port
    if first == 0:
        found = attempt(target, seconds)
    else:
        lines[first].send(Order("measure", seconds, target))
        found = Report(**lines[first].receive())
    served = Report(**lines[second].receive())
    return Pair((first, second), served.bytes_per_s, found.round_trip_s, found.error or served.error)


def follow(rank: int) -> None:
    leader = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    try:
        line = Line(connect(*leader))
    except OSError as error:
        sys.exit(f"the first node is not reached at {leader[0]} port {leader[1]}: {error}")
    address = line.socket.getsockname()[0]
    own = listen(address, 0)
    line.send(this_node(rank, address, own))
    while True:
        order = Order(**line.receive())
        if order.target is not None:
            line.send(attempt((order.target[0], order.target[1]), order.seconds))
        elif order.do == "serve":
            line.send(serve(own, order.seconds))
        else:
            return


def pairs_of(size: int) -> list[tuple[int, int]]:
    """Every pair, or only neighbours where that would take too long."""
    every = [(first, second) for first in range(size) for second in range(first + 1, size)]
    return every if len(every) <= MOST_PAIRS else [(rank, rank + 1) for rank in range(size - 1)]


def attempt(target: tuple[str, int], seconds: float) -> Report:
    """Latency and bandwidth to a serving node, or the error."""
    try:
        latency = round_trip(target)
        send_for(target, seconds)
        return Report(round_trip_s=latency)
    except OSError as error:
        return Report(error=f"{target[0]}: {error}")


def round_trip(target: tuple[str, int]) -> float:
    with connect(*target) as link:
        times = []
        for _ in range(ROUND_TRIPS):
            began = time.perf_counter()
            link.sendall(b"x")
            if not link.recv(1):
                raise OSError("the other side closed the connection")
            times.append(time.perf_counter() - began)
        link.sendall(b"q")
    return statistics.median(times)


def send_for(target: tuple[str, int], seconds: float) -> None:
    """Send over several streams at once, until the receiver has counted for long enough and closes."""
    links = [connect(*target) for _ in range(STREAMS)]
    threads = [threading.Thread(target=pour, args=(link, seconds + 2)) for link in links]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def pour(link: socket.socket, seconds: float) -> None:
    piece = bytes(PIECE)
    deadline = time.perf_counter() + seconds
    try:
        with link:
            link.settimeout(seconds)
            while time.perf_counter() < deadline:
                link.sendall(piece)
    except OSError:
        return


def serve(listener: socket.socket, seconds: float) -> Report:
    """Answer one round of measuring: a connection for latency, then the streams, whose rates are added up."""
    rates: list[float] = []
    threads: list[threading.Thread] = []
    try:
        echo(listener.accept()[0])
        for _ in range(STREAMS):
            threads.append(threading.Thread(target=count, args=(listener.accept()[0], seconds, rates)))
            threads[-1].start()
    except OSError as error:
        return Report(error=f"nobody connected: {error}")
    for thread in threads:
        thread.join()
    return Report(bytes_per_s=sum(rates))


def echo(link: socket.socket) -> None:
    with link:
        link.settimeout(PATIENCE_S)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while link.recv(1) == b"x":
            link.sendall(b"x")


def count(link: socket.socket, seconds: float, rates: list[float]) -> None:
    """Count what arrives within the time after the first byte; data still in transit is ignored."""
    counted, buffer = 0, bytearray(PIECE)
    with link:
        link.settimeout(PATIENCE_S)
        link.recv(1)
        began = time.perf_counter()
        link.settimeout(seconds)
        try:
            while time.perf_counter() - began < seconds:
                size = link.recv_into(buffer)
                if not size:
                    break
                counted += size
        except OSError:
            pass
    rates.append(counted / (time.perf_counter() - began))


class Line:
    """JSON messages over a socket."""

    def __init__(self, link: socket.socket) -> None:
        self.socket = link
        link.settimeout(PATIENCE_S)
        self._file = link.makefile("r")

    def send(self, message: Member | Order | Report) -> None:
        self.socket.sendall(json.dumps(asdict(message)).encode() + b"\n")

    def receive(self) -> Any:
        text = self._file.readline()
        if not text:
            sys.exit("another node of the gang went away")
        return json.loads(text)


def address_towards(leader: tuple[str, int]) -> str:
    """The address at which other nodes reach this one; on the leader its own."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        # Nothing is sent: the kernel only chooses the route.
        way.connect(leader)
        return str(way.getsockname()[0])


def listen(address: str, port: int) -> socket.socket:
    """Listen only on this address."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.settimeout(PATIENCE_S)
    listener.bind((address, port))
    listener.listen(256)
    return listener


def connect(address: str, port: int) -> socket.socket:
    """A connection; the other side may still be starting."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            link = socket.create_connection((address, port), timeout=PATIENCE_S)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return link
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def this_node(rank: int, address: str, listener: socket.socket) -> Member:
    return Member(
        rank=rank,
        address=address,
        host=socket.gethostname(),
        machine=machine_id(),
        cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        gpus=gpu_names(),
        interface=os.environ.get("GLOO_SOCKET_IFNAME", ""),
        infiniband_gbit=infiniband_gbit(),
        disk_bytes_per_s=disk_rate(),
        port=listener.getsockname()[1],
    )


def machine_id() -> str:
    """An id that is equal for nodes simulated on one machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


def gpu_names() -> list[str]:
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return []
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        done = subprocess.run(command + (["-i", chosen] if chosen else []), stdout=subprocess.PIPE, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.decode().strip().splitlines() if done.returncode == 0 else []


def infiniband_gbit() -> float:
    """The rates of the InfiniBand ports that the launch contract chose, added up."""
    total = 0.0
    for port in os.environ.get("NCCL_IB_HCA", "").lstrip("=").split(","):
        device, _, number = port.partition(":")
        try:
            text = Path("/sys/class/infiniband", device, "ports", number or "1", "rate").read_text()
            total += float(text.split()[0])
        except (OSError, ValueError, IndexError):
            continue
    return total


def disk_rate() -> float:
    """Write speed of the working folder, from a small file that is flushed to disk."""
    path, piece = Path("disk-probe"), os.urandom(PIECE)
    try:
        began = time.perf_counter()
        written = 0
        with path.open("wb") as file:
            while written < DISK_BYTES and time.perf_counter() - began < 1.0:
                written += file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        return written / (time.perf_counter() - began)
    except OSError:
        return 0.0
    finally:
        if path.exists():
            path.unlink()


if __name__ == "__main__":
    main()
