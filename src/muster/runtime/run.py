"""`Run.get_context()`: metrics, files, tags and progress from inside a training script.

Inside a rank every call appends to a file that the node's agent ships, so it never waits for a server. Outside a run
the same calls print. A full disk causes one warning on standard error; only misuse raises.
"""

import atexit
import importlib
import io
import json
import os
import shutil
import sys
import threading
import time
import uuid
from collections import deque
from pathlib import Path
from typing import Any, Deque, Dict, Iterable, List, Mapping, Optional

from muster.errors import MusterError
from muster.runtime import values
from muster.runtime.checkpoints import publish
from muster.runtime.events import EventFile
from muster.runtime.uploads import Source, check_name, folder_files, put
from muster.runtime.workspace import Workspace, unavailable

_REMEMBERED_POINTS = 10_000
SECRET_VARIABLE = "SECRET_"
"""The prefix of the variables that hold a job's secrets."""


class Run:
    """The run that this process belongs to."""

    _current: Optional["Run"] = None
    _creation = threading.Lock()

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.id = environ["MUSTER_RUN_ID"]
        self.attempt = int(environ.get("MUSTER_ATTEMPT", "1"))
        self.experiment = RunExperiment(environ.get("MUSTER_EXPERIMENT", "default"))
        self.name = self.display_name = self.id
        self.number = 1
        self.parent: Optional["Run"] = None
        self._events = EventFile(environ["MUSTER_EVENTS_FILE"]) if environ.get("MUSTER_EVENTS_FILE") else None
        self._uploads = _path(environ, "MUSTER_UPLOADS_DIR")
        self._stop_file = environ.get("MUSTER_STOP_FILE", "")
        self.checkpoint_dir = _path(environ, "MUSTER_CHECKPOINT_DIR")
        self.resume_dir = _path(environ, "MUSTER_RESUME_DIR")
        """The folder of the last published checkpoint; None if there is none."""
        self._inputs = _named(environ, "MUSTER_INPUT_")
        self._outputs = _named(environ, "MUSTER_OUTPUT_")
        self._metrics: Dict[str, Deque[Any]] = {}
        self._tags: Dict[str, str] = {}
        self._children: List[Any] = []
        self._failed = False

    @staticmethod
    def get_context(allow_offline: bool = True) -> "Run":
        """The run of this process; outside a run, one that prints (or an error with `allow_offline=False`)."""
        with Run._creation:
            if Run._current is None:
                if os.environ.get("MUSTER_RUN_ID"):
                    Run._current = Run(os.environ)
                elif allow_offline:
                    Run._current = OfflineRun()
            current = Run._current
        if current is None or (isinstance(current, OfflineRun) and not allow_offline):
            raise MusterError(
                "this process does not belong to a run",
                "Submit it with `muster run`, or leave out allow_offline=False.",
            )
        return current

    # Metrics

    def log(self, name: str, value: Any, description: str = "", step: Optional[int] = None) -> None:
        """Record one number (or text); the same name again adds a point."""
        self._metric("scalar", name, values.plain(value), step)

    def log_list(self, name: str, value: Any, description: str = "") -> None:
        """Record a list of values."""
        self._metric("list", name, values.plain_list(value))

    def log_row(self, name: str, description: Optional[str] = None, **kwargs: Any) -> None:
        """Record one row of a table; the same name again adds a row."""
        if not kwargs:
            raise TypeError("log_row needs at least one column, such as log_row('accuracy', epoch=1, top1=0.5)")
        self._metric("row", name, values.plain_row(kwargs))

    def log_table(self, name: str, value: Any, description: str = "") -> None:
        """Record a table: a mapping of column names to lists."""
        self._metric("table", name, values.plain_table(value))

    def log_image(self, name: str, path: Optional[str] = None, plot: Any = None, description: str = "") -> None:
        """Record an image: a file, or a matplotlib figure or module as `plot`."""
        if (path is None) == (plot is None):
            raise TypeError("log_image takes either a path or a plot")
        if path is not None:
            stored = "images/{}{}".format(_file_stem(name), Path(path).suffix or ".png")
            self.upload_file(stored, path)
        else:
            stored = "images/{}.png".format(_file_stem(name))
            drawn = io.BytesIO()
            plot.savefig(drawn, format="png")
            drawn.seek(0)
            self.upload_file(stored, drawn)
        self._metric("image", name, stored)

    def get_metrics(self, name: Optional[str] = None) -> Dict[str, Any]:
        """What this process logged: the value, or a list of the last 10,000 if there were several."""
        chosen = [name] if name is not None else list(self._metrics)
        points = {key: list(self._metrics[key]) for key in chosen if key in self._metrics}
        return {key: found[0] if len(found) == 1 else found for key, found in points.items()}

    # Files

    def upload_file(self, name: str, path_or_stream: Source, datastore_name: Optional[str] = None) -> None:
        """Keep a file (as it is now) with the run, under `name`."""
        if self._uploads is not None:
            put(self._uploads, name, path_or_stream)

    def upload_files(
        self,
        names: Iterable[str],
        paths: Iterable[str],
        return_artifacts: bool = False,
        timeout_seconds: Optional[int] = None,
        datastore_name: Optional[str] = None,
    ) -> None:
        """Keep several files with the run."""
        wanted, given = list(names), list(paths)
        if len(wanted) != len(given):
            raise ValueError("{} names for {} paths".format(len(wanted), len(given)))
        for index, name in enumerate(wanted):
            self.upload_file(name, given[index])

    def upload_folder(self, name: str, path: str, datastore_name: Optional[str] = None) -> None:
        """Keep every file of a folder with the run, under `name/`."""
        check_name(name)
        for inner, file in folder_files(name, path):
            self.upload_file(inner, file)

    def register_model(
        self,
        model_name: str,
        model_path: Optional[str] = None,
        tags: Optional[Mapping[str, Any]] = None,
        properties: Optional[Mapping[str, Any]] = None,
        description: Optional[str] = None,
        **kwargs: Any,
    ) -> "PendingModel":
        """Register a file or folder of the run as a model; it gets its version once the run's files are stored."""
        path = check_name(model_path if model_path is not None else model_name)
        if not isinstance(model_name, str) or not model_name:
            raise TypeError("a model's name is a text, not {!r}".format(model_name))
        all_tags = {str(key): str(value) for key, value in dict(tags or {}, **dict(properties or {})).items()}
        self._emit(
            {"kind": "model", "name": model_name, "path": path, "tags": {**all_tags}, "description": description}
        )
        return PendingModel(model_name, path, all_tags)

    # What else is reported about the run

    def tag(self, key: str, value: Any = None) -> None:
        """Put a tag on the run."""
        if not isinstance(key, str) or not key:
            raise TypeError("a tag's name is a text, not {!r}".format(key))
        text = "" if value is None else str(value)
        self._tags[key] = text
        self._emit({"kind": "tag", "name": key, "value": text})

    def set_tags(self, tags: Mapping[str, Any]) -> None:
        """Put several tags on the run."""
        for key, value in tags.items():
            self.tag(key, value)

    def log_confusion_matrix(self, name: str, value: Any, description: str = "") -> None:
        """Keep a confusion matrix, as v1 describes one, with the run."""
        self._keep_json(name, value)

    def log_accuracy_table(self, name: str, value: Any, description: str = "") -> None:
        """Keep an accuracy table, as v1 describes one, with the run."""
        self._keep_json(name, value)

    def log_predictions(self, name: str, value: Any, description: str = "") -> None:
        """Keep a histogram of predictions, as v1 describes one, with the run."""
        self._keep_json(name, value)

    def log_residuals(self, name: str, value: Any, description: str = "") -> None:
        """Keep a histogram of residuals, as v1 describes one, with the run."""
        self._keep_json(name, value)

    def _keep_json(self, name: str, value: Any) -> None:
        text = value if isinstance(value, str) else json.dumps(value)
        self.upload_file("metrics/{}.json".format(_file_stem(name)), io.BytesIO(text.encode()))

    def add_properties(self, properties: Mapping[str, Any]) -> None:
        """Add the properties as tags: here a run has only tags."""
        self.set_tags(properties)

    def get_details(self) -> Dict[str, Any]:
        """What this process knows about the run, under v1's keys."""
        return {"runId": self.id, "status": self.get_status(), "properties": {}, "tags": self.get_tags()}

    def get_status(self) -> str:
        return "Running"

    status = property(get_status)
    type = "azureml.scriptrun"
    description: Optional[str] = None

    def get_properties(self) -> Dict[str, str]:
        """The tags, which include those from `add_properties`."""
        return dict(self.get_tags())

    properties = property(get_properties)

    def get_secret(self, name: str) -> str:
        """A secret that the job was given."""
        plain = name.replace("-", "_")
        for variable in (SECRET_VARIABLE + plain, name, plain, plain.upper()):
            if variable in os.environ:
                return os.environ[variable]
        hint = (
            "Keep it with `muster secret set {0}`, and give it in environment_variables: {1}{0}: ${{{{secrets.{0}}}}}."
        )
        raise MusterError("the job was given no secret {}".format(plain), hint.format(plain, SECRET_VARIABLE))

    def get_secrets(self, secrets: Iterable[str]) -> Dict[str, str]:
        """Several secrets that the job was given."""
        return {name: self.get_secret(name) for name in secrets}

    def get_file_names(self) -> List[str]:
        """The files that this node's ranks have uploaded."""
        root = self._uploads
        if root is None or not root.is_dir():
            return []
        return sorted(file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file())

    def download_file(self, name: str, output_file_path: Optional[str] = None, **kwargs: Any) -> None:
        """A file that a rank of this node has uploaded."""
        source = self._uploads / check_name(name) if self._uploads is not None else None
        if source is None or not source.is_file():
            raise MusterError("no rank of this node has uploaded {}".format(name), "get_file_names() lists those.")
        target = Path(output_file_path) if output_file_path is not None else Path(source.name)
        target = target / source.name if target.is_dir() else target
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(source), str(target))

    def remove_tags(self, tags: Iterable[str]) -> None:
        """Empty tags that this process put on the run."""
        for key in tags:
            self.tag(key, "")

    def get_children(self, **kwargs: Any) -> List[Any]:
        """The child runs that this process made."""
        return list(self._children)

    def create_children(
        self, count: Optional[int] = None, tag_key: Optional[str] = None, tag_values: Any = None
    ) -> List[Any]:
        """Create several child runs; with `tag_key`, one for each value of that tag."""
        given = list(tag_values) if tag_values is not None else [None] * (count or 0)
        made = [self.child_run() for _ in given]
        for index, child in enumerate(made):
            if tag_key is not None:
                child.tag(tag_key, given[index])
        return made

    def submit_child(self, config: Any, tags: Any = None, **kwargs: Any) -> Any:
        raise unavailable("submit_child", "Submit the jobs from outside, or start more ranks of this one.")

    def cancel(self) -> None:
        raise unavailable("cancel", "`muster cancel {}` stops the run; here, end the process.".format(self.id))

    def get_portal_url(self) -> str:
        """The command that shows the run in a terminal."""
        return "muster show {}".format(self.id)

    def get_tags(self) -> Dict[str, str]:
        """The tags that this process put on the run."""
        return dict(self._tags)

    def progress(self, done: float, total: Optional[float] = None, unit: str = "") -> None:
        """Report this rank's progress, for progress bars and estimates of the remaining time."""
        end = None if total is None else values.jsonable(values.plain(total))
        self._emit({"kind": "progress", "done": values.jsonable(values.plain(done)), "total": end, "unit": str(unit)})

    def should_stop(self) -> bool:
        """Whether the run is being stopped: save what matters and exit, since the grace period has begun."""
        return bool(self._stop_file) and Path(self._stop_file).exists()

    def publish_checkpoint(self, path: Any, step: Optional[int] = None) -> None:
        """Publish a checkpoint: a complete file or folder. The next attempt of the run resumes from it.

        It is published under its own name, or as `step_N` if a step is given. What is in `checkpoint_dir`
        already is renamed, anything else is copied.
        """
        if self.checkpoint_dir is not None:
            publish(self.checkpoint_dir, path, step)

    @property
    def input_datasets(self) -> Dict[str, str]:
        """The paths of the run's inputs by name; they are also datasets."""
        # Imported here, since a rank that only logs does not need it.
        dataset = importlib.import_module("muster.runtime.inside").InputPath
        return {name: dataset(path) for name, path in self._inputs.items()}

    def child_run(self, name: Optional[str] = None, run_id: Optional[str] = None, outputs: Any = None) -> Any:
        """Create a child run with results of its own; it ends with `complete()`, or at the end of its `with`."""
        made = importlib.import_module("muster.runtime.children").ChildRun(self.id, name or "")
        self._children.append(made)
        return made

    @property
    def output_datasets(self) -> Dict[str, str]:
        """The paths for the run's outputs, by name."""
        return dict(self._outputs)

    def flush(self, timeout_seconds: int = 300) -> None:
        """Does nothing: every call has already written its data."""

    def complete(self) -> None:
        """Kept for v1 scripts: a run completes when its processes end with exit code 0."""

    def fail(self, error_details: Any = None, error_code: Optional[str] = None) -> None:
        """Make this process end with exit code 1, whatever it does from now on."""
        if error_details is not None:
            print("Run.fail: {}".format(error_details), file=sys.stderr, flush=True)
        if not self._failed:
            self._failed = True
            atexit.register(_exit_badly, os.getpid())

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.complete()
        else:
            self.fail()

    def __repr__(self) -> str:
        return "Run(id={!r}, experiment={!r})".format(self.id, self.experiment.name)

    def _metric(self, kind: str, name: str, value: Any, step: Optional[int] = None) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError("a metric's name is a text, not {!r}".format(name))
        at_step = None if step is None else int(values.plain(step))
        self._metrics.setdefault(name, deque(maxlen=_REMEMBERED_POINTS)).append(value)
        self._emit({"kind": "metric", "type": kind, "name": name, "value": values.jsonable(value), "step": at_step})

    def _emit(self, event: Dict[str, values.Json]) -> None:
        if self._events is not None:
            event["at"] = time.time()
            self._events.append(event)


