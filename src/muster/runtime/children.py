"""Child runs of this process's run, as v1 scripts make them, logged through the address for MLflow's clients."""

import json
import os
import time
from pathlib import Path
from typing import Any, Optional
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from muster.errors import MusterError
from muster.runtime import values

_TIMEOUT_S = 60.0


class ChildRun:
    """A run whose parent is the run of this process; it ends with `complete()` or at the end of its `with`."""

    def __init__(self, parent: str, name: str = "") -> None:
        tags = [{"key": "mlflow.parentRunId", "value": parent}]
        experiment = _ask("experiments/get-by-name?experiment_name=" + quote(os.environ["MLFLOW_EXPERIMENT_NAME"]))
        made = _ask(
            "runs/create",
            {
                "experiment_id": experiment["experiment"]["experiment_id"],
                "run_name": name,
                "start_time": _now(),
                "tags": tags,
            },
        )
        info = made["run"]["info"]
        self.id = info["run_id"]
        self.name = self.display_name = name or self.id
        self._root = info["artifact_uri"].split("mlflow-artifacts:/", 1)[-1]

    def log(self, name: str, value: Any, description: str = "", step: Optional[int] = None) -> None:
        """Log a number; text becomes a parameter."""
        number = values.jsonable(value)
        if isinstance(number, (int, float)):
            body = {"key": name, "value": number, "timestamp": _now(), "step": 0 if step is None else int(step)}
            self._post("runs/log-metric", body)
        else:
            self._post("runs/log-parameter", {"key": name, "value": str(value)})

    def log_list(self, name: str, value: Any, description: str = "") -> None:
        """Log numbers, one step after the other."""
        for step, item in enumerate(value):
            self.log(name, item, step=step)

    def log_row(self, name: str, description: Optional[str] = None, **kwargs: Any) -> None:
        """Log a number for each column."""
        for column, value in kwargs.items():
            self.log("{}/{}".format(name, column), value)

    def tag(self, key: str, value: Any = None) -> None:
        """Give the run a tag."""
        self._post("runs/set-tag", {"key": key, "value": "" if value is None else str(value)})

    def set_tags(self, tags: Any) -> None:
        """Give the run several tags."""
        for key, value in tags.items():
            self.tag(key, value)

    def upload_file(self, name: str, path_or_stream: Any, datastore_name: Optional[str] = None) -> None:
        """Keep a file with the run."""
        is_stream = hasattr(path_or_stream, "read")
        data = path_or_stream.read() if is_stream else Path(path_or_stream).read_bytes()
        content = data.encode() if isinstance(data, str) else data
        _call("/api/2.0/mlflow-artifacts/artifacts/" + quote(self._root + "/" + name), content, "PUT")

    def complete(self) -> None:
        """End the run."""
        self._post("runs/update", {"status": "FINISHED", "end_time": _now()})

    def fail(self, error_details: Any = None, error_code: Optional[str] = None) -> None:
        """End the run as failed."""
        self._post("runs/update", {"status": "FAILED", "end_time": _now()})

    def __enter__(self) -> "ChildRun":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.complete()
        else:
            self.fail(error)

    def _post(self, call: str, body: Any) -> None:
        _ask(call, {"run_id": self.id, "run_uuid": self.id, **body})


def _ask(call: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    return json.loads(_call("/api/2.0/mlflow/" + call, data, "GET" if body is None else "POST") or b"{}")


def _call(target: str, data: Optional[bytes], method: str) -> bytes:
    address = os.environ.get("MLFLOW_TRACKING_URI", "")
    if not address.startswith("http"):
        raise MusterError("a run below this one cannot be kept: MLFLOW_TRACKING_URI is not set", "Run it as a job.")
    request = Request(address.rstrip("/") + target, data, method=method)
    request.add_header("Content-Type", "application/json")
    request.add_header("Authorization", "Bearer " + os.environ.get("MLFLOW_TRACKING_TOKEN", ""))
    try:
        with urlopen(request, timeout=_TIMEOUT_S) as response:
            answer: bytes = response.read()
            return answer
    except URLError as error:
        raise MusterError("a run below this one cannot be kept: {}".format(error), "Is the server up?") from error


def _now() -> int:
    return int(time.time() * 1000)
