"""Run configurations in files: those of Azure ML are read, and what is saved comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import JobError, NotFound
from muster.sdk.conda import CondaDependencies
from muster.sdk.environment import Environment
from muster.sdk.runconfig import MpiConfiguration, PyTorchConfiguration, RunConfiguration

FILE = Path(__file__).parents[2] / "corpus" / "assets" / "gpu.runconfig"


def test_a_file_of_azure_ml() -> None:
    config = RunConfiguration.load(FILE)
    assert (config.script, config.arguments, config.target) == ("train.py", ["--epochs", 2], "gpu-cluster")
    assert (
        config.max_run_duration_seconds == 600 and config.environment_variables["EXAMPLE_VARIABLE"] == "EXAMPLE_VALUE"
    )
    distributed = config.distributed_job_config
    assert isinstance(distributed, PyTorchConfiguration)
    assert (distributed.process_count, distributed.node_count) == (4, 2)
    environment = config.environment
    assert isinstance(environment, Environment) and environment.docker.enabled
    assert "mlflow" in environment.python.packages().pip_packages


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    packages = CondaDependencies.create(pip_packages=["six==1.17.0"], python_version="3.12")
    config = RunConfiguration("train.py", ["--rate", 0.1], communicator="OpenMpi", conda_dependencies=packages)
    config.node_count, config.mpi.process_count_per_node = 2, 3
    config.environment_variables = {"A_b": "1"}
    file = config.save(tmp_path, "mine")
    assert Path(file) == tmp_path / ".azureml" / "mine.runconfig"
    again = RunConfiguration.load(tmp_path, "mine")
    distributed = again.distributed_job_config
    assert isinstance(distributed, MpiConfiguration)
    assert (distributed.process_count_per_node, distributed.node_count) == (3, 2)
    assert (again.script, again.arguments, again.environment_variables) == ("train.py", ["--rate", 0.1], {"A_b": "1"})
    assert isinstance(again.environment, Environment)
    assert again.environment.python.packages().as_dict() == packages.as_dict()


def test_one_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"other\.runconfig"):
        RunConfiguration.load(tmp_path, "other")
    with pytest.raises(JobError, match="no name"):
        RunConfiguration().save(tmp_path)
