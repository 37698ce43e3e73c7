"""The proxy's HTTP: logging calls are answered at once, the run's files stay on the node, the rest is passed on.

MLflow's client waits for minutes if its server is unavailable; a training must not.
"""

from __future__ import annotations

import hmac
import io
import json
import os
import shutil
import stat
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from io import BufferedIOBase
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qs, unquote, urlsplit

from muster.agent.mlflow import events
from muster.agent.mlflow.messages import RANK_PREFIX, ProxyRequest
from muster.agent.mlflow.server import Forwarder
from muster.errors import ServerUnavailable
from muster.host.sandbox.fence import folder_inside, open_inside, put_inside
from muster.runtime.events import EventFile
from muster.runtime.uploads import UNFINISHED, check_name
from muster.wire.codec import Json

_CALLS = "/api/2.0/mlflow/"
_ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts"
_BODY_BYTES = 64 << 20
_PIECE = 1 << 20

Answer = dict[str, Json]


class Proxied:
    """The state that all connections of one proxy share."""

    def __init__(self, request: ProxyRequest) -> None:
        self.request = request
        self.forwarder = Forwarder(request)
        self.experiments: dict[int, str] = {}
        """The experiment that each rank set last."""
        self.info: Answer = {}
        """The server's last description of the run."""
        self._files: dict[int, EventFile] = {}
        self._lock = threading.Lock()

    def events_of(self, rank: int) -> EventFile:
        with self._lock:
            if rank not in self._files:
                self._files[rank] = EventFile(str(Path(self.request.events) / f"rank_{rank}.jsonl"))
            return self._files[rank]

    def run_info(self) -> Answer:
        """The run as far as it is known here: an unavailable server must not delay a script."""
        run = self.request.run
        return {
            "run_id": run, "run_uuid": run, "experiment_id": "0", "run_name": run, "user_id": "", "status": "RUNNING",
            "start_time": 0, "artifact_uri": f"mlflow-artifacts:/0/{run}/artifacts", "lifecycle_stage": "active",
            **self.info,
        }  # fmt: skip


