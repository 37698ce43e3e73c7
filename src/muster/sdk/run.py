"""A submitted run: its state, output, metrics and files, also with the methods of `concurrent.futures`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from muster.client.api import Client
from muster.client.history import MetricRecord, records
from muster.client.importing import own_runs
from muster.errors import MissingExtra, MusterError, NotFound, RunFailed
from muster.host.files import is_safe_path
from muster.runtime import values
from muster.runtime.run import Run as ContextRun
from muster.runtime.uploads import check_name, folder_files
from muster.sdk import notebook
from muster.sdk.connected import Connected
from muster.sdk.data.output import LineMerger, show
from muster.sdk.environment import Environment, from_spec
from muster.sdk.model import Model, framework_tags
from muster.sdk.run_log import RunLog
from muster.wire.codec import Json, to_json
from muster.wire.runs import RunView
from muster.wire.states import TERMINAL

if TYPE_CHECKING:
    from muster.sdk.experiment import Experiment

_POLL_S = (0.05, 0.1, 0.2, 0.5, 1.0)


class Run(RunLog):
    """A run of the workspace, by id.

    >>> run = Run.get(workspace, "@latest")
    >>> run.wait_for_completion()["status"]
    'Completed'
    >>> run.result(timeout=60) == run
    True
    """

    def __init__(self, experiment: Experiment, run_id: str) -> None:
        self._set(experiment.workspace, experiment.workspace.client.run(run_id))

    @classmethod
    def _of(cls, workspace: Connected, view: RunView) -> Run:
        run = cls.__new__(cls)
        run._set(workspace, view)
        return run

    def _set(self, workspace: Connected, view: RunView) -> None:
        self.workspace = workspace
        self.id = view.id
        self._view = view

    @staticmethod
    def get(workspace: Connected, run_id: str) -> Run:
        """A run by id, unique prefix, name or `@latest`."""
        return Run._of(workspace, workspace.client.run(run_id))

    @staticmethod
    def get_context(allow_offline: bool = True) -> ContextRun:
        """Inside a script, the run that it belongs to; elsewhere, one that prints."""
        return ContextRun.get_context(allow_offline)

    # What it is

    @property
    def name(self) -> str:
        """The given name, or else the id."""
        return self._view.name or self.id

    @property
    def display_name(self) -> str:
        """A title for people."""
        return self._view.display_name or self.name

    @property
    def experiment(self) -> Experiment:
        """The `Experiment` that it belongs to."""
        return self.workspace.experiment(self._view.experiment)

    @property
    def status(self) -> str:
        """The state when last fetched; `get_status` fetches it again."""
        return self._view.status

    @property
    def tags(self) -> dict[str, str]:
        """The tags when last fetched; `get_tags` fetches them again."""
        return dict(self._view.tags)

    @property
    def parent(self) -> Run | None:
        """The run that made it; None for a job that was submitted."""
        found = own_runs.parent(self._client, self.id) if not self._view.num_ranks else None
        return Run.get(self.workspace, found) if found else None

    @property
    def description(self) -> str | None:
        """The run's description."""
        return self._view.description

    @property
    def properties(self) -> dict[str, str]:
        """The job's `properties` and the run's tags, which include those from `add_properties`."""
        found = self._view.spec.get("properties")
        said = {str(key): str(value) for key, value in found.items()} if isinstance(found, Mapping) else {}
        return {**self.tags, **said}

    @property
    def type(self) -> str:
        """Kept for v1 scripts: what started it."""
        return "azureml.scriptrun" if self._view.num_ranks else "azureml.run"

    @property
    def number(self) -> int:
        """Kept for v1 scripts: the id identifies a run."""
        return 1

    def get_status(self) -> str:
        """The current state: `Queued`, `Running`, `Completed`, `Failed`, `Canceled` and those between."""
        self._refresh()
        return self.status

    def get_details(self) -> dict[str, Json]:
        """Everything known about the run, under v1's keys and Muster's own."""
        view = self._refresh()
        return {
            **to_json(view),
            "runId": self.id,
            "target": view.compute,
            "startTimeUtc": _utc(view.started_at),
            "endTimeUtc": _utc(view.ended_at),
            "logFiles": {file.path: file.path for file in view.files},
        }

    def get_details_with_logs(self) -> dict[str, Json]:
        """The same, with the content of each log instead of its name."""
        details = self.get_details()
        return {**details, "logFiles": {name: self._text(name) for name in self._log_names()}}

    def get_all_logs(self, destination: str | None = None) -> list[str]:
        """Download the logs to a folder, by default a new one here; returns their paths."""
        folder = Path(destination) if destination is not None else Path(f"{self.id}_logs")
        return [str(self._client.download(self.id, name, folder / name)) for name in self._log_names()]

    def get_environment(self) -> Environment:
        """The environment of the ranks; a job without one ran in the Python that submitted it."""
        described = self._view.spec.get("environment")
        if isinstance(described, Mapping):
            return from_spec(str(described.get("name") or "environment"), described)
        return Environment.get(self.workspace, described) if isinstance(described, str) else Environment("current")

    def get_snapshot_id(self) -> str | None:
        """The digest of its code; None for a run without code."""
        return self._view.snapshot

    def restore_snapshot(self, snapshot_id: str | None = None, path: str | None = None) -> str:
        """Download the run's code; returns the folder."""
        digest = snapshot_id or self._view.snapshot
        if digest is None:
            raise NotFound(f"run {self.id} has no code", "A job without `code` runs without files.")
        folder = Path(path) if path is not None else Path(f"{self.id}_code")
        folder.mkdir(parents=True, exist_ok=True)
        self._client.download_snapshot(digest, folder)
        return str(folder)

    def _log_names(self) -> list[str]:
        return [name for name in self.get_file_names() if name.startswith(("user_logs/", "system_logs/", "logs/"))]

    def _text(self, name: str) -> str:
        return self._client.read_file(self.id, name).decode(errors="replace")

    def get_properties(self) -> dict[str, str]:
        """The current `properties`."""
        self._refresh()
        return self.properties

    def get_tags(self) -> dict[str, str]:
        """The current tags."""
        self._refresh()
        return self.tags

    def get_children(self, recursive: bool = False, **kwargs: Any) -> Iterator[Run]:
        """The child runs that it made, newest first."""
        for run_id in own_runs.children(self._client, self._view.experiment, self.id):
            child = Run.get(self.workspace, run_id)
            yield child
            if recursive:
                yield from child.get_children(recursive=True)

    def child_run(self, name: str | None = None, run_id: str | None = None, outputs: Any = None) -> Run:
        """Create a child run that this process logs to."""
        return Run.get(self.workspace, own_runs.started_run(self._client, self._view.experiment, name or "", self.id))

    def create_children(
        self, count: int | None = None, tag_key: str | None = None, tag_values: Any = None
    ) -> list[Run]:
        """Create several child runs; with `tag_key`, one for each value of that tag."""
        given = [*tag_values] if tag_values is not None else [None] * (count or 0)
        made = [self.child_run() for _ in given]
        for child, value in zip(made, given, strict=True):
            if tag_key is not None:
                child.tag(tag_key, value)
        return made

    def submit_child(self, config: Any, tags: Mapping[str, Json] | None = None, **kwargs: Any) -> Run:
        """Submit a script in this run's experiment, with this run's id as a tag."""
        return self.experiment.submit(config, tags={**(tags or {}), "parent": self.id}, **kwargs)

    def complete(self, _set_status: bool = True) -> None:
        """End a run that this process began with `start_logging` or `child_run`; others end with their processes."""
        self._end("FINISHED")

    def fail(self, error_details: Any = None, error_code: str | None = None, _set_status: bool = True) -> None:
        """End such a run as failed."""
        self._end("FAILED")

    def _end(self, status: str) -> None:
        if not self._refresh().num_ranks:
            own_runs.end_run(self._client, self.id, status)
            self._refresh()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._end("FINISHED" if kind is None else "FAILED")

    def get_portal_url(self) -> str:
        """The run's page in the portal; `muster portal RUN` opens it signed in."""
        return f"{self._client.portal_url()}/portal/runs/{self.id}"

    # Waiting for it

    def wait_for_completion(
        self, show_output: bool = False, raise_on_error: bool = True, *, wait_post_processing: bool = False
    ) -> dict[str, Json]:
        """Wait for the end; a failed or cancelled run raises RunFailed with its verdict."""
        printer = LineMerger(self._view.num_ranks) if show_output else None
        for item in self._client.stream(self.id, logs=show_output, metrics=False):
            if printer is not None:
                show(printer, item.event)
        details = self.get_details()
        if raise_on_error:
            self._raise_if_bad()
        return details

    def done(self) -> bool:
        """Whether the run has ended, well or badly."""
        return self.status in TERMINAL or self.get_status() in TERMINAL

    def running(self) -> bool:
        """Whether the ranks are running now."""
        return self.get_status() == "Running"

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.get_status() == "Canceled"

    def result(self, timeout: float | None = None) -> Run:
        """This run, once it has completed; RunFailed if it did not succeed, TimeoutError if it did not end in time."""
        next(as_completed([self], timeout))
        self._raise_if_bad()
        return self

    def exception(self, timeout: float | None = None) -> RunFailed | None:
        """How the run failed, or None if it completed; waits like `result`."""
        next(as_completed([self], timeout))
        return None if self.status == "Completed" else self._failure()

    def cancel(self, force: bool = False) -> None:
        """Ask the run to stop, with grace; `force` kills it."""
        self._view = self._client.cancel(self.id, force)

    # Metrics and tags

    def get_metrics(
        self, name: str | None = None, recursive: bool = False, *, points: int | None = None, **kwargs: Any
    ) -> dict[str, Json]:
        """What the run logged: the value, or a list of values if there were several.

        With `points`, about that many values of each rank, including the least and greatest of every stretch.
        `metrics` has the same with step, time and rank.

        >>> run.get_metrics()["loss"]
        [1.0, 0.5, 0.25]
        """
        found: dict[str, list[tuple[int, Json]]] = {}
        for series in self._client.metric_series(self.id, name, points):
            found.setdefault(series.name, []).extend(zip(series.order, series.values, strict=True))
        # In the order of arrival, from all ranks.
        lists = {key: [values.restore(value) for _, value in sorted(items)] for key, items in found.items()}
        return {key: items[0] if len(items) == 1 else items for key, items in lists.items()}

    def metrics(
        self, name: str | None = None, *, rank: int | None = None, attempt: int | None = None, points: int | None = None
    ) -> MetricHistory:
        """What the run logged, a record for each value: name, step, time, rank, attempt, value.

        In the order in which values arrived, from all ranks and attempts or from one. `points` thins each series out to
        about that many values, including the least and greatest of every stretch. `.dataframe()` is for pandas.

        >>> [(record.step, record.rank, record.value) for record in run.metrics("loss")]
        [(0.0, 0, 1.0), (1.0, 0, 0.5), (2.0, 0, 0.25)]
        >>> float(run.metrics("loss").dataframe()["value"].min())
        0.25
        """
        return MetricHistory(records(self._client.metric_series(self.id, name, points), rank, attempt))

    def tag(self, key: str, value: Any = None) -> None:
        """Set one tag."""
        self.set_tags({key: value})

    def set_tags(self, tags: Mapping[str, Json]) -> None:
        """Set several tags; others stay.

        >>> run.set_tags({"team": "vision"})
        >>> run.get_tags()["team"]
        'vision'
        """
        texts: dict[str, str | None] = {str(key): "" if value is None else str(value) for key, value in tags.items()}
        self._view = self._client.update_run(self.id, tags=texts)

    def add_properties(self, properties: Mapping[str, Json]) -> None:
        """Add the properties as tags: an existing run has only tags."""
        self.set_tags(properties)

    def remove_tags(self, tags: Sequence[str]) -> None:
        """Remove tags by their names."""
        self._view = self._client.update_run(self.id, tags=dict.fromkeys(map(str, tags)))

    # Files

    def get_file_names(self) -> list[str]:
        """Names of all files of the run: outputs, logs, uploads.

        >>> "outputs/model.pt" in run.get_file_names()
        True
        """
        return [file.path for file in self._client.files(self.id)]

    def download_file(self, name: str, output_file_path: str | None = None, **kwargs: Any) -> None:
        """Download one file, into the current folder unless a path (or folder) is given."""
        target = Path(output_file_path) if output_file_path is not None else Path(Path(name).name)
        self._client.download(self.id, name, target / Path(name).name if target.is_dir() else target)

    def download_files(
        self,
        prefix: str | None = None,
        output_directory: str | None = None,
        output_paths: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        """Download every file whose name begins with `prefix`, below `output_directory`."""
        names = [name for name in self.get_file_names() if name.startswith(prefix or "")]
        if prefix and not names:
            raise NotFound(f"run {self.id} has no files that begin with {prefix!r}", "get_file_names() lists them.")
        for index, name in enumerate(names):
            if not is_safe_path(name):
                raise MusterError(f"the file name {name!r} leaves the target folder")
            inner = output_paths[index] if output_paths is not None else name
            self._client.download(self.id, name, Path(output_directory or ".") / inner)

    def upload_file(self, name: str, path_or_stream: str | Path | IO[Any], datastore_name: str | None = None) -> None:
        """Keep a file, or the content of a stream, with the run under a name."""
        if isinstance(path_or_stream, str | Path):
            self._client.upload(self.id, check_name(name), Path(path_or_stream))
        else:
            data = path_or_stream.read()
            self._client.upload(self.id, check_name(name), data.encode() if isinstance(data, str) else bytes(data))

    def upload_files(self, names: Sequence[str], paths: Sequence[str], **kwargs: Any) -> None:
        """Keep several files with the run, each under its name."""
        for name, path in zip(names, paths, strict=True):
            self.upload_file(name, path)

    def upload_folder(self, name: str, path: str, datastore_name: str | None = None) -> None:
        """Keep a folder with the run, below a name."""
        for inner, file in folder_files(check_name(name), path):
            self.upload_file(inner, file)

    def register_model(
        self,
        model_name: str,
        model_path: str | None = None,
        tags: Mapping[str, Json] | None = None,
        properties: Mapping[str, Json] | None = None,
        description: str | None = None,
        **kwargs: Any,
    ) -> Model:
        """Register a file or folder of the run as a model."""
        path = check_name(model_path if model_path is not None else model_name)
        names = self.get_file_names()
        if not any(name == path or name.startswith(f"{path}/") for name in names):
            raise NotFound(f"run {self.id} has no file or folder {path!r}", f"Its files: {', '.join(names[:20])}")
        texts = {str(key): str(value) for key, value in {**framework_tags(kwargs), **(tags or {})}.items()}
        view = self._client.register_model(model_name, path, self.id, texts, properties, description)
        return Model._of(self.workspace, view)

    def __repr__(self) -> str:
        return f"Run(id={self.id!r}, experiment={self._view.experiment!r}, status={self.status!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def _repr_html_(self) -> str:
        view = self._refresh()
        rows: dict[str, object] = {
            "Experiment": view.experiment,
            "Id": self.id,
            "Status": self.status,
            "Why": view.reason or (view.verdict.message if view.verdict else ""),
            "Ranks": view.num_ranks,
            **{name: value for name, value in view.metrics.items() if not name.startswith(("node/", "muster/"))},
        }
        series = self._client.metric_series(self.id, points=notebook.POINTS) if view.metrics else []
        return notebook.table(rows) + notebook.charts(series)

    def _ipython_display_(self) -> None:
        """Show the run below a notebook's cell, updated until the run has ended."""
        notebook.show(self, repr(self))

    @property
    def _client(self) -> Client:
        return self.workspace.client

    def _refresh(self) -> RunView:
        self._view = self._client.run(self.id)
        return self._view

    def _raise_if_bad(self) -> None:
        if self.status != "Completed":
            raise self._failure()

    def _failure(self) -> RunFailed:
        head, verdict = f"run {self.id} {self.status.lower()}", self._view.verdict
        if verdict is None:
            return RunFailed(f"{head}: no verdict was given")
        where = [f"rank {verdict.rank}"] if verdict.rank is not None else []
        where += [f"on {verdict.node}"] if verdict.node else []
        said = f"{' '.join(where)}: " if where and " ".join(where) not in verdict.message else ""
        message = f"{head}: {said}{verdict.message}"
        if verdict.lines:
            message += "\nlast lines:\n" + "\n".join(f"  {line}" for line in verdict.lines)
        return RunFailed(message, to_json(verdict), verdict.next)


class MetricHistory(list[MetricRecord]):
    """Records of metrics, in the order in which they were logged."""

    def dataframe(self) -> Any:
        """The records as a pandas DataFrame, with times as timestamps."""
        try:
            import pandas
        except ImportError as error:
            raise MissingExtra(
                "a DataFrame needs pandas", "pip install pandas; without it, the list has the same."
            ) from error
        frame = pandas.DataFrame(list(self), columns=list(MetricRecord._fields))
        frame["time"] = pandas.to_datetime(frame["time"], unit="s", utc=True)
        return frame


def as_completed(runs: Iterable[Run], timeout: float | None = None) -> Iterator[Run]:
    """Runs as they end, well or badly; TimeoutError if some have not ended in time.

    >>> [ended.status for ended in as_completed([run], timeout=60)]
    ['Completed']
    """
    pending = list(dict.fromkeys(runs))
    deadline = None if timeout is None else time.monotonic() + timeout
    quiet = 0
    while pending:
        ended = [run for run in pending if run.done()]
        pending = [run for run in pending if run not in ended]
        yield from ended
        if not pending:
            return
        if deadline is not None and time.monotonic() >= deadline:
            raise TimeoutError(f"{len(pending)} runs have not ended after {timeout:g} s, such as {pending[0].id}")
        quiet = 0 if ended else quiet + 1
        pause_s = _POLL_S[min(quiet, len(_POLL_S)) - 1] if quiet else 0.0
        time.sleep(pause_s if deadline is None else max(0.0, min(pause_s, deadline - time.monotonic())))


def _utc(at: float | None) -> str | None:
    return None if at is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
