"""Staging across a gang: eight nodes in network namespaces, every link 200 Mbit/s, 512 MiB from one source.

Compares nodes that share with nodes that each download everything and with a chain of rclone copies, and shows how a
node that is killed, one that is slowed down to a tenth and one that serves wrong bytes affect the others. Needs root,
`ip` and `tc`, and `rclone` for the chain. The bound is the time that one link takes for all of the data.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.sites.network import NetworkSite, missing

from bench.measure import Figure, report
from bench.staging_node import NodeConfig
from muster.server.http.tls import made_for
from muster.storage.grants import Grant, new_id, sign
from muster.storage.peers.blocks import shelf_name, to_text
from muster.storage.peers.board import Board
from muster.wire.codec import from_json, to_json
from muster.wire.node.peers import BlocksReport, PeerIdentity, PeerOffer

ROOT = Path(__file__).parents[1]
MBIT = 200
NODES = 8
PORT = 8000
_WAIT_S = 400.0

SOURCE = """
import http.server, os, sys, threading
path, counter = sys.argv[1], sys.argv[2]
size, lock, sent = os.path.getsize(path), threading.Lock(), [0]
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_HEAD(self): self.answer(False)
    def do_GET(self): self.answer(True)
    def log_message(self, *args): pass
    def answer(self, with_body):
        given = self.headers.get("Range")
        first, _, last = given.removeprefix("bytes=").partition("-") if given else ("0", "", str(size - 1))
        first, last = int(first), int(last or size - 1)
        self.send_response(206 if given else 200)
        self.send_header("ETag", '"one"')
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(last + 1 - first))
        if given:
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.end_headers()
        if not with_body:
            return
        with open(path, "rb") as file:
            while first <= last:
                count = os.sendfile(self.connection.fileno(), file.fileno(), first, min(1 << 20, last + 1 - first))
                first += count
                with lock:
                    sent[0] += count
                    with open(counter, "w") as out:
                        out.write(str(sent[0]))
class Server(http.server.ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 128
Server(("", int(sys.argv[3])), Handler).serve_forever()
"""


@dataclass
class Boards:
    """The server's part, behind plain HTTP on this machine."""

    where: str
    board: Board = field(default_factory=Board)
    identities: dict[str, PeerIdentity] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)
    liars: set[str] = field(default_factory=set)
    reports: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, node: str, what: str, body: dict[str, Any]) -> object:
        with self.lock:
            if what == "hello":
                certificate, key = made_for([body["address"]])
                self.identities[node] = PeerIdentity(certificate.decode(), key.decode(), secrets.token_hex(32))
                return self.identities[node]
            told = from_json(BlocksReport, body["report"])
            shelf = shelf_name(self.where, told.content)
            heard = self.board.report(shelf, node, body["url"], told, time.monotonic())
            self.reports += 1
            self.liars.update(heard.new_liars)
            offers = [self._offer(peer.node, peer.url, shelf, peer.have) for peer in heard.peers]
            return replace(heard.answer, peers=tuple(offers))

    def _offer(self, node: str, url: str, shelf: str, have: int) -> PeerOffer:
        identity, now = self.identities[node], time.time()
        grant = Grant(new_id(), node, shelf, False, "read", now, now + 3600, "run/bench/1")
        return PeerOffer(node, url, identity.certificate, sign(grant, bytes.fromhex(identity.grant_key)), to_text(have))


@contextmanager
def listening(boards: Boards, address: str) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            _, node, what = self.path.split("/")
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = json.dumps(to_json(boards.answer(node, what, body))).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer((address, 0), Handler)
    # A killed node breaks its connection, which is expected.
    server.handle_error = lambda request, client: None  # type: ignore[method-assign]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://{address}:{server.server_port}"
    server.shutdown()


def shape(network: NetworkSite, host: str, mbit: float) -> None:
    """Limit the rate at which a host sends and receives."""
    limit = f"root tbf rate {mbit:g}mbit burst 128kb latency 50ms".split()
    subprocess.run(["ip", "netns", "exec", host, "tc", "qdisc", "replace", "dev", "eth0", *limit], check=True)
    subprocess.run(["tc", "qdisc", "replace", "dev", f"v{host}", *limit], check=True)


@dataclass(frozen=True)
class Outcome:
    """The result of one method."""

    seconds: dict[str, float]
    """For each node, the seconds until it had verified everything."""
    source_bytes: int
    from_peers: int
    liars: tuple[str, ...] = ()
    reports: int = 0
    cpu_s: float = 0.0

    @property
    def last(self) -> float:
        return max(self.seconds.values())