class Handler(BaseHTTPRequestHandler):
    """One connection of a rank."""

    protocol_version = "HTTP/1.1"
    # Send each answer in one piece and at once: in two, each call waited 40 ms for a delayed acknowledgement.
    wbufsize = -1
    disable_nagle_algorithm = True
    proxied: Proxied
    rank = 0
    path_inside = ""
    query = ""

    def handle_any(self) -> None:
        parts = urlsplit(self.path)
        rank, _, inside = parts.path.removeprefix(RANK_PREFIX).partition("/")
        given = self.headers.get("Authorization", "").encode()
        if not hmac.compare_digest(given, f"Bearer {self.proxied.request.secret}".encode()):
            self._refuse(403, "PERMISSION_DENIED", "this address is for the ranks of one run")
            return
        if not parts.path.startswith(RANK_PREFIX) or not rank.isdecimal():
            self._refuse(404, "ENDPOINT_NOT_FOUND", f"there is no {parts.path}")
            return
        self.rank, self.path_inside, self.query = int(rank), f"/{inside}", parts.query
        try:
            self._answer()
        except ServerUnavailable as error:
            # A code that clients retry: a restarting server is back soon.
            self._refuse(503, "TEMPORARILY_UNAVAILABLE", str(error))
        except events.Refused as error:
            self._refuse(400, "INVALID_PARAMETER_VALUE", str(error))
        except (TypeError, ValueError) as error:
            self._refuse(400, "INVALID_PARAMETER_VALUE", str(error))

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = handle_any

    def log_message(self, format: str, *args: object) -> None:
        """Calls are not logged."""

    def _answer(self) -> None:
        if self.path_inside.startswith(_ARTIFACTS):
            self._artifact()
        elif self.command == "POST" and self.path_inside.startswith(_CALLS + "runs/"):
            self._run_call(self.path_inside.removeprefix(_CALLS))
        else:
            self._forward(None if self.command in ("GET", "HEAD") else self._body())

    # Calls about runs

    def _run_call(self, call: str) -> None:
        body = self._body()
        given = _object(body)
        if (given.get("run_id") or given.get("run_uuid")) != self.proxied.request.run:
            self._forward(body)
            return
        if call == "runs/update":
            self._update(given)
            return
        found = events.of_call(call, given, time.time())
        if found is None or events.names_a_model(given):
            if self._is_forwarded(body, needed=found is None):
                return
            assert found is not None
        file = self.proxied.events_of(self.rank)
        for event in found:
            file.append(event)
        self._send({})

    def _is_forwarded(self, body: bytes, needed: bool) -> bool:
        """Whether the server has answered; it may be unavailable unless `needed`."""
        try:
            self._forward(body)
        except ServerUnavailable:
            if needed:
                raise
            return False
        return True

    def _update(self, given: Mapping[str, Json]) -> None:
        """Rename the run; a status is not kept, since the exit of its processes decides it."""
        if isinstance(name := given.get("run_name"), str) and name:
            event: events.Event = {"kind": "tag", "name": "mlflow.runName", "value": name, "at": time.time()}
            self.proxied.events_of(self.rank).append(event)
        status = given.get("status") or "RUNNING"
        self._send({"run_info": {**self._own_info(self.proxied.run_info()), "status": status}})

    def _own_info(self, info: Answer) -> Answer:
        """The run's description with the experiment that the script set: MLflow refuses a run of another experiment."""
        chosen = self.proxied.experiments.get(self.rank)
        return {**info, "experiment_id": chosen} if chosen is not None else info

    # Everything else

    def _forward(self, body: bytes | IO[bytes] | None) -> None:
        target = self.path_inside + (f"?{self.query}" if self.query else "")
        call = self.path_inside.removeprefix(_CALLS)
        own = parse_qs(self.query).get("run_id", parse_qs(self.query).get("run_uuid", [""]))[0]
        is_own_run = call == "runs/get" and own == self.proxied.request.run
        try:
            with self.proxied.forwarder.send(self.command, target, self.rank, dict(self.headers), body) as response:
                if not is_own_run and not call.startswith("experiments/"):
                    self._pass(response)
                    return
                status, answer = response.status, json.loads(response.read())
        except ServerUnavailable:
            if not is_own_run:
                raise
            info = self._own_info(self.proxied.run_info())
            self._send({"run": {"info": info, "data": {"metrics": [], "params": [], "tags": []}}})
            return
        if status == 200 and is_own_run:
            self.proxied.info = dict(answer["run"]["info"])
            answer["run"]["info"] = {**self._own_info(self.proxied.info), "status": "RUNNING"}
        elif status == 200 and call in ("experiments/get-by-name", "experiments/get"):
            self.proxied.experiments[self.rank] = answer["experiment"]["experiment_id"]
        self._send(answer, status)

    def _pass(self, response: Any) -> None:
        """Pass the server's answer on unchanged."""
        self.send_response(response.status)
        length = response.headers.get("Content-Length")
        for name in ("Content-Type", "Content-Length", "Content-Range"):
            if response.headers.get(name):
                self.send_header(name, response.headers[name])
        if length is None:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        shutil.copyfileobj(response, self.wfile, _PIECE)

    # Files of the run

    def _artifact(self) -> None:
        listed = unquote(parse_qs(self.query).get("path", [""])[0]) if self.path_inside == _ARTIFACTS else None
        address = listed if listed is not None else unquote(self.path_inside.removeprefix(f"{_ARTIFACTS}/"))
        parts = [part for part in address.split("/") if part not in ("", ".")]
        if len(parts) < 3 or parts[1] != self.proxied.request.run or ".." in parts:
            self._forward(self._body_file() if self.command == "PUT" else None)
            return
        name, folder = "/".join(parts[3:]), Path(self.proxied.request.uploads)
        if self.command == "PUT":
            try:
                put_inside(folder, Path(check_name(name)), UNFINISHED, self._body_file())
            except OSError as error:
                raise events.Refused(f"{name} cannot be kept: {error.strerror or error}") from error
            self._send({})
        elif listed is not None:
            self._list(folder, name)
        elif self.command != "GET" or not name or not self._send_file(folder, Path(name)):
            self._forward(None)

    def _list(self, folder: Path, name: str) -> None:
        """List the files that the server has, and those on this node that it does not have yet."""
        found: dict[str, Json] = {}
        target = f"{self.path_inside}?{self.query}"
        try:
            with self.proxied.forwarder.send("GET", target, self.rank, dict(self.headers)) as response:
                if response.status == 200:
                    found = {item["path"]: item for item in json.loads(response.read())["files"]}
        except ServerUnavailable:
            pass
        with suppress(OSError), folder_inside(folder, Path(name)) as descriptor:
            for entry in os.scandir(descriptor):
                is_folder = entry.is_dir(follow_symlinks=False)
                size = {} if is_folder else {"file_size": entry.stat(follow_symlinks=False).st_size}
                if entry.name != UNFINISHED:
                    found[entry.name] = {"path": entry.name, "is_dir": is_folder, **size}
        self._send({"files": [found[name] for name in sorted(found)]})

    def _send_file(self, folder: Path, inner: Path) -> bool:
        """Send a file that is on this node, or return False; links are not followed, since they may lead anywhere."""
        try:
            descriptor = open_inside(folder, inner)
        except OSError:
            return False
        with os.fdopen(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return False
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(os.fstat(stream.fileno()).st_size))
            self.end_headers()
            shutil.copyfileobj(stream, self.wfile, _PIECE)
        return True

    # Bytes

    def _body(self) -> bytes:
        data = self._body_file().read(_BODY_BYTES + 1)
        if len(data) > _BODY_BYTES:
            self.close_connection = True
            raise events.Refused(f"the body is longer than {_BODY_BYTES >> 20} MiB")
        return data

    def _body_file(self) -> IO[bytes]:
        """The body of the request, which may be as large as a model."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            return io.BufferedReader(_Chunks(self.rfile))
        length = self.headers.get("Content-Length", "0")
        return io.BufferedReader(_Counted(self.rfile, int(length) if length.isdecimal() else 0))

    def _send(self, answer: Answer, status: int = 200) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _refuse(self, status: int, code: str, message: str) -> None:
        # The unread rest of a body would be taken for the next request.
        self.close_connection = True
        self._send({"error_code": code, "message": message}, status)


class _Counted(io.RawIOBase):
    """The first `left` bytes of a stream."""

    def __init__(self, source: BufferedIOBase, left: int) -> None:
        self._source = source
        self._left = left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._source.read(min(len(buffer), self._left))
        self._left -= len(data)
        if not data and self._left:
            raise ConnectionError("the body broke off")
        buffer[: len(data)] = data
        return len(data)


class _Chunks(io.RawIOBase):
    """A body of unknown length, which comes in chunks."""

    def __init__(self, source: BufferedIOBase) -> None:
        self._source = source
        self._left = 0
        self._done = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._done:
            return 0
        if not self._left:
            self._left = int(self._source.readline(32).split(b";")[0] or b"0", 16)
            if not self._left:
                self._done = True
                while self._source.readline(1024).strip():
                    pass
                return 0
        data = self._source.read(min(len(buffer), self._left))
        if not data:
            raise ConnectionError("the body broke off")
        self._left -= len(data)
        if not self._left:
            self._source.readline(8)
        buffer[: len(data)] = data
        return len(data)


def _object(body: bytes) -> Mapping[str, Json]:
    try:
        found = json.loads(body) if body.strip() else {}
    except (RecursionError, ValueError) as error:
        raise events.Refused(f"the body is no JSON object: {error}") from None
    if not isinstance(found, dict):
        raise events.Refused("the body is no JSON object")
    return found
