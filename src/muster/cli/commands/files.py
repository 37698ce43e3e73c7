"""`muster download`: the files of a run."""

from __future__ import annotations

import errno
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from muster.cli.console import columns, is_terminal, say
from muster.cli.options import Json, Run, argument, complete_files, option, print_result
from muster.cli.text import counted, duration, size
from muster.client.api import Client
from muster.client.connect import connect_to_read
from muster.errors import AccessDenied, Conflict, JobError, NotFound, UserError
from muster.host.files import is_below, is_safe_path
from muster.wire.data.access import FileBrief
from muster.wire.runs import FileView, RunView
from muster.wire.text import printable

_RATE_S = 5.0
"""The interval over which a rate is measured."""
_NAMES_REFUSED = (errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL, errno.EISDIR, errno.ENOTDIR, errno.EEXIST)
"""Errors of a filesystem for a name that it cannot store, or that conflicts with others."""
_NAMED = 20


def download(
    run: Run,
    paths: Annotated[
        list[str] | None,
        argument("PATH", "Files, folders or patterns (default: everything).", autocompletion=complete_files),
    ] = None,
    to: Annotated[Path | None, option("DIR", "Target folder (default: named after the run).", "--to")] = None,
    as_json: Json = False,
) -> None:
    """Download a run's files: outputs, logs, uploads, checkpoints; its code.

    `code` is the folder that was sent with the job, as it was then.

    \b
    Examples:
      muster download @latest
      muster download @latest outputs --to ./results
      muster download 4f2c 'outputs/*.pt' user_logs
      muster download @latest checkpoints/step_100
      muster download @latest code
    """
    client = connect_to_read()
    view = client.run(run)
    if paths and CODE in paths and not any(file.path.split("/")[0] == CODE for file in view.files):
        _download_code(client, view, to, as_json)
        paths = [path for path in paths if path != CODE]
        if not paths:
            return
    named = any(path.split("/")[0] == "checkpoints" for path in paths or [])
    chosen = choose(client.files(view.id, checkpoints=named), paths or [])
    if not chosen:
        say(f"{view.id} has no files yet")
        return
    _download_files(client, view, chosen, to or Path(view.name or view.id), as_json)


def _download_files(client: Client, view: RunView, chosen: Sequence[FileView], root: Path, as_json: bool) -> None:
    targets = [target_of(root, entry.path) for entry in chosen]
    if root.is_file():
        raise UserError(f"{root} is a file, and a folder is needed.", "Choose another one with --to.")
    root.mkdir(parents=True, exist_ok=True)
    meter = Meter(sum(entry.size for entry in chosen))
    left: dict[str, str] = {}
    for entry, target in zip(chosen, targets, strict=True):
        meter.begin(entry.path)
        if why := _fetch(client, view.id, entry.path, target, meter):
            left[entry.path] = why
    meter.end()
    files = [FileBrief(entry.path, entry.size) for entry in chosen if entry.path not in left]
    line = f"{counted(len(files), 'file')}, {size(meter.done)} in {root}"
    print_result({"folder": str(root), "files": files}, [line], as_json)
    if left:
        reasons = [f"{printable(path)}: {why}" for path, why in left.items()]
        more = [f"… and {len(reasons) - _NAMED:,} more"] if len(reasons) > _NAMED else []
        raise UserError("\n".join([f"not downloaded: {counted(len(reasons), 'file')}.", *reasons[:_NAMED], *more]))


def _fetch(client: Client, run: str, path: str, target: Path, meter: Meter) -> str:
    """Download one file; returns why it is impossible, where other files may still work."""
    try:
        client.download(run, path, target, progress=meter.add)
    except (NotFound, Conflict, AccessDenied, JobError) as error:
        return str(error)
    except OSError as error:
        if error.errno not in _NAMES_REFUSED:
            raise
        return error.strerror or str(error)
    return ""


CODE = "code"


