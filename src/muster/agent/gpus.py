"""The GPUs of the machine, as `nvidia-smi` tells."""

from __future__ import annotations

import shutil
import subprocess
from typing import NamedTuple

from muster.host.children import spawning


class Gpu(NamedTuple):
    id: str
    percent: float
    memory_used_bytes: float


def query() -> list[Gpu]:
    """Every GPU with its load; empty where there is no driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, "--query-gpu=index,utilization.gpu,memory.used", "--format=csv,noheader,nounits"]
    try:
        with spawning:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return parse(answer.stdout)


def parse(text: str) -> list[Gpu]:
    found = []
    for line in text.splitlines():
        fields = [part.strip() for part in line.split(",")]
        if len(fields) == 3 and fields[0]:
            found.append(Gpu(fields[0], _number(fields[1]), _number(fields[2]) * (1 << 20)))
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
