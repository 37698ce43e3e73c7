"""One node of `bench.staging`, in its own network namespace: starts what an agent starts, and reports the result.

`python -m bench.staging_node CONFIG`; with `--serve-wrong-bytes` it is the process that serves blocks to other nodes.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.host.children import Child
from muster.host.http import Address, Connection
from muster.storage.peers.messages import Serve, Serving
from muster.storage.peers.serving import main as serve
from muster.storage.peers.shelf import Shelves
from muster.storage.staging.messages import BlocksHeard, Report, Stage
from muster.wire.codec import from_json, to_json
from muster.wire.data.access import Access
from muster.wire.node.peers import BlocksAnswer, BlocksReport, PeerIdentity


@dataclass(frozen=True)
class NodeConfig:
    """The configuration that the benchmark gives to a node."""

    name: str
    address: str
    board: str
    source: str
    cache: str
    shared: bool
    lies: bool


class Node:
    """Stands in for the agent: passes its mover's requests to the benchmark, which plays the server."""

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._board = Connection(Address(config.board))
        self._url = ""

    def prepare(self) -> Child | None:
        """Start serving blocks before the measurement, as an agent that has been up for a while does."""
        config = self._config
        if not config.shared:
            return None
        identity = from_json(PeerIdentity, self._ask("hello", {"address": config.address}))
        # By path, since children start in `/`; and with -P, since `import queue` must not find the one in `bench`.
        command = ["-P", __file__, "--serve-wrong-bytes"] if config.lies else ["-m", "muster.storage.peers"]
        child = Child([sys.executable, *command])
        child.send(to_json(Serve(config.name, config.address, config.cache, identity)))
        self._url = f"https://{config.address}:{from_json(Serving, child.receive()).port}"
        return child

    def stage(self) -> dict[str, Any]:
        """Stage the data; returns how long that took, and where the data came from."""
        config = self._config
        access = Access("http", config.source, folder=False, label=config.source)
        began, from_peers, nodes = time.monotonic(), 0, 0
        child = Child([sys.executable, "-m", "muster.storage.staging"])
        child.send(to_json(Stage("input", access, config.cache, shared=config.shared, node=config.name)))
        while True:
            report = from_json(Report, child.receive())
            if report.blocks is not None:
                child.send(to_json(BlocksHeard(self._exchange(report.blocks))))
            elif report.progress is not None:
                from_peers, nodes = report.progress.peer_bytes, report.progress.nodes
            elif report.failed is not None:
                raise SystemExit(report.failed.message)
            elif report.done is not None:
                seconds = time.monotonic() - began
                child.end(5.0)
                return {"seconds": seconds, "digest": report.done.digest, "from_peers": from_peers, "nodes": nodes}

    def _exchange(self, report: BlocksReport) -> BlocksAnswer:
        return from_json(BlocksAnswer, self._ask("blocks", {"url": self._url, "report": to_json(report)}))

    def _ask(self, what: str, body: dict[str, Any]) -> Any:
        return self._board.request("POST", f"/{self._config.name}/{what}", json_body=body)


def serve_wrong_bytes() -> None:
    honest = Shelves.read

    def lie(self: Shelves, name: str, block: int) -> tuple[int, Iterator[bytes]]:
        size, _ = honest(self, name, block)
        return size, iter([bytes(size)])

    Shelves.read = lie  # type: ignore[method-assign]
    serve()


def main() -> None:
    if sys.argv[1] == "--serve-wrong-bytes":
        serve_wrong_bytes()
        return
    node = Node(NodeConfig(**json.loads(Path(sys.argv[1]).read_text())))
    serving = node.prepare()
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(node.stage()), flush=True)
    # Others may still need blocks from this node.
    sys.stdin.readline()
    if serving is not None:
        serving.end(1.0)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(used.ru_utime + used.ru_stime, flush=True)


if __name__ == "__main__":
    main()
