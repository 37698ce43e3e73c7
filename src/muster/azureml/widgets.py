"""`RunDetails`: a live view of a run in a notebook, and its state in a terminal."""

from __future__ import annotations

import threading
from typing import Any

from muster.sdk import notebook
from muster.sdk.run import Run


class RunDetails:
    """Shows a run and updates the view until the run has ended."""

    def __init__(self, run_instance: Run) -> None:
        self.run = run_instance
        self._thread: threading.Thread | None = None

    def show(self, render_lib: Any = None, widget_settings: Any = None) -> None:
        """In a notebook, a table and curves that follow the run; elsewhere one line."""
        line = f"{self.run.id}: {self.run.get_status()} (muster logs -f {self.run.id})"
        self._thread = notebook.show(self.run, line)

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the view shows the run's end."""
        if self._thread is not None:
            self._thread.join(timeout_s)
