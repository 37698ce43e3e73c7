"""The real server's application on a database in memory: its routes, decisions and streams; no loops, no sockets."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import insert, select
from tests.simulated.world import Answer, AttemptState, Broken, Delivery, Placement, RunState

from muster.engines.base import Cluster, NodeEngine, NodeOffer, NodeState
from muster.engines.registry import Engines
from muster.host import clock
from muster.paths import NodePaths, WorkspacePaths
from muster.server import loops
from muster.server.context import Context
from muster.server.data.state import WorkspaceFiles
from muster.server.database import tables
from muster.server.database.connection import Database
from muster.server.http.app import make_app
from muster.server.hub import Hub
from muster.server.main import _take_up
from muster.server.nodes.state import NodesState
from muster.server.people.access import Tokens
from muster.server.people.vault import Vault
from muster.server.runs import attempts, submission
from muster.server.tracking.reading import load_series
from muster.store.backend import Store
from muster.store.snapshots import Snapshots
from muster.store.streams import Streams
from muster.wire import states
from muster.wire.codec import from_json, to_json
from muster.wire.node.agents import AgentConfig, AttemptKey, Chunk, Heartbeat, Hello, Order, Orders, encode
from muster.wire.runs import Submission

_MEMORY = Path("/dev/shm")
_LINE = 8
_RETRY = {"node_loss": 2, "platform": 2, "user_error": 1, "on_codes": ["exit_code", "signal"], "backoff_s": 1}


class StillEngine(NodeEngine):
    """Offers three machines and starts nobody: the simulation brings the agents."""

    name = "still"

    def check(self, cluster: Cluster) -> list[str]:
        return []

    def nodes(self, cluster: Cluster) -> Sequence[NodeOffer]:
        return [NodeOffer(f"n{index}", f"n{index}", "127.0.0.1", 2, 1 << 30, own_share=True) for index in range(3)]

    def start(self, cluster: Cluster, agents: Sequence[AgentConfig]) -> None:
        """Nobody."""

    def poll(self, cluster: Cluster, nodes: Mapping[str, NodePaths]) -> Mapping[str, NodeState]:
        return {node: NodeState("up") for node in nodes}

    def release(self, cluster: Cluster, nodes: Sequence[str]) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing is open."""

    def scales(self, cluster: Cluster) -> bool:
        return False