class OfflineRun(Run):
    """Outside a run: prints instead of recording."""

    def __init__(self) -> None:
        super().__init__({"MUSTER_RUN_ID": "OfflineRun_{}".format(uuid.uuid4())})

    def upload_file(self, name: str, path_or_stream: Source, datastore_name: Optional[str] = None) -> None:
        print("upload {}".format(check_name(name)), flush=True)

    def publish_checkpoint(self, path: Any, step: Optional[int] = None) -> None:
        print("checkpoint {}{}".format(path, "" if step is None else " (step {})".format(step)), flush=True)

    def fail(self, error_details: Any = None, error_code: Optional[str] = None) -> None:
        print("fail {}".format(error_details), flush=True)

    def _emit(self, event: Dict[str, values.Json]) -> None:
        kind = event["kind"]
        if kind == "metric":
            step = "" if event["step"] is None else " (step {})".format(event["step"])
            print("{} = {}{}".format(event["name"], event["value"], step), flush=True)
        elif kind == "progress":
            total = "" if event["total"] is None else " of {}".format(event["total"])
            print("progress {}{} {}".format(event["done"], total, event["unit"]).rstrip(), flush=True)
        elif kind == "tag":
            print("tag {} = {}".format(event["name"], event["value"]), flush=True)
        else:
            print("register model {} from {}".format(event["name"], event["path"]), flush=True)


class RunExperiment:
    """The experiment of the run, by name."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def workspace(self) -> Any:
        """The workspace as far as a rank knows it; what needs the server raises an error that says what to do."""
        return Workspace()

    def __str__(self) -> str:
        return self.name


class PendingModel:
    """A model that is registered once the run's files are stored; its version is not known before."""

    def __init__(self, name: str, path: str, tags: Dict[str, str]) -> None:
        self.name = name
        self.path = path
        self.tags = tags
        self.version: Optional[int] = None


def _path(environ: Mapping[str, str], name: str) -> Optional[Path]:
    return Path(environ[name]) if environ.get(name) else None


def _named(environ: Mapping[str, str], prefix: str) -> Dict[str, str]:
    return {key[len(prefix) :]: value for key, value in environ.items() if key.startswith(prefix)}


def _file_stem(name: str) -> str:
    if not isinstance(name, str):
        raise TypeError("an image's name is a text, not {!r}".format(name))
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name).strip(".") or "image"


def _exit_badly(pid: int) -> None:
    # Only in the process that called fail: forked children inherit exit handlers.
    if os.getpid() == pid:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (AttributeError, OSError, ValueError):
                pass
        os._exit(1)


__all__ = ["Run"]
