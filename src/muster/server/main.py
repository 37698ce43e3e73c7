"""The server's process: one per workspace, held by a lock."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ipaddress
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import uvicorn
import uvloop
from sqlalchemy import insert, select
from sqlalchemy.exc import DatabaseError

from muster import errors
from muster.control.isolation import read_isolation
from muster.defaults import AGENTS_LEAVE_S, IDLE_EXIT_S, SERVER_LEAVE_S
from muster.engines.registry import DEFAULT, Engines
from muster.host import watchdog
from muster.host.files import PRIVATE, write_file
from muster.host.fingerprints import fingerprint
from muster.host.locks import FileLock, HeldLock
from muster.host.network import reachable
from muster.paths import WorkspacePaths, user_runtime_dir
from muster.server import loops
from muster.server.clock import ClockFile, shift
from muster.server.context import Context
from muster.server.data import encryption, output_assets
from muster.server.data.grants import read_subnet
from muster.server.data.state import WorkspaceFiles
from muster.server.data.workspace_store import check_answers, open_workspace_store
from muster.server.database import tables
from muster.server.database.connection import Database, Transaction
from muster.server.database.faults import REPAIR, is_damaged
from muster.server.database.integrity import refuse_damaged
from muster.server.database.records import active_run_count
from muster.server.database.reserve import Reserve
from muster.server.disk import is_full_error
from muster.server.endpoints.loop import keep_endpoints
from muster.server.fileservers.keeping import keep_file_servers
from muster.server.http.app import make_app
from muster.server.http.doors import AgentsDoor, PeopleDoor
from muster.server.http.draining import Draining
from muster.server.http.invitation import invitation
from muster.server.http.listening import BoundedHttp, most_connections
from muster.server.http.remote import RemoteListener
from muster.server.hub import Hub
from muster.server.monitoring.settings import read_telemetry
from muster.server.monitoring.telemetry import export_telemetry
from muster.server.nodes import agents, lifecycle, queue_jobs
from muster.server.nodes.clusters import has_living_nodes
from muster.server.nodes.state import NodesState
from muster.server.notifications import delivery
from muster.server.notifications.state import NotificationsState, read_smtp
from muster.server.people.access import Tokens
from muster.server.people.sso import SsoState, read_sso
from muster.server.people.vault import load_vault
from muster.server.portal.listener import LoopbackListener
from muster.server.queue.state import RunsState
from muster.server.runs import attempts, record_files, retries
from muster.storage.reach import read_reach
from muster.store.keyring import load_keyring, read_config
from muster.store.snapshots import Snapshots
from muster.store.streams import Streams
from muster.version import VERSION
from muster.wire import states
from muster.wire.workspace import READY

log = logging.getLogger("muster.server")

_LOOKED_AT_S = 5.0
"""A client that checks for a server holds its lock for a moment, which may be long on a busy machine."""


def main() -> None:
    options = _arguments()
    paths = WorkspacePaths(Path(options.workspace).resolve())
    _log_to(paths, options.foreground)
    watchdog.end_without_memory()
    try:
        with _lock(paths), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(Process(paths, options).run())
    except errors.MusterError as error:
        _say_last_words(options, str(error))
        sys.exit(2)
    except Exception as error:
        log.exception("the server failed and exits")
        _say_last_words(options, f"{type(error).__name__}: {error}")
        sys.exit(1)


def _say_last_words(options: argparse.Namespace, text: str) -> None:
    """Report a failed start to the waiting parent too, because the log may be on a full disk."""
    with contextlib.suppress(OSError):
        print(f"muster: {text}", file=sys.stderr)
    with contextlib.suppress(OSError):
        if options.ready_fd is not None:
            os.write(options.ready_fd, text.encode()[:4000])


class Process:
    """The server's process."""

    def __init__(self, paths: WorkspacePaths, options: argparse.Namespace) -> None:
        self._paths = paths
        self._options = options
        self._url: str | None = None
        self._certificate: Path | None = None
        self._key: Path | None = None
        self._agents_elsewhere: Callable[[], bool] = lambda: False
        self._stopping = asyncio.Event()
        self._leave_agents = True

    def _for_browsers(self, app: Draining) -> LoopbackListener:
        """The URL for browsers, which cannot use a Unix socket."""
        url = reachable(self._url) if self._url else None
        return LoopbackListener(partial(_server, app), self._paths.portal_port, url)

    async def run(self) -> None:
        watchdog.watch()
        context = await self._open()
        app = Draining(make_app(context, self.stop))
        sockets = self._listen(app)
        # The first cluster on other machines opens a port to the network: for agents, not for people.
        serve = partial(_server, AgentsDoor(app))
        pair = (self._certificate, self._key) if self._certificate and self._key else None
        remote = RemoteListener(context, serve, self._socket_path, self._url, pair)
        context.remote.open = remote.open
        browsers = self._for_browsers(app)
        context.portal.url = browsers.url
        context.fingerprint = self._own_fingerprint()
        context.notifications.url = reachable(self._url) if self._url else None
        self._agents_elsewhere = lambda: remote.agents_elsewhere
        self._heed_signals()
        context.database.writer.before_commit = loops.schedule_at_once(context)
        context.database.writer.after_abort = context.runs.start_over
        context.missing_runs = await asyncio.to_thread(_missing_runs, context)
        await context.database.write(lambda transaction: _take_up(context, transaction))
        tasks = self._start_loops(context)
        serving = [asyncio.create_task(server.serve([item])) for server, item in sockets]
        context.hub.in_background(lambda: encryption.finish_rotation(context))
        context.hub.in_background(lambda: output_assets.take_up(context))
        context.hub.scheduler.set()
        await remote.open()
        self._announce()
        await self._stopping.wait()
        context.endpoints.close()
        await app.finish(SERVER_LEAVE_S)
        # Before agents are asked to leave, so that nothing restarts them.
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await self._wind_down(context)
        if not context.disk.full:
            await asyncio.to_thread(loops.write_records, context)
        for server, _ in sockets:
            server.should_exit = True
        context.hub.close()
        context.tunnels.close()
        await remote.close()
        await browsers.close()
        await asyncio.wait(serving, timeout=SERVER_LEAVE_S)
        context.database.close()
        if not context.disk.full:
            # On a full disk the next server could not create it again.
            self._paths.server_info.unlink(missing_ok=True)
        self._socket_path.unlink(missing_ok=True)

    def _heed_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            # A person who ends a server by hand does not want idle agents to stay behind.
            loop.add_signal_handler(number, partial(self.stop, leave_agents=not self._options.foreground))

    def _start_loops(self, context: Context) -> list[asyncio.Task[None]]:
        work = [
            loops.scheduler,
            loops.watch_nodes,
            lifecycle.tend_clusters,
            loops.publish_streams,
            queue_jobs.watch,
            loops.watch_disk,
            loops.watch_clock,
            loops.keep_records,
            loops.keep_backups,
            delivery.notify,
            export_telemetry,
            keep_endpoints,
            keep_file_servers,
        ]
        if self._options.idle_exit_s > 0:
            work.append(self._leave_when_idle)
        return [asyncio.create_task(loops.kept_up(loop_of, context)) for loop_of in work]

    def stop(self, leave_agents: bool = True) -> None:
        self._leave_agents = leave_agents
        self._stopping.set()

    async def _open(self) -> Context:
        config = json.loads(self._paths.config.read_text())
        self._socket_path = user_runtime_dir() / config["id"][:12] / "server.sock"
        url = self._options.database or config.get("database") or f"sqlite:///{self._paths.database}"
        self._paths.server_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        reserve = Reserve(self._paths.reserve)
        reserve.release_if_full()
        database = _open_database(url)
        if self._paths.server_info.exists():
            # The last server did not remove it: it was killed.
            refuse_damaged(database)
        database.writer.make_room = reserve.release
        ring = load_keyring(read_config(config), self._paths.root)
        url = self._options.store or config.get("store") or str(self._paths.store)
        store = open_workspace_store(url, config, ring)
        check_answers(store, url, config)
        encryption.check_key(store)
        streams = store.local_root / "runs" if store.local_root else self._paths.server_dir / "streams"
        tokens = Tokens(database)
        tokens.admin(self._paths.admin_token)
        return Context(
            workspace_id=config["id"],
            paths=self._paths,
            database=database,
            hub=Hub(),
            files=WorkspaceFiles(store, Snapshots(store), Streams(streams, ring), ring),
            tokens=tokens,
            vault=load_vault(self._paths),
            nodes=NodesState(Engines(config.get("engines")), (f"unix:{self._socket_path}",)),
            sso=SsoState(sso) if (sso := read_sso(config.get("sso"))) else None,
            isolation=read_isolation(config.get("isolation")),
            grants_subnet=read_subnet(config.get("grants")),
            reach=read_reach(config.get("reach")),
            runs=RunsState(retry=retries.workspace_policy(config.get("retry"))),
            notifications=NotificationsState(read_smtp(config.get("smtp"))),
            telemetry=read_telemetry(self._options.otlp, config.get("otlp"), os.environ),
        )

    def _listen(self, app: Any) -> list[tuple[uvicorn.Server, socket.socket]]:
        folder = self._socket_path.parent
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _own_folder(folder)
        self._socket_path.unlink(missing_ok=True)
        local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        local.bind(str(self._socket_path))
        self._socket_path.chmod(0o600)
        local.listen(1024)
        if not self._options.tcp:
            return [(_server(app), local)]
        host, _, port = self._options.tcp.rpartition(":")
        host = host.strip("[]")
        self._certificate, self._key = self._certificate_and_key(host)
        _refuse_without_tls(host, self._certificate)
        public = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        public.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            public.bind((host, int(port)))
        except OSError as error:
            raise errors.UserError(f"cannot listen on {host}:{port}: {error}", "Choose another --port.") from error
        public.listen(1024)
        scheme = "https" if self._certificate else "http"
        self._url = f"{scheme}://{host}:{public.getsockname()[1]}"
        team = PeopleDoor(app, lambda: self._agents_elsewhere())
        return [(_server(app), local), (_server(team, self._certificate, self._key), public)]

    def _certificate_and_key(self, host: str) -> tuple[Path | None, Path | None]:
        if self._options.tls_cert:
            return Path(self._options.tls_cert), Path(self._options.tls_key)
        if self._options.tls_self_signed:
            from muster.server.http.tls import self_signed

            return self_signed(self._paths.tls_dir, host)
        return None, None

    def _own_fingerprint(self) -> str | None:
        """The fingerprint of a self-signed certificate; one of an authority is renewed, and trusted without it."""
        if self._certificate is None or self._options.tls_cert:
            return None
        return fingerprint(self._certificate.read_text())

    def _announce(self) -> None:
        info = {
            "socket": str(self._socket_path),
            "url": self._url,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "version": VERSION,
            "started_at": time.time(),
        }
        self._write_info(json.dumps(info))
        log.info("Muster %s serves workspace %s at %s", VERSION, self._paths.root, info["url"] or info["socket"])
        if self._options.foreground and self._url:
            print(invitation(self._url, self._certificate), file=sys.stderr, flush=True)
        if self._options.ready_fd is not None:
            os.write(self._options.ready_fd, READY)
            os.close(self._options.ready_fd)
            self._options.ready_fd = None

    def _write_info(self, text: str) -> None:
        path = self._paths.server_info
        try:
            write_file(path, text, mode=PRIVATE)
        except OSError as error:
            if not is_full_error(error) or not path.exists():
                raise
            # The last server's file has its disk block already.
            with path.open("r+") as file:
                file.write(text)
                file.truncate()

    async def _leave_when_idle(self, context: Context) -> None:
        limit_s = self._options.idle_exit_s
        while True:
            await asyncio.sleep(min(5.0, limit_s / 4))
            idle_s = time.monotonic() - context.touched
            busy = await context.database.read(active_run_count)
            undelivered = any(contact.holding for contact in context.hub.contacts.values())
            has_nodes = await context.database.read(has_living_nodes)
            if busy or undelivered or has_nodes or await context.database.read(delivery.is_busy):
                context.touched = time.monotonic()
            elif idle_s > limit_s:
                log.info("idle for %.0f s: leaving", idle_s)
                self.stop(leave_agents=False)
                return

    async def _wind_down(self, context: Context) -> None:
        """End idle agents; those with work go on alone."""
        if not self._leave_agents:
            context.hub.leaving = True
            context.hub.wake_all()
            began = time.monotonic()
            while left := await agents.living_agents(context):
                is_idle = any(not context.hub.holds_work(node) for node in left)
                if time.monotonic() - began > (AGENTS_LEAVE_S if is_idle else SERVER_LEAVE_S):
                    break
                await asyncio.sleep(0.05)
        # Some engines still have to talk to their manager.
        await asyncio.to_thread(context.nodes.engines.close)


