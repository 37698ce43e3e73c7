"""Results on disk in the order of the input: appended, published as checkpoints, and written out once at the end."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, TextIO

from muster.scoring.batch.work import APPEND, PER_FILE, Batch
from muster.scoring.frames import number, texts

_SPOOL, _PLAN = "results.jsonl", "plan.json"
_EVERY_S = 5.0
_GROWTH = 0.1
"""A checkpoint copies all results so far; the next one waits until their number has grown by this share."""


class Spool:
    """The results so far. Mini-batches come in order, so the number of finished ones says where to resume."""

    def __init__(self, folder: Path, plan: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / _SPOOL
        self._plan = plan
        self.done = 0
        """How many mini-batches are finished, counted from the first."""
        self.items = 0
        self.failed_items = 0
        self.failed_batches = 0
        self._published_at = time.monotonic()
        self._published_bytes = 0
        self._out: Optional[TextIO] = None

    def resume(self, folder: Optional[Path]) -> int:
        """Take over the results that an earlier attempt published; returns how many mini-batches that saves."""
        if folder is not None and (folder / _PLAN).is_file() and (folder / _PLAN).read_text() == self._plan:
            shutil.copyfile(str(folder / _SPOOL), str(self._file))
            self._count()
        self._out = open(str(self._file), "a", encoding="utf-8")
        return self.done

    def _count(self) -> None:
        """Read the existing results; a line that was cut off is dropped, with everything after it."""
        good = 0
        with open(str(self._file), "rb") as lines:
            for line in lines:
                try:
                    first, items, failed, _, _, lost = json.loads(line)
                except ValueError:
                    break
                if not line.endswith(b"\n") or first != self.done:
                    break
                good += len(line)
                self._add(items, failed)
                self.failed_batches += int(lost)
        with open(str(self._file), "r+b") as file:
            file.truncate(good)

    def append(self, batch: Batch, rows: List[str], failed: int, lost: bool) -> None:
        """Store the result of the next mini-batch."""
        assert self._out is not None and batch.number == self.done
        line = [batch.number, batch.items, failed, list(batch.names), rows, lost]
        self._out.write(json.dumps(line) + "\n")
        self._add(batch.items, failed)
        self.failed_batches += int(lost)

    def _add(self, items: int, failed: int) -> None:
        self.done += 1
        self.items += items
        self.failed_items += failed

    def close(self) -> None:
        if self._out is not None:
            self._out.close()

    def publish(self, run: Any, force: bool = False) -> None:
        """Publish the results so far as a checkpoint, from time to time."""
        assert self._out is not None
        if run.checkpoint_dir is None or (time.monotonic() - self._published_at < _EVERY_S and not force):
            return
        self._out.flush()
        size = self._file.stat().st_size
        if size - self._published_bytes <= _GROWTH * self._published_bytes and not force:
            return
        staged = run.checkpoint_dir / ".scored.tmp"
        shutil.rmtree(str(staged), ignore_errors=True)
        staged.mkdir(parents=True)
        shutil.copyfile(str(self._file), str(staged / _SPOOL))
        (staged / _PLAN).write_text(self._plan)
        run.publish_checkpoint(str(staged), step=self.done)
        self._published_at, self._published_bytes = time.monotonic(), size

    def write(self, output: Path, action: str, name: str) -> None:
        """Write the results to the job's output: one file, or one for each file of the input."""
        assert self._out is not None
        self._out.close()
        output.mkdir(parents=True, exist_ok=True)
        if action == APPEND:
            self._write_all(output / ".{}.tmp".format(name), output / name)
        elif action == PER_FILE:
            self._write_each(output)

    def _write_all(self, staged: Path, target: Path) -> None:
        try:
            with open(str(staged), "w", encoding="utf-8") as file:
                for _, rows in self._results():
                    file.writelines(row + "\n" for row in rows)
            os.replace(str(staged), str(target))
        except OSError:
            # Half of the results are of no use, and would be kept with the run.
            staged.unlink()
            raise

    def _write_each(self, output: Path) -> None:
        began: Dict[str, bool] = {}
        for names, rows in self._results():
            one = len(names) == 1
            for name, own in [(names[0], rows)] if one else [(names[at], [row]) for at, row in enumerate(rows)]:
                target = output / (name + ".out")
                target.parent.mkdir(parents=True, exist_ok=True)
                with open(str(target), "a" if began.get(name) else "w", encoding="utf-8") as file:
                    file.writelines(row + "\n" for row in own)
                began[name] = True

    def _results(self) -> Iterator[Any]:
        with open(str(self._file), encoding="utf-8") as lines:
            for line in lines:
                fields = json.loads(line)
                number(fields[0])
                yield texts(fields[3]), texts(fields[4])
