"""A script's progress, read from the steps that it prints: tqdm, Keras, Lightning, "Epoch 3/10", "step 40/100". Pure.

Careful rather than clever: an ambiguous line is ignored, since a wrong remaining time is worse than none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from muster.wire.runs import Progress

LINE_BYTES = 400
_MOST = 10**9
_OF = r"\[?\s{{0,3}}(?P<{0}>\d{{1,10}})\s{{0,3}}(?:/|of)\s{{0,3}}(?P<{0}s>\d{{1,10}})(?![\d./])\]?"
_EPOCH = re.compile(r"(?<!\w)epochs?\s{0,3}[:=#]?\s{0,3}" + _OF.format("epoch"), re.IGNORECASE)
_EPOCH_ALONE = re.compile(
    r"(?<!\w)epoch\s{0,3}[:=#]?\s{0,3}(?P<epoch>\d{1,10})\s{0,3}[:,]?\s{0,8}\d{1,3}%\|", re.IGNORECASE
)
_STEP = re.compile(
    r"(?<!\w)(?:global[ _])?(?:steps?|iters?|iterations?|batch(?:es)?|updates?)\s{0,3}[:=#]?\s{0,3}"
    + _OF.format("step"),
    re.IGNORECASE,
)
_BEFORE = frozenset(
    ["info", "debug", "root", "train", "training", "trainer", "main", "rank", "t", "z", "utc", "local", "loop", "pid"]
)
"""Words of loggers, which may stand before a count without making it the count of something else."""
_BAR = re.compile(r"(?P<percent>\d{1,3})%\|[^|]{0,300}\|\s*(?P<step>\d{1,10})/(?P<steps>\d{1,10})\s+\[\d+:\d\d")
_KERAS_BAR = re.compile(r"^\s*(?P<step>\d{1,10})/(?P<steps>\d{1,10})\s+(?:[━╸╺]{2,}|\[[=>.]{2,}\])")
_RICH_BAR = re.compile(r"^\s*[━╸╺]{2,}\s*(?P<step>\d{1,10})/(?P<steps>\d{1,10})\b")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x08")


@dataclass(frozen=True)
class Counted:
    """What a script has counted so far."""

    epoch: float | None = None
    """Completed epochs."""
    epochs: float | None = None
    steps: int | None = None
    """The total of its first count; other counts, such as that of a validation, are ignored."""
    step: int = 0
    unclear: bool = False
    """Its steps started over without an epoch to place them: they are ignored from now on."""


def read_line(known: Counted, line: str) -> tuple[Counted, Progress | None]:
    """What is known with this line added, and the progress that it shows; None: it shows none."""
    line = _ESCAPES.sub("", line)
    if not any(char.isdigit() for char in line) or not ("/" in line or " of " in line):
        return known, None
    match = _EPOCH.search(line)
    if match and _is_plain(line, match) and _fits(match["epoch"], match["epochs"]):
        return _in_epoch(known, line, match)
    match = _EPOCH_ALONE.search(line)
    if match and _is_plain(line, match):
        bar = _bar(line)
        epoch = int(match["epoch"])
        if bar is not None and epoch <= _MOST:
            # Lightning counts from 0, and does not say how many there are.
            return replace(known, epoch=epoch, epochs=None), Progress(round(epoch + bar[0] / bar[1], 3), None, "epochs")
    bar = _bar(line)
    return (known, None) if bar is None else _steps(known, *bar)


def _in_epoch(known: Counted, line: str, match: re.Match[str]) -> tuple[Counted, Progress | None]:
    epoch, epochs = int(match["epoch"]), int(match["epochs"])
    rest = line[match.end() :]
    if rich := _RICH_BAR.search(rest):
        # Lightning's other bar: the first is 0, and the last one's number is given.
        if not _fits(rich["step"], rich["steps"]):
            return known, None
        return _part(known, epoch, epochs + 1, int(rich["step"]), int(rich["steps"]))
    if epoch == 0:
        # It counts from 0: whether the last one is called n or n - 1 is unknown.
        return known, None
    if bar := _bar(rest):
        return _part(known, epoch - 1, epochs, *bar)
    if any(char.isalnum() for char in rest):
        # Results follow: the epoch is over.
        return replace(known, epoch=epoch, epochs=epochs), Progress(epoch, epochs, "epochs")
    return replace(known, epoch=epoch - 1, epochs=epochs), Progress(epoch - 1, epochs, "epochs")


def _part(known: Counted, epoch: float, epochs: float, step: int, steps: int) -> tuple[Counted, Progress]:
    done = round(epoch + step / steps, 3)
    return replace(known, epoch=epoch, epochs=epochs, steps=steps, step=step), Progress(done, epochs, "epochs")


def _steps(known: Counted, step: int, steps: int) -> tuple[Counted, Progress | None]:
    """Progress from a count of steps on a line of its own."""
    if known.steps is not None and steps != known.steps:
        # A validation, or a download: not the training's own steps.
        return known, None
    if known.epoch is not None and known.epochs is not None:
        if known.epoch >= known.epochs:
            return known, None
        return _part(known, known.epoch, known.epochs, step, steps)
    if known.unclear or step < known.step:
        return replace(known, unclear=True), None
    return replace(known, steps=steps, step=step), Progress(step, steps, "steps")


def _bar(text: str) -> tuple[int, int] | None:
    for pattern in (_BAR, _KERAS_BAR, _STEP):
        match = pattern.search(text)
        if pattern is _STEP and match and not _is_plain(text, match):
            return None
        if match and _fits(match["step"], match["steps"]):
            step, steps = int(match["step"]), int(match["steps"])
            if pattern is _BAR and abs(100 * step / steps - int(match["percent"])) > 1.5:
                return None
            return step, steps
    return None


def _is_plain(line: str, match: re.Match[str]) -> bool:
    """Whether only a logger's words come before it: `Downloading batch 3/10` counts something else."""
    return all(word.lower() in _BEFORE for word in re.findall(r"[A-Za-z]+", line[: match.start()]))


def _fits(done: str, total: str) -> bool:
    return 0 <= int(done) <= int(total) <= _MOST and int(total) > 1
