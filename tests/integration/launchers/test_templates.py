"""The first template trains with the PyTorch that is here; the others in `make frameworks`."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import MUSTER
from tests.frameworks.test_templates import check_training


def test_the_template_for_ddp_trains_at_once(workspace: Path) -> None:
    check_training(MUSTER, "ddp", workspace)