def _open_database(url: str) -> Database:
    try:
        return Database(url)
    except DatabaseError as error:
        if not is_damaged(error):
            raise
        raise errors.UserError(f"the workspace database is damaged: {error.orig}", REPAIR) from error


def _missing_runs(context: Context) -> str:
    """Runs that the store has and the database lacks, as after a lost write-ahead log."""
    if context.files.store.local_root is None:
        return ""
    found = context.database.read_now(lambda connection: record_files.missing(connection, context.files.store))
    if not found:
        return ""
    some = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
    text = f"the database lacks {len(found)} runs that the store has ({some}): `muster repair` puts them back"
    log.warning("%s", text)
    return text


def _take_up(context: Context, transaction: Transaction) -> None:
    """Go on where the last server stopped."""
    known = transaction.execute(select(tables.clusters.c.name).where(tables.clusters.c.name == DEFAULT)).first()
    if known is None:
        row = {"name": DEFAULT, "engine": DEFAULT, "options": {}, "state": "ready", "created_at": time.time()}
        transaction.execute(insert(tables.clusters).values(row))
    kept = ClockFile(context.paths.clock)
    if jump_s := kept.jump_s():
        shift(transaction, jump_s)
    transaction.after_commit.append(kept.keep)
    for row in transaction.execute(select(tables.runs.c.id).where(tables.runs.c.status.in_(states.ACTIVE))).all():
        attempts.advance(context, transaction, row.id)
    retries.take_up(context, transaction)


