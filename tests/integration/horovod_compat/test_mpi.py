"""The group of horovod.tensorflow over MPI: no rank waits for one that has ended. It needs no TensorFlow."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mpi4py")
if shutil.which("mpirun") is None:
    pytest.skip("there is no mpirun", allow_module_level=True)

SCRIPT = """
import sys, types
from pathlib import Path
from muster.runtime.parts.horovod import HorovodCompat
sys.meta_path.append(HorovodCompat)
import horovod
import numpy as np

alone = types.ModuleType("horovod.tensorflow")
alone.__path__ = [str(Path(horovod.__path__[0]) / "tensorflow")]
sys.modules["horovod.tensorflow"] = alone
from horovod.tensorflow.group import GROUP
from horovod.tensorflow.group import HorovodInternalError, Min

GROUP.init()
told = []
try:
    GROUP.join() if GROUP.rank() else GROUP.reduce([np.ones(2)], Min, None)
except HorovodInternalError as error:
    told.append(str(error))
GROUP.shutdown()
GROUP.init()
assert GROUP.reduce([np.ones(2)], 1, None)[0].tolist() == [2, 2]
if GROUP.rank() == 1:
    Path("told_1").write_text(told[0])
    sys.exit(3)
try:
    GROUP.reduce([np.ones(2)], 1, None)
except HorovodInternalError as error:
    told.append(str(error))
Path("told_0").write_text("\\n".join(told))
"""


@pytest.mark.timeout(90)
def test_a_rank_that_ends_is_named_and_holds_up_nobody(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", sys.executable, str(script)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=80, check=False)
    assert done.returncode == 3, done.stderr
    joined, left = (tmp_path / "told_0").read_text().split("\n")
    assert joined == (tmp_path / "told_1").read_text() and "has joined" in joined
    assert "rank 1 has left" in left