class Ground:
    """The namespaces, the data, and the source: the first host serves, the others are nodes."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        self.size = size
        self.network = NetworkSite(NODES + 1)
        self.data = folder / "data.bin"
        self.counter = folder / "sent"
        with self.data.open("wb") as file:
            for _ in range(size >> 20):
                file.write(os.urandom(1 << 20))

    @property
    def url(self) -> str:
        return f"http://{self.network.addresses[0]}:{PORT}/data.bin"

    @property
    def bound_s(self) -> float:
        return self.size * 8 / (MBIT * 1e6)

    @contextmanager
    def laid(self) -> Iterator[None]:
        self.network.start()
        source: subprocess.Popen[bytes] | None = None
        try:
            for host in self.network.hosts:
                shape(self.network, host, MBIT)
            command = [sys.executable, "-c", SOURCE, str(self.data), str(self.counter), str(PORT)]
            source = subprocess.Popen(["ip", "netns", "exec", self.network.hosts[0], *command])
            yield
        finally:
            if source is not None:
                source.kill()
                source.wait()
            self.network.close()

    def sent(self) -> int:
        return int(self.counter.read_text() or 0) if self.counter.exists() else 0


def staged(ground: Ground, *, shared: bool, liar: str = "", during: Callable[[float], str] | None = None) -> Outcome:
    """Have all nodes stage the data; `during` is called while they do, and may name a node that is gone."""
    network, before = ground.network, ground.sent()
    boards = Boards(f"http:{ground.url}")
    running: dict[str, subprocess.Popen[str]] = {}
    with listening(boards, network.server_address) as board:
        try:
            for number in range(1, NODES + 1):
                name = f"node-{number}"
                cache = ground.folder / f"cache-{name}"
                config = NodeConfig(
                    name, network.addresses[number], board, ground.url, str(cache), shared, name == liar
                )
                path = ground.folder / f"{name}.json"
                path.write_text(json.dumps(asdict(config)))
                command = ["ip", "netns", "exec", network.hosts[number], sys.executable, "-m", "bench.staging_node"]
                running[name] = subprocess.Popen(
                    [*command, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
                )
            outcome = _raced(ground, boards, running, before, during)
            print(f"{outcome.last / ground.bound_s:.3f} times the bound", file=sys.stderr)
            return outcome
        finally:
            for process in running.values():
                process.kill()
                process.wait()
            for number in range(1, NODES + 1):
                shutil.rmtree(ground.folder / f"cache-node-{number}", ignore_errors=True)


def _raced(
    ground: Ground,
    boards: Boards,
    running: dict[str, subprocess.Popen[str]],
    before: int,
    during: Callable[[float], str] | None,
) -> Outcome:
    for process in running.values():
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    began = time.monotonic()
    for process in running.values():
        _say(process)
    gone = during(began) if during else ""
    wanted = _digest(ground.data)
    seconds, from_peers = {}, 0
    for name, process in running.items():
        if name == gone:
            continue
        assert process.stdout is not None
        result = json.loads(process.stdout.readline())
        assert result["digest"] == wanted, f"{name} has something else"
        seconds[name] = result["seconds"]
        from_peers += result["from_peers"]
    cpu_s = 0.0
    for name, process in running.items():
        if name != gone:
            _say(process)
            assert process.stdout is not None
            cpu_s += float(process.stdout.readline())
    return Outcome(seconds, ground.sent() - before, from_peers, tuple(sorted(boards.liars)), boards.reports, cpu_s)


def _say(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def _digest(data: Path) -> str:
    """The name that the cache gives to a tree of this one file."""
    with data.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return hashlib.sha256(f"{sha256} {data.stat().st_size} file\n".encode()).hexdigest()


def kill(ground: Ground, number: int, after_s: float) -> Callable[[float], str]:
    """Have a node lose power while data arrives."""

    def act(began: float) -> str:
        time.sleep(max(0.0, began + after_s - time.monotonic()))
        host = ground.network.hosts[number]
        listed = subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True, check=True)
        for pid in listed.stdout.split():
            subprocess.run(["kill", "-9", pid], check=False)
        return f"node-{number}"

    return act


def chained(ground: Ground) -> float:
    """Seconds until the last node of a chain of rclone copies has the data, each from the one before."""
    network, servers = ground.network, list[subprocess.Popen[bytes]]()
    began, url = time.monotonic(), f"http://{network.addresses[0]}:{PORT}/"
    try:
        for number in range(1, NODES + 1):
            folder = ground.folder / f"chain-{number}"
            folder.mkdir()
            inside = ["ip", "netns", "exec", network.hosts[number], "rclone", "--config", "/dev/null"]
            copy = ["copyurl", f"{url}data.bin", str(folder / "data.bin")]
            subprocess.run([*inside, *copy], check=True, capture_output=True, timeout=_WAIT_S)
            serve = ["serve", "http", str(folder), "--addr", f"{network.addresses[number]}:{PORT}"]
            servers.append(subprocess.Popen([*inside, *serve], stderr=subprocess.DEVNULL))
            url = f"http://{network.addresses[number]}:{PORT}/"
            _wait_until_served(inside[:4], url)
        assert _digest(folder / "data.bin") == _digest(ground.data)
        return time.monotonic() - began
    finally:
        for server in servers:
            server.kill()
            server.wait()
        for folder in ground.folder.glob("chain-*"):
            shutil.rmtree(folder)


def _wait_until_served(inside: list[str], url: str) -> None:
    probe = f"import urllib.request; urllib.request.urlopen({url!r}, timeout=5)"
    deadline = time.monotonic() + 30
    while subprocess.run([*inside, sys.executable, "-c", probe], capture_output=True, check=False).returncode:
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing is served at {url}")


def _plain(ground: Ground, figures: list[Figure]) -> None:
    if "alone" not in SKIPPED:
        alone = staged(ground, shared=False)
        figures += [
            Figure("each for itself, to the last node", alone.last, "s", samples=list(alone.seconds.values())),
            Figure("each for itself, to the bound", alone.last / ground.bound_s, "times"),
            Figure("each for itself, bytes from the source", alone.source_bytes / ground.size, "times"),
            Figure("each for itself, processor time of all nodes", alone.cpu_s, "s"),
        ]
    if "chain" not in SKIPPED and shutil.which("rclone"):
        chain = chained(ground)
        figures += [
            Figure("a chain of rclone copies, to the last node", chain, "s"),
            Figure("a chain of rclone copies, to the bound", chain / ground.bound_s, "times"),
        ]


SKIPPED: set[str] = set()


def measured(ground: Ground) -> list[Figure]:
    """All ways in one run."""
    bound = ground.bound_s
    together = staged(ground, shared=True)
    figures = [
        Figure("the bound: one link, all of the data", bound, "s"),
        Figure("together, to the last node", together.last, "s", samples=list(together.seconds.values())),
        Figure("together, to the bound", together.last / bound, "times", at_most=1.25),
        Figure("together, bytes from the source", together.source_bytes / ground.size, "times", at_most=1.05),
        Figure("together, reports to the server", together.reports, "calls"),
        Figure("together, processor time of all nodes", together.cpu_s, "s"),
        Figure("processors, and what waits for them", os.getloadavg()[0] / (os.cpu_count() or 1), "times"),
    ]
    _plain(ground, figures)
    if "faults" in SKIPPED:
        return figures
    killed = staged(ground, shared=True, during=kill(ground, 3, bound / 2))
    figures += [
        Figure("one of them killed half-way, to the last of the others", killed.last / bound, "times"),
        Figure("one of them killed half-way, bytes from the source", killed.source_bytes / ground.size, "times"),
    ]
    shape(ground.network, ground.network.hosts[3], MBIT / 10)
    slowed = staged(ground, shared=True)
    shape(ground.network, ground.network.hosts[3], MBIT)
    others = [seconds for name, seconds in slowed.seconds.items() if name != "node-3"]
    figures += [
        Figure("one at a tenth of the speed, to the last of the others", max(others) / bound, "times"),
        Figure("one at a tenth of the speed, that one to its own bound", slowed.last / bound / 10, "times"),
        Figure("one at a tenth of the speed, bytes from the source", slowed.source_bytes / ground.size, "times"),
    ]
    lied = staged(ground, shared=True, liar="node-3")
    figures += [
        Figure("one serves wrong bytes, to the last node", lied.last / bound, "times"),
        Figure("one serves wrong bytes, bytes from the source", lied.source_bytes / ground.size, "times"),
        Figure("one serves wrong bytes: named, and nobody else", float(lied.liars == ("node-3",)), "", at_least=1),
    ]
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="64 MiB: does it work, not how fast is it")
    parser.add_argument("--skip", default="", help="alone, chain or faults, separated by commas")
    parser.add_argument("--folder", default=None, help="where the nodes' caches are made; memory is best")
    given = parser.parse_args()
    SKIPPED.update(given.skip.split(","))
    if why := missing():
        raise SystemExit(why)
    with tempfile.TemporaryDirectory(prefix="muster-bench-", dir=given.folder) as name:
        ground = Ground(Path(name), (64 if given.quick else 512) << 20)
        with ground.laid():
            figures = measured(ground)
    report("staging", figures, given.quick)


if __name__ == "__main__":
    main()
