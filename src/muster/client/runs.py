"""Calls about runs."""

from __future__ import annotations

import getpass
import http.client
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from muster.client import calls
from muster.client.calls import LONG_S, Group, Progress, run_path, unwatched
from muster.client.sse import StreamItem
from muster.errors import ServerUnavailable
from muster.wire.environments import RunEnvironment
from muster.wire.runs import Cancel, Changes, FileView, MetricPoint, MetricReport, MetricReports, RunView, Submission
from muster.wire.stream import RunEnded

if TYPE_CHECKING:
    # Pydantic takes longer to load than most commands take.
    from muster.job.spec import JobSpec


class Runs(Group):
    """Runs: their life, their output and metrics, their files."""

    def submit(
        self,
        spec: JobSpec,
        snapshot: str | None = None,
        key: str | None = None,
        python: str | None = None,
        notices: Sequence[str] = (),
        packages: Mapping[str, str] | None = None,
    ) -> RunView:
        """Submit a job; the same key again is the same run."""
        submission = Submission(
            key=key or uuid.uuid4().hex,
            spec=spec.model_dump(mode="json"),
            snapshot=snapshot,
            python=python,
            packages=packages,
            submitted_by=_user(),
            notices=tuple(notices),
        )
        return self.calls.read(RunView, "POST", "/runs", message=submission)

    def runs(
        self, limit: int | None = None, experiment: str | None = None, status: str | Sequence[str] | None = None
    ) -> list[RunView]:
        """Runs, newest first."""
        query = {"limit": limit, "experiment": experiment, "status": status}
        return self.calls.read(list[RunView], "GET", "/runs", query=query)

    def run(self, ref: str) -> RunView:
        """One run by id, unique prefix, name or `@latest`."""
        return self.calls.read(RunView, "GET", run_path(ref))

    def update_run(
        self,
        ref: str,
        *,
        tags: Mapping[str, str | None] | None = None,
        display_name: str | None = None,
        description: str | None = None,
    ) -> RunView:
        """Change tags, display_name or description."""
        changes = Changes(tags, display_name, description)
        return self.calls.read(RunView, "PATCH", run_path(ref), message=changes)

    def cancel(self, ref: str, force: bool = False) -> RunView:
        """Ask the run to stop, with grace; `force` kills it."""
        return self.calls.read(RunView, "POST", run_path(ref, "cancel"), message=Cancel(force))

    def retry(self, ref: str) -> RunView:
        """One more attempt of a run that has ended."""
        return self.calls.read(RunView, "POST", run_path(ref, "retry"), again=False)

    def remove(self, ref: str) -> None:
        """Remove an ended run with all that is kept of it."""
        self.calls.send("DELETE", run_path(ref))

    def environment_of_run(self, ref: str) -> RunEnvironment:
        """What a run's environment was made of, and the versions that it came to."""
        return self.calls.read(RunEnvironment, "GET", run_path(ref, "environment"))

    def stream(
        self, ref: str, cursor: str | None = None, follow: bool = True, logs: bool = True, metrics: bool = True
    ) -> Iterator[StreamItem]:
        """Events of a run from `cursor` on; goes on by itself after a lost connection or server."""
        run_id = self.run(ref).id  # `@latest` must not become another run on the way
        failures = 0
        while True:
            query = {"cursor": cursor, "follow": int(follow), "logs": int(logs), "metrics": int(metrics)}
            try:
                for item in self.calls.events(run_path(run_id, "stream"), query):
                    failures = 0
                    cursor = item.cursor or cursor
                    yield item
                    if isinstance(item.event, RunEnded):
                        return
                if not follow:
                    return
            except (ServerUnavailable, http.client.HTTPException, OSError) as error:
                failures += 1
                if failures >= len(calls.RETRY_PAUSES_S):
                    raise ServerUnavailable(
                        f"the connection to the server was lost while following run {run_id}: {error}",
                        f"The run goes on. Try `muster logs -f {run_id}` again.",
                    ) from error
            time.sleep(calls.RETRY_PAUSES_S[min(failures, len(calls.RETRY_PAUSES_S) - 1)])
            self.calls.find_again()

    def metrics(self, ref: str) -> list[MetricPoint]:
        """Every metric point in the order in which it was logged."""
        return self.calls.read(list[MetricPoint], "GET", run_path(ref, "metrics"))

    def log_metrics(self, ref: str, points: Sequence[MetricReport]) -> None:
        """Log from outside a rank."""
        self.calls.send("POST", run_path(ref, "metrics"), message=MetricReports(tuple(points)), again=False)

    def files(self, ref: str, checkpoints: bool = False) -> list[FileView]:
        """Everything that is kept; with `checkpoints` those too, below a folder of that name."""
        query = {"checkpoints": "true"} if checkpoints else None
        return self.calls.read(list[FileView], "GET", run_path(ref, "files"), query=query)

    def read_file(self, ref: str, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes of a file, or of a part of it."""
        if length == 0:
            return b""
        end = "" if length is None else str(offset + length - 1)
        with self.calls.open(run_path(ref, "files", path), {"Range": f"bytes={offset}-{end}"}) as response:
            return response.read()

    def download(self, ref: str, path: str, target: Path | str, progress: Progress = unwatched) -> Path:
        """A file of a run to `target`, whole or not at all."""
        self.calls.download(run_path(ref, "files", path), Path(target), progress)
        return Path(target)

    def upload(self, ref: str, path: str, source: Path | str | bytes) -> None:
        """Keep a file (or bytes) with a run under `path`."""
        if isinstance(source, bytes):
            self.calls.send("PUT", run_path(ref, "files", path), body=source)
            return
        with Path(source).open("rb") as stream:
            self.calls.send("PUT", run_path(ref, "files", path), body=stream, again=False, timeout_s=LONG_S)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
