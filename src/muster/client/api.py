"""Typed calls to a server. Every call that may be repeated without harm is repeated when the server went away."""

from __future__ import annotations

import getpass
import http.client
import os
import shutil
import tarfile
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from muster.client.sse import SseParser, StreamEvent
from muster.errors import MusterError, NotFound, ServerUnavailable
from muster.host.files import is_safe_name, is_safe_path
from muster.host.http import Address, Connection, PerThread
from muster.host.server import ServerConnection
from muster.job.spec import JobSpec

API = "/api/v1"
_PIECE_BYTES = 1 << 20
_STREAM_SILENCE_S = 35.0
_RETRY_PAUSES_S = (0.0, 0.2, 1.0)


class Client:
    """Speaks to one server; may be shared between threads.

    `reconnect` finds the server again (and starts an embedded one) when it does not answer.
    """

    def __init__(self, address: Address, reconnect: Callable[[], Address] | None = None) -> None:
        self.address = address
        self._reconnect = reconnect
        self._connections = PerThread(_HeldConnection)

    # Runs

    def submit(
        self,
        spec: JobSpec,
        snapshot: str | None = None,
        key: str | None = None,
        python: str | None = None,
        notices: Sequence[str] = (),
        packages: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Submit a job; the same key again is the same run."""
        body = {
            "key": key or uuid.uuid4().hex,
            "spec": spec.model_dump(mode="json"),
            "snapshot": snapshot,
            "python": python,
            "submitted_by": _user(),
            "notices": list(notices),
            "packages": None if packages is None else dict(packages),
        }
        return self._dict("POST", "/runs", json_body=body)

    def runs(
        self, limit: int | None = None, experiment: str | None = None, status: str | Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """Runs, newest first."""
        return self._list("/runs", {"limit": limit, "experiment": experiment, "status": status})

    def run(self, ref: str) -> dict[str, Any]:
        """One run by id, unique prefix, name or `@latest`."""
        return self._dict("GET", _run(ref))

    def update_run(self, ref: str, **changes: Any) -> dict[str, Any]:
        """Change tags, display_name or description."""
        return self._dict("PATCH", _run(ref), json_body=changes)

    def cancel(self, ref: str, force: bool = False) -> dict[str, Any]:
        """Ask the run to stop, with grace; `force` kills it."""
        return self._dict("POST", _run(ref, "cancel"), json_body={"force": force})

    def retry(self, ref: str) -> dict[str, Any]:
        """One more attempt of a run that has ended."""
        return self._dict("POST", _run(ref, "retry"), again=False)

    def remove(self, ref: str) -> None:
        """Remove an ended run with all that is kept of it."""
        self._call("DELETE", _run(ref))

    def stream(
        self, ref: str, cursor: str | None = None, follow: bool = True, logs: bool = True, metrics: bool = True
    ) -> Iterator[StreamEvent]:
        """Events of a run from `cursor` on; goes on by itself after a lost connection or server."""
        run_id = self.run(ref)["id"]  # `@latest` must not become another run on the way
        failures = 0
        while True:
            query = {"cursor": cursor, "follow": int(follow), "logs": int(logs), "metrics": int(metrics)}
            try:
                for event in self._events(run_id, query):
                    failures = 0
                    cursor = event.cursor or cursor
                    yield event
                    if event.event == "end":
                        return
                if not follow:
                    return
            except (ServerUnavailable, http.client.HTTPException, OSError) as error:
                failures += 1
                if failures >= len(_RETRY_PAUSES_S):
                    raise ServerUnavailable(
                        f"the connection to the server was lost while following run {run_id}: {error}",
                        f"The run goes on. Try `muster logs -f {run_id}` again.",
                    ) from error
            time.sleep(_RETRY_PAUSES_S[min(failures, len(_RETRY_PAUSES_S) - 1)])
            self._find_again()

    def metrics(self, ref: str) -> list[dict[str, Any]]:
        """Every metric point in the order in which it was logged."""
        return self._list(_run(ref, "metrics"))

    def log_metrics(self, ref: str, points: Sequence[Mapping[str, Any]]) -> None:
        """Log from outside a rank: {name, value, step, type, at} each."""
        self._call("POST", _run(ref, "metrics"), json_body={"points": [dict(point) for point in points]}, again=False)

    # Files of a run

    def files(self, ref: str, checkpoints: bool = False) -> list[dict[str, Any]]:
        """{path, size} of everything that is kept; with `checkpoints` those too, below a folder of that name."""
        return self._list(_run(ref, "files"), query={"checkpoints": "true"} if checkpoints else None)

    def read_file(self, ref: str, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes of a file, or of a part of it."""
        if length == 0:
            return b""
        end = "" if length is None else str(offset + length - 1)
        with self._open(_file(ref, path), {"Range": f"bytes={offset}-{end}"}) as response:
            return response.read()

    def download(self, ref: str, path: str, target: Path | str, progress: Callable[[int], None] | None = None) -> Path:
        """A file of a run to `target`, whole or not at all; `progress` hears of each piece's size."""
        wanted = Path(target)
        wanted.parent.mkdir(parents=True, exist_ok=True)
        fd, name = tempfile.mkstemp(dir=wanted.parent, prefix=f".{wanted.name}.")
        scratch = Path(name)
        try:
            with os.fdopen(fd, "wb") as out:
                self._fetch(_file(ref, path), out, progress)
            scratch.chmod(0o644)
            scratch.replace(wanted)
        except BaseException:
            scratch.unlink(missing_ok=True)
            raise
        return wanted

    def upload(self, ref: str, path: str, source: Path | str | bytes) -> None:
        """Keep a file (or bytes) with a run under `path`."""
        if isinstance(source, bytes):
            self._call("PUT", _file(ref, path), body=source)
            return
        with Path(source).open("rb") as stream:
            self._call("PUT", _file(ref, path), body=stream, again=False, timeout_s=600.0)

    # Code

    def missing_blobs(self, files: Mapping[str, Any]) -> tuple[bool, list[str]]:
        """Whether the server has the snapshot, and which contents it lacks."""
        answer = self._dict("POST", "/snapshots/missing", json_body={"files": files})
        return bool(answer.get("known")), list(answer["missing"])

    def put_blobs(self, frames: Iterable[bytes]) -> None:
        """Send contents: a JSON line {sha256, size} and the bytes of each."""
        self._call("POST", "/blobs", body=iter(frames), again=False, timeout_s=600.0)

    def put_snapshot(self, digest: str, files: Mapping[str, Any]) -> None:
        self._call("PUT", f"/snapshots/{_segment(digest, 'snapshot')}", json_body={"files": files})

    def download_snapshot(self, digest: str, folder: Path | str) -> None:
        """The files of a snapshot, into a folder."""
        path = f"/snapshots/{_segment(digest, 'snapshot')}/archive"
        with self._open(path, {}) as response, tarfile.open(fileobj=response, mode="r|") as archive:
            for member in archive:
                _unpack(archive, member, Path(folder))

    # Everything else

    def health(self) -> dict[str, Any]:
        return self._dict("GET", "/health")

    def plan(self, spec: JobSpec, python: str | None = None) -> dict[str, Any]:
        """The plan of a job, without running it."""
        return self._dict("POST", "/plan", json_body={"spec": spec.model_dump(mode="json"), "python": python})

    def environments(self) -> list[dict[str, Any]]:
        """Registered environments, each in its newest version."""
        return self._list("/environments")

    def environment(self, name: str, version: str | None = None) -> dict[str, Any]:
        """A registered environment, its newest version unless one is named."""
        return self._dict("GET", f"/environments/{_segment(name, 'environment')}", query={"version": version})

    def register_environment(self, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Keep the next version of an environment."""
        return self._dict("POST", "/environments", json_body={"name": name, "spec": dict(spec)})

    def environment_of_run(self, ref: str) -> dict[str, Any]:
        """What a run's environment was made of, and the versions that it came to."""
        return self._dict("GET", _run(ref, "environment"))

    def clusters(self) -> list[dict[str, Any]]:
        return self._list("/clusters")

    def cluster(self, name: str) -> dict[str, Any]:
        return self._dict("GET", f"/clusters/{_segment(name, 'cluster')}")

    def create_cluster(self, cluster: Mapping[str, Any]) -> dict[str, Any]:
        """{name, engine, options}"""
        return self._dict("POST", "/clusters", json_body=dict(cluster), again=False)

    def change_cluster(
        self, name: str, options: Mapping[str, Any] | None = None, state: str | None = None, now: bool = False
    ) -> dict[str, Any]:
        """Resize, stop ("stopped") or start ("ready"); with `now` runs on nodes that go are queued again."""
        body = {"options": dict(options or {}), "state": state, "now": now}
        return self._dict("PATCH", f"/clusters/{_segment(name, 'cluster')}", json_body=body)

    def delete_cluster(self, name: str, mode: str = "refuse") -> None:
        """`refuse` while runs use it, `drain` once they have ended, or `now` with them."""
        self._call("DELETE", f"/clusters/{_segment(name, 'cluster')}", query={"mode": mode})

    def cordon(self, cluster: str, node: str, cordoned: bool = True, reason: str = "by hand") -> dict[str, Any]:
        """Keep new work off a node, or take it back."""
        return self._dict("PATCH", _node(cluster, node), json_body={"cordoned": cordoned, "reason": reason})

    def node_history(self, cluster: str, node: str) -> list[dict[str, Any]]:
        """The node's states so far: {at, state, reason}."""
        return self._list(_node(cluster, node) + "/history")

    def setup_log(self, cluster: str, node: str) -> str:
        """What the node's set-up command printed."""
        return str(self._dict("GET", _node(cluster, node) + "/setup")["log"])

    def cost(self, by: str = "run") -> dict[str, Any]:
        """Node hours and their cost, by run, user or cluster."""
        return self._dict("GET", "/cost", query={"by": by})

    def models(self, name: str | None = None) -> list[dict[str, Any]]:
        return self._list("/models", {"name": name})

    def model(self, name: str, version: int | None = None) -> dict[str, Any]:
        """One version of a model; the newest unless a version is given."""
        return self._dict("GET", f"/models/{_segment(name, 'model')}", query={"version": version})

    def register_model(self, model: Mapping[str, Any]) -> dict[str, Any]:
        """{name, run_id, path, tags, properties, description}: the next version of a model."""
        return self._dict("POST", "/models", json_body=dict(model), again=False)

    def call(self, method: str, path: str, **request: Any) -> Any:
        """A call that has no method of its own here (see client.storage)."""
        return self._call(method, path, **request)

    def get_list(self, path: str, query: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        return self._list(path, query)

    def fetch(self, path: str, out: IO[bytes], progress: Callable[[int], None] | None = None) -> None:
        """Bytes behind a path of the server, going on where a broken connection stopped."""
        self._fetch(path, out, progress)

    def shutdown(self, force: bool = False) -> None:
        """End the server; without `force` only an idle one."""
        connection = ServerConnection(self.address)
        try:
            connection.request("POST", f"{API}/shutdown", json_body={"force": force})
        finally:
            connection.close()

    def close(self) -> None:
        """Close this thread's connection."""
        self._connections.close()

    def _dict(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self._call(method, path, **request)
        return answer

    def _list(self, path: str, query: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        return list(self._call("GET", path, query=query))

    def _call(self, method: str, path: str, *, again: bool = True, **request: Any) -> Any:
        """One request; with `again` it is one that may reach the server twice."""
        for attempt, pause_s in enumerate(_RETRY_PAUSES_S, 1):
            time.sleep(pause_s)
            connection = self._connection()
            try:
                return connection.request(method, API + path, **request)
            except (ServerUnavailable, http.client.HTTPException, ConnectionError, TimeoutError) as error:
                connection.close()
                if not again or attempt == len(_RETRY_PAUSES_S):
                    raise _unavailable(error) from error
                self._find_again()
            except BaseException:
                # Ctrl-C in the middle of an answer: its rest must not be taken for the next one's.
                connection.close()
                raise
        raise AssertionError("unreachable")

    def _events(self, run_id: str, query: Mapping[str, Any]) -> Iterator[StreamEvent]:
        parser = SseParser()
        connection = ServerConnection(self.address, _STREAM_SILENCE_S)
        try:
            with connection.stream("GET", API + _run(run_id, "stream"), query=query) as response:
                while chunk := response.read1(_PIECE_BYTES):
                    yield from parser.feed(chunk)
        finally:
            connection.close()

    @contextmanager
    def _open(self, path: str, headers: Mapping[str, str]) -> Iterator[http.client.HTTPResponse]:
        connection = ServerConnection(self.address)
        try:
            with connection.stream("GET", API + path, headers=headers) as response:
                yield response
        finally:
            connection.close()

    def _fetch(self, path: str, out: IO[bytes], progress: Callable[[int], None] | None) -> None:
        """Read a whole file, going on where a broken connection stopped."""
        for attempt, pause_s in enumerate(_RETRY_PAUSES_S, 1):
            time.sleep(pause_s)
            begin = out.tell()
            try:
                with self._open(path, {"Range": f"bytes={begin}-"} if begin else {}) as response:
                    if begin and response.status != 206:
                        out.seek(0)
                        out.truncate()
                    expected = response.headers.get("Content-Length")
                    received = _copy(response, out, progress)
                    if expected is not None and received != int(expected):
                        raise http.client.IncompleteRead(b"", int(expected) - received)
                    return
            except (ServerUnavailable, http.client.HTTPException, ConnectionError, TimeoutError) as error:
                if attempt == len(_RETRY_PAUSES_S):
                    raise ServerUnavailable(f"the download of {path} broke off: {error}", "Try it again.") from error
                self._find_again()

    def _connection(self) -> Connection:
        return self._connections.to(self.address)

    def _find_again(self) -> None:
        if self._reconnect is not None:
            self.address = self._reconnect()


class _HeldConnection(ServerConnection):
    """Kept open between calls; nobody who uses the SDK should have to close it."""

    def __del__(self) -> None:
        self.close()


def _unavailable(error: Exception) -> ServerUnavailable:
    if isinstance(error, ServerUnavailable):
        return error
    return ServerUnavailable(f"the server broke off in the middle of its answer: {error}", "Try it again.")


def _copy(response: http.client.HTTPResponse, out: IO[bytes], progress: Callable[[int], None] | None) -> int:
    received = 0
    while piece := response.read1(_PIECE_BYTES):
        out.write(piece)
        received += len(piece)
        if progress is not None:
            progress(len(piece))
    return received


def _unpack(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    source = archive.extractfile(member) if member.isfile() and is_safe_path(member.name) else None
    if source is None:
        raise MusterError(f"the archive holds {member.name!r}, which is no plain file below its folder")
    target = folder / member.name
    target.parent.mkdir(parents=True, exist_ok=True)
    with source, target.open("wb") as out:
        shutil.copyfileobj(source, out, _PIECE_BYTES)
    target.chmod(member.mode & 0o777)


def _run(ref: str, *parts: str) -> str:
    return "/".join(("/runs", _segment(ref, "run"), *parts))


def _node(cluster: str, node: str) -> str:
    return f"/clusters/{_segment(cluster, 'cluster')}/nodes/{_segment(node, 'node')}"


def _file(ref: str, path: str) -> str:
    return _run(ref, "files", path)


def _segment(name: str, what: str) -> str:
    """One part of an address; a slash or an empty name would mean something else."""
    if not is_safe_name(name):
        raise NotFound(f"no {what} {name!r}")
    return name


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


__all__ = ["API", "Client", "StreamEvent"]
