"""How long a rank waits for its data, by PyTorch's own DataLoader in a real run of a plain script."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.conftest import MUSTER
from tests.integration.server.conftest import Site

SCRIPT = """
import time
from torch.utils.data import DataLoader

class Slow:
    def __len__(self):
        return 8
    def __getitem__(self, number):
        time.sleep(0.25)
        return number

for workers in (0, 1):
    for batch in DataLoader(Slow(), batch_size=4, num_workers=workers):
        time.sleep(0.1)
"""


@pytest.fixture
def site(shared_site: Site) -> Site:
    return shared_site


def test_the_wait_for_a_loader_is_measured_and_shown(site: Site, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    run = site.run(command=f"python {tmp_path}/train.py")
    view = site.wait(run)
    assert view["status"] == "Completed", site.log(run)
    waited, rest = (view["metrics"][f"muster/loader_{what}_s"] for what in ("wait", "rest"))
    # Sixteen samples of a quarter of a second, of which the second loader reads some ahead.
    assert waited > 2.5 and rest > 0.35
    shown = subprocess.run(
        [MUSTER, "show", run], cwd=site.folder, capture_output=True, text=True, check=True, timeout=60
    )
    assert "data wait" in shown.stdout and "% of the time of its loop" in shown.stdout


def test_who_waits_for_most_of_the_time_is_told_and_it_is_kept(site: Site, tmp_path: Path) -> None:
    lines = [f"run.log('muster/loader_{what}_s', {value})" for what, value in (("rest", 15), ("wait", 45))]
    (tmp_path / "train.py").write_text("\n".join(["from muster import Run", "run = Run.get_context()", *lines]))
    run = site.run(command=f"python {tmp_path}/train.py")
    view = site.wait(run)
    assert view["status"] == "Completed", site.log(run)
    assert [text for text in view["notices"] if "waits for data 75% of its time" in text], view["notices"]
