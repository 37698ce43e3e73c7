"""horovod.torch of Muster's layer on two ranks: every call gives what real Horovod gave."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.frameworks.horovod_calls.comparison import KEPT, SCRIPTS, differences
from tests.integration.training.conftest import BIN, run_script

pytest.importorskip("torch")

OUT_OF_STEP = """
import sys
from muster.runtime.parts.horovod import HorovodCompat
sys.meta_path.append(HorovodCompat)
import horovod.torch as hvd, torch
hvd.init()
hvd.allreduce(torch.ones(2 + hvd.rank()), name=f"of rank {hvd.rank()}")
"""


def test_every_call_gives_what_horovod_gave(tmp_path: Path) -> None:
    run_script(tmp_path, SCRIPTS / "torch_calls.py", "found.json", "--compat", ranks=2)
    found = json.loads((tmp_path / "found.json").read_text())
    assert not differences(json.loads((KEPT / "torch.json").read_text()), found)


def test_ranks_that_are_out_of_step_are_told_both_calls(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(OUT_OF_STEP)
    done = subprocess.run(
        [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", "2", str(script)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode != 0
    assert "of rank 0" in done.stderr and "of rank 1" in done.stderr
    assert "in the same order" in done.stderr


def test_one_process_needs_nobody(tmp_path: Path) -> None:
    run_script(tmp_path, SCRIPTS / "torch_calls.py", "found.json", "--compat")
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["rank"] == [[0, 1, 1, 0, 1]]
    assert found["join"][0][0] == 0
