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
    for folder in ("v1", "v2", "assets", "batchai", "jobs", "mlflow", "notebooks"):
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
    assert "epochs 2; schedule constant; rose.txt" in said and "status: Completed" in said
    assert "kept: {'kind': 'changed', 'looked': 'at'} with the SDK command many" in said and "[]" in said
    assert "output: model_output" in said and "page: http" in said and "jobs: 1" in said
    assert (corpus / "v2/downloaded/named-outputs/model_output/model_0.txt").read_text() == "weights"


# Data that lies in somebody's cloud is replaced; nothing else is.
INPUTS = {
    "basics/asset_input.yml": "table=jobs/data/flowers.csv",
    "basics/web_input.yml": "table=jobs/data/flowers.csv",
    "basics/blob_folder_input.yml": "folder=jobs/data",
    "basics/datastore_input.yml": "folder=jobs/data",
    "nyc-prep/component.yml": "raw_data=jobs/data",
}
# These need packages that the Python of the tests lacks, or an image.
OTHERS = ("basics/mlflow.yml", "basics/interactive.yml", "basics/notebook.yml")
WITHOUT_PACKAGES = ("dask/job.yml", "includes/train.yml", "mpi-plain/job.yml", "nyc-prep/component.yml")


def test_job_files_in_the_shapes_of_public_ones_complete(corpus: Path) -> None:
    jobs = [f"basics/{file.name}" for file in sorted((corpus / "jobs/basics").glob("*.y*ml"))]
    failed = {}
    for job in [*(job for job in jobs if job not in OTHERS), *WITHOUT_PACKAGES]:
        given = ("--input", INPUTS[job]) if job in INPUTS else ()
        command = [sys.executable, "-m", "muster", "run", f"jobs/{job}", "--compute", "local", "--environment", "none"]
        done = subprocess.run([*command, *given], cwd=corpus, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            failed[job] = done.stdout + done.stderr
    assert not failed
    assert muster(corpus, "data", "show", "cleaned_flowers").count("cleaned_flowers") >= 1


def test_files_of_previews_and_what_jobs_wrote_as_inputs(corpus: Path) -> None:
    options = ("--compute", "local", "--environment", "none")
    for name in ("data_path", "several_processes", "folder", "dataset", "dockerfile"):
        assert "counted 90 rows" in muster(corpus, "run", f"jobs/preview/{name}.yml", *options)
    given = ("--input", "table=jobs/data", "--name", "counted")
    assert "counted 90 rows" in muster(corpus, "run", "jobs/preview/component.yml", *options, *given)
    job = corpus / "after.yml"
    for address in ("outputs/model", "outputs/artifacts/paths/outputs/model/"):
        job.write_text(
            "command: cat ${{inputs.rows}}/rows.txt && echo ' rows were counted'\n"
            f"inputs: {{rows: {{type: uri_folder, path: azureml://jobs/counted/{address}}}}}\n"
        )
        assert "90 rows were counted" in muster(corpus, "run", str(job))


def test_files_of_data_environments_and_datastores(corpus: Path) -> None:
    folder = corpus / "assets"
    assert "azureml:flowers-file:1" in muster(folder, "data", "create", "--file", "data_file.yml")
    assert "azureml:flowers-folder:1" in muster(folder, "data", "create", "-f", "data_folder_older.yml")
    assert "image-and-packages" in muster(folder, "env", "register", "environment.yml")
    said = muster(folder, "datastore", "create", "--file", "blob.yml")
    assert "flower_blobs" in said and "Zmxvd2Vycy" not in said
    assert "datastore share_too" in muster(folder, "datastore", "create", "share_too", "--file", "share.yml")


def test_scripts_of_notebooks_complete(corpus: Path) -> None:
    folder = corpus / "notebooks"
    said = {script.name: submitted(folder, script.name) for script in sorted(folder.glob("*.py"))}
    assert "[0.1, 0.2]" in said["children.py"] and "runs [True] 3" in said["children.py"]
    assert "kept as numbers-tabular" in said["tabular.py"]
    assert (
        "local AmlCompute True Succeeded" in said["workspace_calls.py"]
        and "the same: True" in said["workspace_calls.py"]
        and "found again True" in said["workspace_calls.py"]
    )
    assert "Completed {'alpha': 0.03" in said["interactive.py"] and "outputs/model.txt" in said["interactive.py"]
    assert "['/numbers.csv']" in said["outputs.py"] and "by input ['/numbers.csv']" in said["tabular.py"]
    assert "by name ['/numbers.csv']" in said["tabular.py"]
    assert "[rank 1] trained 2" in said["estimator_pytorch.py"]
    assert "rows 4 said" in said["estimator_inputs.py"] and "digits_model" in said["estimator_generic.py"]
    assert "0.7 [0.5, 0.75, 0.875]" in said["train_on_amlcompute.py"]
    assert "secret has 14 14" in said["train_on_amlcompute.py"] and "ScikitLearn" in said["train_on_amlcompute.py"]
    assert "stored ['/test.csv', '/train.csv']" in said["several_files.py"]
    assert "files ['test.csv', 'train.csv']" in said["several_files.py"]
    assert (folder / "got-one/named-outputs/kept/numbers.csv").exists()
    assert "files ['numbers.csv']" in said["upload_again.py"] and "kept in ['/said.txt']" in said["upload_again.py"]
    assert "referenced ['numbers.csv']" in said["data_reference.py"]
    assert "components are run, not registered" in said["v2_component.py"]
    # Whichever script made it first said how large it is.
    assert "cpu-cluster of type amlcompute, the compute size is Standard_D" in said["v2_command.py"]


def test_files_of_batch_ai(corpus: Path) -> None:
    said = muster(corpus / "batchai", "run", "job.json")
    assert "rank 0 url tcp://127.0.0.1:" in said and "rank 1 url tcp://127.0.0.1:" in said
    said = muster(corpus / "batchai", "run", "mpirun.json")
    assert said.count("prepared") == 2 and "distributed True" in said
    for name in ("custom_mpi", "custom_toolkit", "chainer", "caffe2"):
        assert "Completed" in muster(corpus / "batchai", "run", f"{name}.json")
    said = muster(corpus / "batchai", "run", "tensorflow_distributed.json", "--environment", "none")
    assert "worker 1 2 1" in said and "ps 0 2 1" in said
    assert "the script beside the file ran" in muster(corpus / "batchai", "run", "beside.json")


def test_a_project_of_mlflow(corpus: Path) -> None:
    said = muster(corpus, "run", "mlflow", "--environment", "none", "--input", "alpha=0.5")
    assert "trained on 2 rows with alpha 0.5 and l1_ratio 0.1" in said


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