class RealServer:
    """One workspace, as its server holds it; a restart makes all of it anew but the database and the store."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="muster-simulated-", dir=_MEMORY))
        self.now = 1_000_000.0
        self._kept = (clock.CLOCK._wall, clock.CLOCK._monotonic, clock.CLOCK.offset_s, submission.new_id)
        clock.CLOCK._wall = clock.CLOCK._monotonic = lambda: self.now
        clock.CLOCK.offset_s = 0.0
        # Names that are the same when an episode is played again.
        submission.new_id = lambda spec: str(spec.display_name)
        self._paths = WorkspacePaths(self._folder / ".muster")
        self._paths.server_dir.mkdir(parents=True)
        self._runner = asyncio.Runner()
        self._runner.__enter__()
        self._open()
        row = {"name": "c", "engine": "still", "state": "ready", "created_at": 0.0, "options": {}}
        self._write(lambda transaction: transaction.execute(insert(tables.clusters).values(**row)))

    def _open(self) -> None:
        store = Store(str(self._paths.store))
        self._database = Database(f"sqlite:///{self._paths.database}")
        self._context = Context(
            workspace_id="w",
            paths=self._paths,
            database=self._database,
            hub=self._runner.run(_hub()),
            files=WorkspaceFiles(store, Snapshots(store), Streams(self._paths.store / "runs")),
            tokens=Tokens(self._database),
            vault=Vault(b"k" * 32),
            nodes=NodesState(Engines({"still": "tests.simulated.real_server:StillEngine"}), ()),
        )
        self._app = make_app(self._context, lambda **_: None)
        self._token = self._context.tokens.admin(self._paths.admin_token)
        self._write(lambda transaction: _take_up(self._context, transaction))

    def close(self) -> None:
        self._database.close()
        self._runner.close()
        clock.CLOCK._wall, clock.CLOCK._monotonic, clock.CLOCK.offset_s, submission.new_id = self._kept
        shutil.rmtree(self._folder)

    # What clients and agents ask for

    def submit(self, run: str, nodes: int, ranks: int) -> None:
        gang = {"type": "pytorch", "process_count_per_instance": ranks}
        spec = {"command": "true", "compute": "c", "display_name": run, "distribution": gang, "retry": _RETRY}
        body = Submission(run, {**spec, "resources": {"instance_count": nodes}})
        # Sent twice: the same key is the same run.
        for _ in range(2):
            self._call("POST", "/runs", to_json(body), (200, 201))

    def hello(self, node: str, agent: str, holding: Sequence[AttemptKey]) -> None:
        body = Hello(node, "c", agent, 2, host=node, address="127.0.0.1", cpus=2, holding=tuple(holding))
        self._call("POST", "/agents/hello", to_json(body), (200,))

    def orders(self, node: str, agent: str) -> Sequence[Order] | None:
        status, found = self._ask("GET", f"/agents/{node}/orders?agent={agent}&seen=-1&wait_s=0")
        if status == 409:
            return None
        return from_json(Orders, found).orders

    def deliver(self, node: str, delivery: Delivery) -> Answer:
        frames: list[Any] = []
        for chunk in delivery.chunks:
            lines = range(chunk.offset, chunk.offset + chunk.size)
            printed = "".join(f"{line:0{_LINE - 1}}\n" for line in lines).encode()
            logged = "".join(_logged(line) for line in lines).encode()
            size = len(_logged(0))
            # Two streams that must not be taken for each other: what ranks print, and what they log.
            frames.append(Chunk(*chunk.key, f"user_logs/{node}.txt", chunk.offset * _LINE, printed))
            frames.append(Chunk(*chunk.key, f"events/{node}.jsonl", chunk.offset * size, logged))
        frames += [*delivery.events, Heartbeat(tuple(delivery.holding))]
        body = b"".join(encode(frames))
        status, found = self._ask("POST", f"/agents/{node}/deliveries?agent={delivery.agent}", body)
        if status != 200:
            raise Broken(f"a delivery is answered with {status}: {found}")
        lengths = {
            (run, attempt): length // _LINE
            for run, attempt, stream, length in found["lengths"]
            if stream.startswith("user_logs/")
        }
        return Answer(lengths, tuple((run, attempt) for run, attempt in found["forget"]))

    def cancel(self, run: str, force: bool) -> None:
        self._call("POST", f"/runs/{run}/cancel", {"force": force}, (200,))

    # What its loops do

    def lose(self, node: str, give_up: bool) -> None:
        self._context.hub.contacts.pop(node, None)
        self._write(partial(attempts.lose_node, self._context, node=node, give_up=give_up))

    def watch(self) -> None:
        """Nothing beyond the scheduler."""

    def schedule(self) -> None:
        self._write(lambda transaction: loops.schedule_pass(self._context, transaction))
        self._runner.run(_turn())

    def restart(self) -> None:
        self._database.close()
        self._open()

    # What is recorded

    def runs(self) -> list[RunState]:
        return self._database.read_now(_runs)

    def printed(self, key: AttemptKey, node: str) -> int:
        return self._context.files.streams.length(*key, f"user_logs/{node}.txt") // _LINE

    def check_bytes(self, key: AttemptKey, node: str, lines: int) -> None:
        """Every line and every point once and in order."""
        streams = self._context.files.streams
        text = streams.read(*key, f"user_logs/{node}.txt", 0, 1 << 30) if lines else b""
        if text != "".join(f"{line:0{_LINE - 1}}\n" for line in range(lines)).encode():
            raise Broken(f"the log of {key} on {node} is not what was printed: {lines} lines, {len(text)} bytes")
        series = self._database.read_now(lambda c: load_series(c, key[0], None, None))
        values = [value for one in series if (one.attempt, one.source) == (key[1], node) for value in one.values]
        if [int(value) for value in values] != list(range(lines)):
            raise Broken(f"{lines} points of {key} on {node} were logged, {len(values)} are there")

    def _write(self, work: Any) -> Any:
        return self._database.submit(work).result()

    def _call(self, method: str, path: str, body: object, allowed: Sequence[int]) -> Any:
        status, found = self._ask(method, path, json.dumps(body).encode())
        if status not in allowed:
            raise Broken(f"{method} {path} is answered with {status}: {found}")
        return found

    def _ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
        status, text = self._runner.run(_request(self._app, self._token, method, f"/api/v1{path}", body))
        return status, json.loads(text) if text else None


def _logged(line: int) -> str:
    """A line of the in-run API; all are of one length."""
    text = json.dumps({"kind": "metric", "name": "line", "value": line, "at": 1.0})
    return f"{text:<80}\n"


def _runs(connection: Any) -> list[RunState]:
    runs, attempt_rows, placements = tables.runs, tables.attempts, tables.placements
    places: dict[tuple[str, int], list[Placement]] = {}
    columns = ("run_id", "number", "node", "phase", "ranks")
    for row in connection.execute(select(*placements.c[columns]).order_by(placements.c.node_rank)):
        places.setdefault((row.run_id, row.number), []).append(Placement(row.node, row.phase, row.ranks))
    found: dict[str, list[AttemptState]] = {}
    for row in connection.execute(
        select(*attempt_rows.c["run_id", "number", "ended_at"]).order_by(attempt_rows.c.number)
    ):
        state = AttemptState(row.number, row.ended_at is not None, tuple(places.get((row.run_id, row.number), ())))
        found.setdefault(row.run_id, []).append(state)
    rows = connection.execute(select(runs.c.id, runs.c.status, runs.c.started_at)).all()
    ranks = connection.execute(select(tables.ranks.c.run_id).where(tables.ranks.c.started_at.is_not(None)))
    started = set(ranks.scalars())
    for row in rows:
        if row.status in states.TERMINAL and row.id in started and row.started_at is None:
            raise Broken(f"{row.id} has ended, its ranks had started, and it never did")
    return [RunState(row.id, row.status, tuple(found.get(row.id, ()))) for row in rows]


async def _hub() -> Hub:
    return Hub()


async def _turn() -> None:
    await asyncio.sleep(0)


async def _request(app: Any, token: str, method: str, path: str, body: bytes) -> tuple[int, bytes]:
    path, _, query = path.partition("?")
    headers = [(b"authorization", f"Bearer {token}".encode()), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": headers}
    sent: list[Any] = []
    bodies = [body]

    async def receive() -> Any:
        if not bodies:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": bodies.pop()}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])
