"""The process that holds the model: reads the next mini-batch while it scores one and sends the results of another."""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, Optional, Set, Tuple

from muster.scoring import frames, layout
from muster.scoring.batch import tables
from muster.scoring.batch.rows import rows_of
from muster.scoring.batch.work import FILES, Batch, Settings, path_of
from muster.scoring.script import INIT_FAILED, BadScript, Script, is_mlflow, load, mlflow_model

Loaded = Tuple[Batch, Any, Optional[str]]
"""A mini-batch, its data, or the reason why it could not be read."""

_MOST_PRINTED = 100
_printed: Set[str] = set()
"""Tracebacks that are already in the log."""


def main() -> int:
    connection = socket.socket(fileno=int(sys.argv[1]))
    settings, root, form, model = Settings.parse(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5]
    try:
        script = _script(settings, model)
        script.init()
    except BadScript as error:
        print("muster: {}".format(error), file=sys.stderr)
        return INIT_FAILED
    except Exception:
        traceback.print_exc()
        return INIT_FAILED
    waiting: "queue.Queue[Optional[Loaded]]" = queue.Queue(2)
    sending: "queue.Queue[Optional[frames.Message]]" = queue.Queue()
    threading.Thread(target=_read, args=(connection, root, form, waiting), daemon=True).start()
    sender_lock = threading.Lock()
    sender = threading.Thread(target=_send, args=(connection, sending, sender_lock), daemon=True)
    sender.start()
    # Sent at once: what runs next may take the process down.
    _say(connection, ["ready"], sender_lock)
    while True:
        loaded = waiting.get()
        if loaded is None:
            break
        _say(connection, ["begin", loaded[0].number], sender_lock)
        _score(script, loaded, sending)
    if script.shutdown is not None:
        script.shutdown()
    sending.put(["bye"])
    sending.put(None)
    sender.join()
    return 0


def _script(settings: Settings, model: str) -> Script:
    layout.tell()
    if settings.script:
        return load(settings.script, list(settings.arguments))
    if is_mlflow(model):
        return mlflow_model(model)
    raise BadScript("there is no script, and {} is no MLflow model".format(model or "there is no model"))


def _score(script: Script, loaded: Loaded, sending: "queue.Queue[Optional[frames.Message]]") -> None:
    batch, data, problem = loaded
    if problem is not None:
        sending.put(["failed", batch.number, problem])
        return
    try:
        rows = rows_of(script.run(data))
    except Exception as error:
        _print_once(error)
        sending.put(["failed", batch.number, traceback.format_exc(limit=-1).strip().splitlines()[-1]])
        return
    sending.put(["scored", batch.number, list(rows)])


def _print_once(error: Exception) -> None:
    """Print where the script failed, without Muster's own frames; the same failure later on is not printed again."""
    trace = error.__traceback__
    inner = trace.tb_next if trace is not None and trace.tb_next is not None else trace
    text = "".join(traceback.format_exception(type(error), error, inner))
    if text not in _printed:
        if len(_printed) < _MOST_PRINTED:
            _printed.add(text)
        print(text, end="", file=sys.stderr, flush=True)


def _read(connection: socket.socket, root: str, form: str, waiting: "queue.Queue[Optional[Loaded]]") -> None:
    try:
        while True:
            message = frames.receive(connection)
            if not message:
                break
            batch = Batch.of(message)
            data: Any = None
            problem: Optional[str] = None
            try:
                data = _data(batch, root, form)
            except Exception as error:
                problem = "it cannot be read: {}".format(error)
            waiting.put((batch, data, problem))
    except frames.Closed:
        # The parent process is gone, so there is nothing left to do.
        os._exit(1)
    waiting.put(None)


def _data(batch: Batch, root: str, form: str) -> Any:
    if form == FILES:
        paths = [path_of(root, name) for name in batch.names]
        for path in paths:
            with open(path, "rb"):
                pass
        return [str(Path(path)) for path in paths]
    return tables.read(path_of(root, batch.names[0]), form, batch.begin, batch.end)


def _send(connection: socket.socket, sending: "queue.Queue[Optional[frames.Message]]", lock: threading.Lock) -> None:
    while True:
        message = sending.get()
        if message is None:
            return
        _say(connection, message, lock)


def _say(connection: socket.socket, message: frames.Message, lock: threading.Lock) -> None:
    with lock:
        try:
            frames.send(connection, message)
        except OSError:
            os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
