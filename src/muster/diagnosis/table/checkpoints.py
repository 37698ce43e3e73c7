"""Rules about checkpoints that cannot be loaded."""

from __future__ import annotations

from muster.diagnosis.table.rule import rule

CHECKPOINTS = (
    rule(
        "checkpoint damaged",
        "exception",
        r"PytorchStreamReader failed|failed finding central directory|BadZipFile"
        r"|unexpected EOF, expected \d+ more bytes",
        "python-checkpoint-truncated",
        "The checkpoint is truncated or damaged: it was still being written, or the disk was "
        "full. Load an earlier one.",
    ),
    rule(
        "checkpoint of other sizes",
        "exception",
        r"size mismatch for (?P<name>\S{1,200}): copying a param with shape torch\.Size\((?P<was>[^)]{1,60})\) from "
        r"checkpoint, the shape in current model is torch\.Size\((?P<now>[^)]{1,60})\)",
        "q-torch-state-dict-mismatch",
        "The model is not built with the sizes of the checkpoint: `{name}` is {was} there and {now} here. Build it "
        "with those sizes, or leave that layer out of what is loaded.",
    ),
    rule(
        "wrapped checkpoint",
        "exception",
        r"Error\(s\) in loading state_dict",
        "python-state-dict python-long-message",
        "The checkpoint's names differ from the model's: a prefix such as `module.` from "
        "DataParallel, or another architecture (`strict=False` shows what fits).",
    ),
)
