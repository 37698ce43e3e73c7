"""`RunDetails`: a live view of a run in a notebook, and its state in a terminal."""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from typing import Any

from muster.errors import MusterError
from muster.sdk.run import Run

_EVERY_S = 1.0


class RunDetails:
    """Shows a run, and goes on showing it until it has ended."""

    def __init__(self, run_instance: Run) -> None:
        self.run = run_instance
        self._thread: threading.Thread | None = None

    def show(self, render_lib: Any = None, widget_settings: Any = None) -> None:
        """In a notebook a table that changes with the run; elsewhere one line."""
        display = _notebook_display()
        if display is None:
            print(f"{self.run.id}: {self.run.get_status()} (muster logs -f {self.run.id})")
            return
        handle = display(_Page(self.run._repr_html_()), display_id=True)
        self._thread = threading.Thread(target=self._follow, args=(handle,), name="RunDetails", daemon=True)
        self._thread.start()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the view has reached the run's end."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _follow(self, handle: Any) -> None:
        pause = threading.Event()
        ended = False
        while not ended:
            try:
                ended = self.run.done()
                handle.update(_Page(self.run._repr_html_()))
            except MusterError:
                # The server may be away for a while; the view stays as it is.
                ended = False
            pause.wait(0 if ended else _EVERY_S)


class _Page:
    """HTML for IPython, without importing it."""

    def __init__(self, html: str) -> None:
        self._html = html

    def _repr_html_(self) -> str:
        return self._html


def _notebook_display() -> Any:
    """IPython's `display` where a kernel shows what it is given; None elsewhere."""
    if "IPython" not in sys.modules:
        return None
    shell = import_module("IPython").get_ipython()
    if shell is None or getattr(shell, "kernel", None) is None:
        return None
    return import_module("IPython.display").display
