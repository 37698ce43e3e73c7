"""Served models as the clients of others see them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.frameworks.environments import ENVIRONMENTS
from tests.frameworks.training import TIMEOUT_S


@pytest.mark.timeout(TIMEOUT_S)
def test_mlflow_and_triton_clients_are_answered(tmp_path: Path) -> None:
    environment = ENVIRONMENTS["scoring"]
    if not environment.is_made:
        pytest.skip("the environment scoring is not made (make frameworks)")
    script = Path(__file__).with_name("scoring_clients.py")
    done = subprocess.run(
        [str(environment.python), str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0 and "all clients were answered" in done.stdout, done.stdout + done.stderr