class _QuietServer(uvicorn.Server):
    """A listener that leaves signals to the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _server(app: Any, certificate: Path | None = None, key: Path | None = None) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_keep_alive=120,
        timeout_graceful_shutdown=2,
        http=BoundedHttp,
        limit_concurrency=most_connections(),
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    return _QuietServer(config)


def _refuse_without_tls(host: str, certificate: Path | None) -> None:
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback and certificate is None:
        raise errors.UserError(
            f"{host} can be reached from other machines, and there is no TLS",
            "Add --tls (a certificate of the workspace's own), or --cert and --key, or serve on 127.0.0.1.",
        )


def _own_folder(folder: Path) -> None:
    for path in (folder, folder.parent):
        if path.stat().st_uid != os.getuid():
            raise errors.UserError(f"{path} belongs to another user", "Set XDG_RUNTIME_DIR to a folder of your own.")
        path.chmod(0o700)


def _lock(paths: WorkspacePaths) -> HeldLock:
    paths.server_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    held = FileLock(paths.server_lock).acquire_within(_LOOKED_AT_S)
    if held is None:
        raise errors.Conflict(
            f"another server has the workspace {paths.root}", "`muster status` shows it; `muster down` ends it."
        )
    return held


def _log_to(paths: WorkspacePaths, foreground: bool) -> None:
    paths.server_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    handler: logging.Handler = RotatingFileHandler(paths.server_log, maxBytes=10 << 20, backupCount=2)
    handlers = [handler, logging.StreamHandler()] if foreground else [handler]
    for library in ("alembic", "azure", "uvicorn"):
        logging.getLogger(library).setLevel(logging.WARNING)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", handlers=handlers)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m muster.server", description="The server of one workspace.")
    parser.add_argument("--workspace", required=True, help="the workspace folder (.muster)")
    parser.add_argument("--tcp", metavar="HOST:PORT", help="listen there too, for a team")
    parser.add_argument("--tls-cert")
    parser.add_argument("--tls-key")
    parser.add_argument("--tls-self-signed", action="store_true")
    parser.add_argument("--database", help="SQLAlchemy URL; default: SQLite in the workspace")
    parser.add_argument("--store", help="fsspec URL for bytes; default: a folder of the workspace")
    parser.add_argument("--idle-exit-s", type=float, default=None, help="leave after that long without work; 0: never")
    parser.add_argument("--otlp", metavar="URL", help="export telemetry to this collector")
    parser.add_argument("--ready-fd", type=int, help="a byte is written there once it serves")
    parser.add_argument("--foreground", action="store_true")
    options = parser.parse_args()
    if options.idle_exit_s is None:
        options.idle_exit_s = 0.0 if options.foreground else float(os.environ.get("MUSTER_IDLE_EXIT_S", IDLE_EXIT_S))
    return options
