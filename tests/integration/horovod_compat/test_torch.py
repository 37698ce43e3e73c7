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

TROUBLES = """
import json, sys
from pathlib import Path
from muster.runtime.parts.horovod import HorovodCompat
sys.meta_path.append(HorovodCompat)
import horovod.torch as hvd, torch
from horovod.common.exceptions import HorovodInternalError

found = {}
hvd.init()
rank = hvd.rank()

def attempt(name, act):
    try:
        act()
    except HorovodInternalError as error:
        found[name] = str(error)
    hvd.shutdown()
    hvd.init()
    found[name + ", then"] = hvd.allreduce(torch.ones(2) + rank, op=hvd.Sum).tolist()

def refused(call, given=[1.0]):
    try:
        call(given)
    except (TypeError, ValueError) as error:
        return str(error)

calls = [hvd.allreduce, hvd.allreduce_async, hvd.allgather, hvd.alltoall, hvd.reducescatter]
found["lists"] = [refused(call) for call in (*calls, lambda given: hvd.broadcast(given, 0))]
found["no rows"] = [refused(call, torch.tensor(1.0)) for call in (hvd.allgather, hvd.alltoall, hvd.reducescatter)]
found["no optimizers"] = [refused(hvd.DistributedOptimizer), refused(lambda it: hvd.broadcast_optimizer_state(it, 0))]
attempt("shapes", lambda: hvd.allreduce(torch.ones(2 + rank), name=f"of rank {rank}"))
tail = [torch.ones(2), torch.ones(3)]
attempt("tenth of a group", lambda: hvd.grouped_allreduce([torch.ones(1)] * 9 + (tail if rank else tail[::-1])))
attempt("factors", lambda: hvd.allreduce(torch.ones(2), prescale_factor=1.0 + rank))
attempt("joined", lambda: hvd.join() if rank else hvd.allreduce(torch.ones(2), op=hvd.Min))
if rank:
    ahead = [hvd.allreduce_async(torch.ones(1)) for _ in range(2100)]
    found["ahead"] = sum(hvd.synchronize(handle).item() for handle in ahead)
found["joined last"] = hvd.join()
if rank == 0:
    try:
        hvd.allreduce(torch.ones(2))
    except HorovodInternalError as error:
        found["left"] = str(error)
Path(f"found_{rank}.json").write_text(json.dumps(found))
"""


def test_every_call_gives_what_horovod_gave(tmp_path: Path) -> None:
    run_script(tmp_path, SCRIPTS / "torch_calls.py", "found.json", "--compat", ranks=2)
    found = json.loads((tmp_path / "found.json").read_text())
    assert not differences(json.loads((KEPT / "torch.json").read_text()), found)


@pytest.mark.timeout(150)
def test_every_rank_is_told_what_one_did_otherwise(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TROUBLES)
    subprocess.run(
        [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", "2", str(script)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=140,
        check=True,
    )
    first, second = (json.loads((tmp_path / f"found_{rank}.json").read_text()) for rank in range(2))
    for trouble in ("shapes", "tenth of a group", "factors", "joined"):
        assert first[trouble] == second[trouble]
        assert first[f"{trouble}, then"] == second[f"{trouble}, then"] == [3, 3]
    assert all("takes an optimizer of PyTorch, not list" in said for said in first["no optimizers"])
    assert len(first["lists"]) == 6 and all("takes tensors of PyTorch, not list" in said for said in first["lists"])
    assert len(first["no rows"]) == 3 and all("this one has none" in said for said in first["no rows"])
    assert "of rank 0" in first["shapes"] and "of rank 1" in first["shapes"] and "same order" in first["shapes"]
    assert "op=hvd.Min" in first["joined"] and "has joined" in first["joined"]
    assert second["ahead"] == pytest.approx(1050)
    assert "rank 1 has left" in first["left"]


def test_one_process_needs_nobody(tmp_path: Path) -> None:
    run_script(tmp_path, SCRIPTS / "torch_calls.py", "found.json", "--compat")
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["rank"] == [[0, 1, 1, 0, 1]]
    assert found["join"][0][0] == 0