def _download_code(client: Client, view: RunView, to: Path | None, as_json: bool) -> None:
    """The code that the run was submitted with."""
    if view.snapshot is None:
        raise NotFound(f"the run {view.id} was submitted without code.", "Its job has no `code`.")
    root = (to or Path(view.name or view.id)) / CODE
    if root.exists() and any(root.iterdir()):
        raise Conflict(f"{root} is there already.", "Choose another folder with --to.")
    root.mkdir(parents=True, exist_ok=True)
    client.download_snapshot(view.snapshot, root)
    files = [FileBrief(str(path.relative_to(root)), path.stat().st_size) for path in root.rglob("*") if path.is_file()]
    print_result(
        {"folder": str(root), "files": files}, [f"the code, {counted(len(files), 'file')}, in {root}"], as_json
    )


def choose(files: Sequence[FileView], wanted: Sequence[str]) -> list[FileView]:
    """The files that match paths, folders or patterns; each must match something."""
    if not wanted:
        return list(files)
    chosen: dict[str, FileView] = {}
    for text in wanted:
        pattern = text.rstrip("/")
        found = [entry for entry in files if _matches(entry.path, pattern)]
        if not found:
            tops = sorted({entry.path.split("/")[0] for entry in files})
            raise NotFound(f"the run has no file {text!r}.", f"It has: {', '.join(tops) or 'none'}.")
        chosen.update((entry.path, entry) for entry in found)
    return list(chosen.values())


def target_of(root: Path, name: str) -> Path:
    """The local path of a run's file; refuses a name that would leave the folder."""
    target = root / name
    if not is_safe_path(name) or not is_below(target, root):
        raise UserError(f"the run's file {name!r} would be written outside {root}; nothing was downloaded.")
    return target


def _matches(path: str, pattern: str) -> bool:
    return path == pattern or path.startswith(f"{pattern}/") or fnmatchcase(path, pattern)


class Meter:
    """A progress line on the terminal; its rate is that of the last seconds."""

    def __init__(self, total: int) -> None:
        self.done = 0
        self._total = total
        self._name = ""
        self._shown = time.monotonic()
        self._seen = deque([(self._shown, 0)])
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._visible = is_terminal(sys.stderr)
        if self._visible:
            # A stalled copy is redrawn too: an old rate would suggest progress.
            threading.Thread(target=self._tick, daemon=True).start()

    def expect(self, total: int) -> None:
        self._total = total

    def begin(self, name: str) -> None:
        with self._lock:
            self._name = name
            self._show()

    def add(self, count: int) -> None:
        with self._lock:
            self.done += count
            if time.monotonic() - self._shown > 0.1:
                self._show()

    def end(self) -> None:
        with self._lock:
            self._ended.set()
            if self._visible:
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()

    def _tick(self) -> None:
        while not self._ended.wait(1.0):
            with self._lock:
                if not self._ended.is_set():
                    self._show()

    def _show(self) -> None:
        self._shown = time.monotonic()
        if not self._visible:
            return
        self._seen.append((self._shown, self.done))
        while len(self._seen) > 2 and self._seen[1][0] < self._shown - _RATE_S:
            self._seen.popleft()
        amounts = f"{size(self.done)} of {size(self._total)}{self._pace()}  " if self._total else ""
        # A wrapped line cannot be overwritten by the next one, and a name may contain escape sequences.
        room = max(0, (columns(sys.stderr) or 80) - 1 - len(amounts))
        name = printable(self._name)
        sys.stderr.write(f"\r\x1b[K{amounts}{name[len(name) - room :] if len(name) > room else name}")
        sys.stderr.flush()

    def _pace(self) -> str:
        (then, before), (now, done) = self._seen[0], self._seen[-1]
        if done > before and now > then:
            rate = (done - before) / (now - then)
            return f", {size(rate)}/s, about {duration((self._total - done) / rate)} left"
        return f", nothing for {duration(now - then)}" if now - then >= _RATE_S and done < self._total else ""
