"""Calls about runs."""

from __future__ import annotations

import http.client
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from muster.client import calls
from muster.client.calls import LONG_S, Group, Progress, run_path, unwatched
from muster.client.sse import StreamItem
from muster.defaults import RUNS_AT_ONCE
from muster.errors import ServerUnavailable, UserError
from muster.host.points import unpack
from muster.wire.codec import to_json
from muster.wire.environments import RunEnvironment
from muster.wire.runs import (
    Cancel,
    CancelledRun,
    CancelRuns,
    Changes,
    FileView,
    MetricPoint,
    MetricReport,
    MetricReports,
    MetricSeries,
    RunView,
    Submission,
    SubmitRuns,
)
from muster.wire.stream import LogQuery, RunEnded, StreamRefused
from muster.wire.tracking import MetricSummary, RunParam, RunSummary, SummaryQuery

if TYPE_CHECKING:
    # Pydantic takes longer to load than most commands take.
    from muster.job.spec import JobSpec

_POINTS_PAGE = 10_000


_RUNS_PER_CALL = 500


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
            notices=tuple(notices),
        )
        return self.calls.read(RunView, "POST", "/runs", message=submission)

    def submit_many(self, submissions: Sequence[Submission]) -> list[RunView]:
        """Submit many jobs, some hundred per call and write; each call takes all of its jobs, or none."""
        found: list[RunView] = []
        for begin in range(0, len(submissions), RUNS_AT_ONCE):
            message = SubmitRuns(tuple(submissions[begin : begin + RUNS_AT_ONCE]))
            found += self.calls.read(list[RunView], "POST", "/runs/many", message=message, timeout_s=LONG_S)
        return found

    def runs(
        self,
        limit: int | None = None,
        experiment: str | None = None,
        status: str | Sequence[str] | None = None,
        *,
        since: float | None = None,
        tags: Sequence[str] = (),
    ) -> list[RunView]:
        """Runs, newest first: at most `limit`, or all. `tags` are `NAME=VALUE`, or `NAME` for any value."""
        return list(self.each_run(limit, experiment, status, since=since, tags=tags))

    def each_run(
        self,
        limit: int | None = None,
        experiment: str | None = None,
        status: str | Sequence[str] | None = None,
        *,
        since: float | None = None,
        tags: Sequence[str] = (),
    ) -> Iterator[RunView]:
        """Runs, newest first, fetched lazily."""
        query = {"experiment": experiment, "status": status, "since": since, "tag": tuple(tags) or None}
        return self.calls.each(RunView, "/runs", query, limit)

    def some_runs(
        self,
        limit: int,
        experiment: str | None = None,
        status: str | None = None,
        *,
        since: float | None = None,
        tags: Sequence[str] = (),
        checks: bool = True,
    ) -> tuple[list[RunView], int]:
        """The newest runs, and how many there are in all; without `checks`, not those of `muster cluster check`."""
        query: calls.Query = {
            "experiment": experiment, "status": status, "since": since, "tag": tuple(tags) or None, "limit": limit,
            "checks": None if checks else "false",
        }  # fmt: skip
        found, total = self.calls.first_page(RunView, "/runs", query)
        return found, len(found) if total is None else total

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

    def cancel_runs(self, refs: Sequence[str], force: bool = False) -> list[CancelledRun]:
        """Cancel many runs, some hundred per call; none of a call is cancelled where one is unknown."""
        found: list[CancelledRun] = []
        for begin in range(0, len(refs), _RUNS_PER_CALL):
            message = CancelRuns(tuple(refs[begin : begin + _RUNS_PER_CALL]), force)
            found += self.calls.read(list[CancelledRun], "POST", "/runs/cancel", message=message)
        return found

    def retry(self, ref: str) -> RunView:
        """One more attempt of a run that has ended."""
        return self.calls.read(RunView, "POST", run_path(ref, "retry"), again=False)

    def remove(self, ref: str) -> None:
        """Remove an ended run with all of its files."""
        self.calls.send("DELETE", run_path(ref))

    def environment_of_run(self, ref: str) -> RunEnvironment:
        """The recipe of a run's environment, and the versions that its build resolved."""
        return self.calls.read(RunEnvironment, "GET", run_path(ref, "environment"))

    def stream(
        self,
        ref: str,
        cursor: str | None = None,
        follow: bool = True,
        logs: bool = True,
        metrics: bool = True,
        query: LogQuery | None = None,
    ) -> Iterator[StreamItem]:
        """Events of a run from `cursor` on; reconnects after a lost connection or server.

        `query` selects a part of its logs; a cursor must be used with the same query again.
        """
        run_id = self.run(ref).id  # `@latest` must not become another run in between
        failures = 0
        while True:
            parameters = {"cursor": cursor, "follow": int(follow), "logs": int(logs), "metrics": int(metrics)}
            try:
                for item in self.calls.events(
                    run_path(run_id, "stream"), {**parameters, **to_json(query or LogQuery())}
                ):
                    failures = 0
                    if isinstance(item.event, StreamRefused):
                        raise UserError(item.event.message, item.event.hint, code=item.event.code)
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
        return list(self.calls.each(MetricPoint, run_path(ref, "metrics"), page=_POINTS_PAGE))

    def metric_series(self, ref: str, name: str | None = None, points: int | None = None) -> list[MetricSeries]:
        """Metrics by name, source and attempt: every point, or about so many of each series."""
        query: calls.Query = {"name": name, "points": points, "full": int(points is None), "packed": 1}
        return unpack(self.calls.whole(run_path(ref, "metrics", "series"), query))

    def metric_summaries(self, ref: str, name: str | None = None) -> list[MetricSummary]:
        """The last, best, least and greatest value of each series of a run, without points."""
        query: calls.Query = {"name": name}
        return self.calls.read(list[MetricSummary], "GET", run_path(ref, "metrics", "summaries"), query=query)

    def params(self, ref: str) -> dict[str, str]:
        """The parameters that a run logged."""
        found = self.calls.read(list[RunParam], "GET", run_path(ref, "params"))
        return {param.name: param.value for param in found}

    def summaries(self, wanted: SummaryQuery | None = None, limit: int | None = None) -> list[RunSummary]:
        """Runs with their parameters and metrics: the newest first, or in the order of a metric."""
        query: calls.Query = to_json(wanted or SummaryQuery())
        return list(self.calls.each(RunSummary, "/summaries", query, limit))

    def log_metrics(self, ref: str, points: Sequence[MetricReport]) -> None:
        """Log metrics from outside a rank."""
        self.calls.send("POST", run_path(ref, "metrics"), message=MetricReports(tuple(points)), again=False)

    def files(self, ref: str, checkpoints: bool = False) -> list[FileView]:
        """The files of a run; with `checkpoints` those too, below a folder of that name."""
        query = {"checkpoints": "true"} if checkpoints else None
        return list(self.calls.each(FileView, run_path(ref, "files"), query))

    def read_file(self, ref: str, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes of a file, or of a part of it."""
        return b"".join(self.file_pieces(ref, path, offset, length))

    def file_pieces(self, ref: str, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Bytes of a file, or of a part of it, as they arrive."""
        if length == 0:
            return
        end = "" if length is None else str(offset + length - 1)
        with self.calls.open(run_path(ref, "files", path), {"Range": f"bytes={offset}-{end}"}) as response:
            while piece := response.read1(calls.PIECE_BYTES):
                yield piece

    def download(self, ref: str, path: str, target: Path | str, progress: Progress = unwatched) -> Path:
        """Download a file of a run to `target` atomically."""
        self.calls.download(run_path(ref, "files", path), Path(target), progress)
        return Path(target)

    def upload(self, ref: str, path: str, source: Path | str | bytes) -> None:
        """Add a file (or bytes) to a run under `path`."""
        if isinstance(source, bytes):
            self.calls.send("PUT", run_path(ref, "files", path), body=source)
            return
        with Path(source).open("rb") as stream:
            self.calls.send("PUT", run_path(ref, "files", path), body=stream, again=False, timeout_s=LONG_S)
