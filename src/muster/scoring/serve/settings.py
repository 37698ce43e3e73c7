"""What a server of models is told, as its command's one argument."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Sequence


@dataclass(frozen=True)
class Settings:
    """One deployment."""

    script: str = ""
    name: str = "model"
    """What the model is called in addresses of the Open Inference Protocol."""
    version: str = "1"
    host: str = "127.0.0.1"
    port: int = 5001
    replicas: int = 1
    max_batch: int = 1
    """Requests that `run()` gets together; 1: each alone."""
    max_wait_ms: float = 5.0
    """How long the first of a batch waits for others."""
    timeout_ms: float = 60_000.0
    max_queue: int = 256
    """Requests that wait in one replica; more are refused with 429."""
    max_body: int = 512 << 20
    endpoint: str = ""
    """Whose deployment it is: replicas have a listener each, and the front door of the endpoint asks them."""
    deployment: str = ""
    max_replicas: int = 0
    """More than `replicas`, which may then be 0: as many are started as the load asks for."""
    target_percent: float = 70.0
    """How busy replicas should be where their number follows the load."""
    polling_s: float = 1.0
    """How often their number is decided."""
    idle_s: float = 30.0
    """How long fewer must be enough before one is ended."""
    probe_delay_s: float = 10.0
    """After a replica is ready, before it is first asked whether it lives."""
    probe_period_s: float = 10.0
    probe_timeout_s: float = 2.0
    probe_failures: int = 30
    """Probes in a row without an answer after which a replica is replaced."""

    collections: Sequence[str] = ()
    """What is kept of requests: `request`, `response`, and what the script collects under other names."""
    sampling_rate: float = 1.0
    rolling_rate: str = "hour"
    captured_headers: Sequence[str] = ()

    @staticmethod
    def parse(text: str) -> Settings:
        return Settings(**json.loads(text))

    def dump(self) -> str:
        return json.dumps(asdict(self))
