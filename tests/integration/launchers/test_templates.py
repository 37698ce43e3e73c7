"""Templates that need PyTorch alone train with the one that is here; the others in `make frameworks`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import MUSTER
from tests.frameworks.test_templates import check_training


@pytest.mark.parametrize("name", ["ddp", "horovod"])
def test_a_template_trains_at_once(name: str, workspace: Path) -> None:
    check_training(MUSTER, name, workspace)
