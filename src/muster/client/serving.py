"""A server of models as a run that does not end: replicas of a script or a model behind one listener. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from muster.errors import JobError
from muster.job.endpoints.models import ModelInput, inputs_of, variables_of
from muster.wire.codec import Json

SERVICE = "score"
"""The name of the port, for `muster forward RUN score`."""
LOOPBACK = ("127.0.0.1", "localhost")


@dataclass(frozen=True)
class ServeSettings:
    """The settings of `muster.scoring.serve`, as one JSON argument with the same fields."""

    script: str = ""
    name: str = "model"
    version: str = "1"
    host: str = "127.0.0.1"
    port: int = 5001
    replicas: int = 1
    max_batch: int = 1
    max_wait_ms: float = 5.0
    timeout_ms: float = 60_000.0
    max_queue: int = 256
    endpoint: str = ""
    deployment: str = ""
    max_replicas: int = 0
    target_percent: float = 70.0
    polling_s: float = 1.0
    idle_s: float = 30.0
    probe_delay_s: float = 10.0
    probe_period_s: float = 10.0
    probe_timeout_s: float = 2.0
    probe_failures: int = 30
    collections: tuple[str, ...] = ()
    sampling_rate: float = 1.0
    rolling_rate: str = "hour"
    captured_headers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Serving:
    """One server to run."""

    settings: ServeSettings
    model: ModelInput | None = None
    script: Path | None = None
    key_secret: str | None = None
    restarts: int = 10


def job_of(serving: Serving, dump: str) -> dict[str, Json]:
    """The job that serves; `dump` is the JSON of its settings."""
    settings = serving.settings
    if settings.host not in LOOPBACK and serving.key_secret is None:
        raise JobError(
            f"--host {settings.host} lets others reach the model, and no key keeps them out",
            "Give --key-secret NAME (`muster secret set NAME`), or leave --host out and use `muster forward`.",
        )
    models = () if serving.model is None else (serving.model,)
    script = serving.script
    code: Mapping[str, Json] = {} if script is None else {"code": str(script.resolve().parent)}
    key: Mapping[str, Json] = (
        {} if serving.key_secret is None else {"SERVE_KEY": f"${{{{secrets.{serving.key_secret}}}}}"}
    )
    return {
        **code,
        "display_name": f"serve-{settings.name}",
        "command": ("python", "-m", "muster.scoring.serve", dump),
        "inputs": inputs_of(models),
        "environment_variables": {**variables_of(models), **key},
        "services": {SERVICE: {"type": "custom", "port": settings.port}},
        "retry": {"user_error": serving.restarts, "on_codes": ["signal", "host_oom"], "backoff_s": 0.5},
    }


def settings_json(settings: ServeSettings) -> Mapping[str, Json]:
    """The settings as JSON."""
    return asdict(settings)
