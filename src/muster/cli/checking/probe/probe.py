"""One process on each node of a cluster: reduces numbers around a ring of plain sockets, and reports on its node.

`muster cluster check` runs it as a job. Standard library only, for any Python 3.8: it runs in the ranks' Python.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0
COUNT = 4096


def main() -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    leader = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    own = listen(address_towards(leader), 0)
    members = lead(leader[1], size, own) if rank == 0 else join(leader, rank, own)
    began = time.perf_counter()
    total = reduce_around(rank, size, members, own)
    took_s = time.perf_counter() - began
    expected = [float(sum(range(1, size + 1)) * (index + 1)) for index in range(COUNT)]
    found = {**this_node(rank), "reduced": total == expected, "reduce_s": took_s}
    Path("outputs").mkdir(exist_ok=True)
    Path(f"outputs/node_{rank}.json").write_text(json.dumps(found))
    print(f"rank {rank} of {size} on {found['host']}: {'reduced' if found['reduced'] else 'WRONG SUM'}")
    sys.exit(0 if found["reduced"] else 1)


def lead(port: int, size: int, own: socket.socket) -> list[tuple[str, int]]:
    """Collect every node's address, and send the list to all."""
    listener = listen(own.getsockname()[0], port)
    members = {0: (os.environ["MASTER_ADDR"], own.getsockname()[1])}
    links = []
    while len(members) < size:
        try:
            link, peer = listener.accept()
        except OSError:
            address = f"{os.environ['MASTER_ADDR']} port {port}"
            sys.exit(
                f"only {len(members)} of {size} nodes reached {address} in {PATIENCE_S:g} s: is a firewall closed?"
            )
        link.settimeout(PATIENCE_S)
        hello = receive(link)
        members[hello["rank"]] = (peer[0], hello["port"])
        links.append(link)
    ordered = [members[rank] for rank in range(size)]
    for link in links:
        send(link, ordered)
        link.close()
    return ordered


def join(leader: tuple[str, int], rank: int, own: socket.socket) -> list[tuple[str, int]]:
    link = connect(*leader)
    send(link, {"rank": rank, "port": own.getsockname()[1]})
    members = [(str(host), int(port)) for host, port in receive(link)]
    link.close()
    return members


def reduce_around(rank: int, size: int, members: list[tuple[str, int]], own: socket.socket) -> list[float]:
    """An all-reduce: each node's numbers go once around the ring and are added up everywhere."""
    mine = [float((rank + 1) * (index + 1)) for index in range(COUNT)]
    if size == 1:
        return mine
    after = connect(*members[(rank + 1) % size])
    before, _ = own.accept()
    before.settimeout(PATIENCE_S)
    total, passing = list(mine), struct.pack(f"{COUNT}d", *mine)
    for _ in range(size - 1):
        after.sendall(passing)
        passing = exactly(before, len(passing))
        received = struct.unpack(f"{COUNT}d", passing)
        total = [total[index] + received[index] for index in range(COUNT)]
    after.close()
    before.close()
    return total


def this_node(rank: int) -> dict[str, Any]:
    """Facts about the node that can show problems before a job does."""
    here, temporary = shutil.disk_usage("."), shutil.disk_usage(os.environ.get("TMPDIR", "/tmp"))
    return {
        "rank": rank,
        "host": os.environ.get("MUSTER_NODE_NAME") or socket.gethostname(),
        "python": platform.python_version(),
        "at": time.time(),
        "free_bytes": here.free,
        "temporary_free_bytes": temporary.free,
        "torch": torch_version(),
        "sees_folder": sees(os.environ.get("CHECK_FILE", "")),
    }


def torch_version() -> str:
    """The version of torch, without importing it, which takes seconds."""
    try:
        from importlib.metadata import version

        return version("torch")
    except Exception:
        return ""


def sees(path: str) -> bool:
    """Whether the node sees the file that the check wrote into the workspace's folder, and can write next to it."""
    if not path or not Path(path).is_file():
        return False
    try:
        Path(f"{path}.{os.environ['RANK']}").write_text("seen")
    except OSError:
        return False
    return True


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
    listener.listen(64)
    return listener


def connect(address: str, port: int) -> socket.socket:
    """A connection; the other side may still be starting."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            link = socket.create_connection((address, port), timeout=PATIENCE_S)
            link.settimeout(PATIENCE_S)
            return link
        except OSError as error:
            if not isinstance(error, ConnectionRefusedError) or time.monotonic() > deadline:
                sys.exit(f"{address} port {port} is not reached: {error}: is a firewall closed between the nodes?")
            time.sleep(0.05)


def send(link: socket.socket, message: Any) -> None:
    data = json.dumps(message).encode()
    link.sendall(struct.pack("!I", len(data)) + data)


def receive(link: socket.socket) -> Any:
    return json.loads(exactly(link, struct.unpack("!I", exactly(link, 4))[0]))


def exactly(link: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = link.recv(min(1 << 20, count - len(data)))
        if not part:
            sys.exit("another node of the gang went away")
        data += part
    return data


if __name__ == "__main__":
    main()
