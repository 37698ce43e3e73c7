"""Batch scoring as a job: a model, data, a script with `init()` and `run()`. Pure but for looking at paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from muster.errors import JobError
from muster.job.rules import is_address
from muster.wire.codec import Json

RESULT = "result"
"""The output that holds the results."""


@dataclass(frozen=True)
class BatchSettings:
    """What `muster.scoring.batch` is told, as one JSON argument: the same fields under the same names."""

    script: str = ""
    arguments: Sequence[str] = ()
    format: str = ""
    mini_batch_size: int = 0
    output_action: str = "append_row"
    output_file: str = "predictions.csv"
    max_retries: int = 2
    timeout_s: float = 60.0
    error_threshold: int = -1
    mini_batch_error_threshold: int = -1


@dataclass(frozen=True)
class BatchScoring:
    """One batch scoring to be run."""

    data: str
    data_type: str
    model: str | None = None
    script: Path | None = None
    settings: BatchSettings = field(default_factory=BatchSettings)
    output: str | None = None
    """An address in a datastore; None: kept with the run."""
    retries: int = 3


def job_of(scoring: BatchScoring, dump: str) -> dict[str, Json]:
    """The job that scores; `dump` is the JSON of its settings."""
    inputs: dict[str, Json] = {"data": {"type": scoring.data_type, "path": scoring.data}}
    if scoring.model is not None:
        inputs["model"] = {"type": "custom_model", "path": scoring.model}
    output: dict[str, Json] = {} if scoring.output is None else {"path": scoring.output}
    script = scoring.script
    code: Mapping[str, Json] = {} if script is None else {"code": str(script.resolve().parent)}
    return {
        **code,
        "display_name": f"score-{script.stem}" if script is not None else "score",
        "command": ("python", "-m", "muster.scoring.batch", dump),
        "distribution": {"type": "pytorch", "process_count_per_instance": 1},
        "inputs": inputs,
        "outputs": {RESULT: output},
        # A rank that is killed costs an attempt, and the next one goes on from what was scored.
        "retry": {"user_error": scoring.retries, "on_codes": ["signal", "host_oom"]},
    }


def settings_json(settings: BatchSettings) -> Mapping[str, Json]:
    """The settings as they travel."""
    return {**asdict(settings), "arguments": list(settings.arguments)}


def data_type(path: str, is_file: bool) -> str:
    """How an input is declared; a local path says itself what it is."""
    if is_address(path):
        return "uri_file" if is_file else "uri_folder"
    found = Path(path).expanduser()
    if not found.exists():
        raise JobError(f"there is no file or folder {path} to score", "Correct --input.")
    return "uri_folder" if found.is_dir() else "uri_file"
