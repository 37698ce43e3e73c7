"""Logging to a run from a process outside of it."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import Any, Protocol

from muster.client.api import Client
from muster.runtime import values
from muster.runtime.uploads import check_name
from muster.wire.runs import MetricReport


class RunLog(Protocol):
    """Logs metrics, tables, images and v1's charts to a run."""

    id: str

    @property
    def _client(self) -> Client: ...

    def log(self, name: str, value: Any, description: str = "", step: int | None = None) -> None:
        """Log a number (or text) to the run from outside of it, with its step."""
        self._log("scalar", name, values.plain(value), step)

    def log_list(self, name: str, value: Any, description: str = "") -> None:
        """Log a list of values under one name."""
        self._log("list", name, values.plain_list(value))

    def log_row(self, name: str, description: str | None = None, **kwargs: Any) -> None:
        """Log one row of a table, a column for each keyword."""
        self._log("row", name, values.plain_row(kwargs))

    def log_table(self, name: str, value: Any, description: str = "") -> None:
        """Log a whole table: a list of values for each column."""
        self._log("table", name, values.plain_table(value))

    def log_image(self, name: str, path: str | None = None, plot: Any = None, description: str = "") -> None:
        """Log an image file, or a matplotlib figure as `plot`."""
        if (path is None) == (plot is None):
            raise TypeError("log_image takes either a path or a plot")
        if path is not None:
            source, suffix = Path(path).read_bytes(), Path(path).suffix or ".png"
        else:
            drawn = io.BytesIO()
            plot.savefig(drawn, format="png")
            source, suffix = drawn.getvalue(), ".png"
        stored = check_name(f"images/{name.replace('/', '_')}{suffix}")
        self._client.upload(self.id, stored, source)
        self._log("image", name, stored)

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

    def flush(self, timeout_seconds: int = 300) -> None:
        """Does nothing: every call has already sent its data."""

    def _keep_json(self, name: str, value: Any) -> None:
        text = value if isinstance(value, str) else json.dumps(value)
        self._client.upload(self.id, check_name(f"metrics/{name.replace('/', '_')}.json"), text.encode())

    def _log(self, kind: str, name: str, value: Any, step: int | None = None) -> None:
        self._client.log_metrics(self.id, [MetricReport(name, values.jsonable(value), step, kind, time.time())])
