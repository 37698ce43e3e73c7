"""Files as users of Azure ML and Batch AI have them run unchanged."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CORPUS = Path(__file__).parents[2] / "corpus"


@pytest.fixture
def corpus(workspace: Path) -> Path:
    for folder in ("v1", "v2", "batchai"):
        shutil.copytree(CORPUS / folder, workspace / folder)
    return workspace


def muster(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "muster", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def submitted(folder: Path, script: str) -> str:
    command = [sys.executable, "-m", "muster.azureml", script]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_job_files_of_v2(corpus: Path) -> None:
    folder = corpus / "v2"
    said = muster(folder, "run", "job_single.yml", "--compute", "local", "--environment", "none")
    assert "epochs 2; schedule constant; rose.txt" in said
    assert said.count("without a meaning here") == 1 and "muster forward" in said
    options = ("--compute", "local", "--environment", "none", "--set", "resources.instance_count=2")
    said = muster(folder, "run", "job_pytorch.yml", *options)
    assert "[rank 1] epochs 1" in said
    inputs = ("--input", "training_data=data", "--input", "max_epochs=1", "--environment", "none")
    said = muster(folder, "run", "components/train.yml", *inputs)
    assert "an extra file" in said and "schedule time-based; rose.txt" in said


def test_python_of_v2(corpus: Path) -> None:
    said = submitted(corpus / "v2", "submit.py")
    assert "epochs 3; schedule constant; rose.txt" in said and "status: Completed" in said
    assert (corpus / "v2/downloaded/named-outputs/model_output/model_0.txt").read_text() == "weights"


def test_files_of_batch_ai(corpus: Path) -> None:
    said = muster(corpus / "batchai", "run", "job.json")
    assert "rank 0 url tcp://127.0.0.1:" in said and "rank 1 url tcp://127.0.0.1:" in said
    said = muster(corpus / "batchai", "run", "mpirun.json")
    assert said.count("prepared") == 2 and "distributed True" in said


def test_the_seven_ways_of_the_v1_guide_start_without_compiling(corpus: Path) -> None:
    said = submitted(corpus / "v1", "submit.py")
    names = ("mpi", "per_process", "local_rank", "per_node", "one_node", "lightning", "tensorflow")
    assert all(f"{name} Completed" in said for name in names), said
    logs = {
        name: "".join(file.read_text() for file in sorted((corpus / "v1/logs" / name).rglob("std_log*.txt")))
        for name in names
    }
    assert "'OMPI_COMM_WORLD_RANK': '1'" in logs["mpi"]
    assert "'RANK': '3', 'WORLD_SIZE': '4'" in logs["per_process"]
    assert "started 1 " in logs["local_rank"]
    # Without --use_env the launcher passes --local-rank; the script knows --local_rank.
    assert "started 1 " in logs["per_node"] and "'RANK': '3'" in logs["per_node"]
    assert "'LOCAL_RANK': '1'" in logs["one_node"]
    assert "LOCAL_RANK" not in logs["lightning"] and "'NODE_RANK': '1'" in logs["lightning"]
    assert '"type": "worker", "index": 1' in logs["tensorflow"]
    # Nothing was built: the Python that submits has torch.
    assert "is used as it is" in said and "building the environment" not in said
