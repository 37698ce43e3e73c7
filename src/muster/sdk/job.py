"""From a v1 configuration to a job: a pure translation."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from muster.errors import JobError
from muster.job.explain import make_spec
from muster.job.rules import IDENTIFIER
from muster.job.spec import JobSpec
from muster.sdk.data.dataset import DatasetConsumptionConfig, FileDataset, OutputFileDatasetConfig, in_datastore
from muster.sdk.data.datastore import DataPath, DataReference
from muster.sdk.environment import Environment, to_spec
from muster.sdk.notices import ignored
from muster.sdk.runconfig import (
    DistributedConfiguration,
    MpiConfiguration,
    PyTorchConfiguration,
    RunConfiguration,
    ScriptRunConfig,
    TensorflowConfiguration,
)
from muster.wire.codec import Json


def to_job(config: ScriptRunConfig, name: str) -> tuple[JobSpec, list[str]]:
    """The job of a configuration in the experiment `name`, and what the user should know about the translation."""
    run_config = config.run_config
    inputs = _Inputs()
    command = _command(config, inputs)
    for item in (*config.inputs, *_named_data(run_config)):
        inputs.reference(item)
    environment, notices = to_spec(run_config.environment)
    distribution, num_nodes = _distribution(config.distributed_job_config or run_config.distributed_job_config)
    notices += ignored("DockerConfiguration", {"arguments": run_config.docker.arguments})
    target = run_config.target
    data: dict[str, Json] = {
        "experiment_name": name,
        "code": os.fspath(config.source_directory),
        "command": command,
        "environment": environment,
        "compute": target if isinstance(target, str) else target.name,
        "resources": {"instance_count": num_nodes, "shm_size": run_config.docker.shm_size},
        "distribution": distribution,
        "inputs": inputs.declared,
        "outputs": inputs.outputs,
        "environment_variables": _variables(run_config.environment, run_config.environment_variables),
        "limits": {"timeout": run_config.max_run_duration_seconds},
    }
    return make_spec(data, "ScriptRunConfig"), notices


def _command(config: ScriptRunConfig, inputs: _Inputs) -> str | list[str]:
    if config.script is not None and config.command is not None:
        raise JobError(
            f"ScriptRunConfig has both script={config.script!r} and command={config.command!r}",
            "Give one of them: script (with arguments) or command.",
        )
    resume = _resume(config.resume_from, inputs)
    if config.command is not None:
        if config.arguments:
            raise JobError("`arguments` belong to `script`", "With `command`, write them into the command.")
        words = [config.command] if isinstance(config.command, str) else _texts("command", config.command, inputs)
        # v1 joined a list and passed it to a shell, so `"a && b".split()` works as a command line.
        return " ".join([*words, *resume])
    if config.script is None:
        raise JobError("ScriptRunConfig has neither script nor command", "Give script='train.py' or a command.")
    return ["python", _script(config), *_texts("arguments", config.arguments or [], inputs), *resume]


def _script(config: ScriptRunConfig) -> str:
    script = Path(os.fspath(config.script or ""))
    folder = Path(os.fspath(config.source_directory))
    if script.is_absolute():
        try:
            return script.relative_to(folder.absolute()).as_posix()
        except ValueError as error:
            raise JobError(
                f"the script {script} is not in the source_directory {folder}", "Give its path inside that folder."
            ) from error
    return script.as_posix()


def _texts(what: str, items: Sequence[Any], inputs: _Inputs) -> list[str]:
    """The items as text: numbers are converted, data becomes an input; each rank expands `$NAME` itself."""
    if isinstance(items, str):
        raise JobError(f"{what}={items!r} is a text; a list is wanted", f"Write {what}={items.split()!r}.")
    return [_text(what, item, inputs) for item in items]


def _text(what: str, item: Any, inputs: _Inputs) -> str:
    if isinstance(item, DatasetConsumptionConfig | FileDataset | DataPath):
        return inputs.reference(item)
    if isinstance(item, OutputFileDatasetConfig):
        return inputs.output(item)
    if isinstance(item, str | int | float | os.PathLike):
        return str(item)
    raise JobError(
        f"{what} holds {item!r} ({type(item).__name__})",
        "Pass texts, numbers, paths and datasets to a script.",
    )


class _Inputs:
    """Datasets found in the arguments, as inputs and outputs of the job."""

    def __init__(self) -> None:
        self.declared: dict[str, dict[str, str]] = {}
        self.outputs: dict[str, dict[str, str]] = {}

    def output(self, data: OutputFileDatasetConfig) -> str:
        name = data.name or f"output_{len(self.outputs)}"
        if not IDENTIFIER.fullmatch(name):
            raise JobError(f"{name!r} cannot be an output's name", "Use letters, digits and '_'.")
        self.outputs[name] = data.to_output(name)
        return f"${{{{outputs.{name}}}}}"

    def reference(self, data: DatasetConsumptionConfig | FileDataset | DataPath) -> str:
        use = _use(data)
        name = use.name or f"input_{len(self.declared)}"
        if not IDENTIFIER.fullmatch(name):
            raise JobError(f"{name!r} cannot be an input's name", "Use letters, digits and '_'.")
        self.declared[name] = use.to_input()
        return f"${{{{inputs.{name}}}}}"


def _use(data: object) -> DatasetConsumptionConfig:
    if isinstance(data, DatasetConsumptionConfig):
        return data
    if isinstance(data, FileDataset):
        return data.as_mount()
    if isinstance(data, DataPath):
        name = data.data_reference_name if isinstance(data, DataReference) else None
        return DatasetConsumptionConfig(name, in_datastore(data, is_file=None), data.mode)
    raise JobError(f"{data!r} ({type(data).__name__}) is no data", "Pass a dataset, or datastore.path(…).as_mount().")


def _named_data(run_config: RunConfiguration) -> list[DatasetConsumptionConfig]:
    """The data in `run_config.data` and `run_config.data_references` of older scripts, by name."""
    given = {**run_config.data, **run_config.data_references}
    return [_use(item).as_named_input(name) for name, item in given.items()]


def _resume(resume_from: Any, inputs: _Inputs) -> list[str]:
    """The argument `--resume-from`, in which v1 passes the folder to resume from."""
    if resume_from is None:
        return []
    if isinstance(resume_from, str | os.PathLike):
        resume_from = FileDataset(os.fspath(resume_from))
    if isinstance(resume_from, FileDataset):
        resume_from = resume_from.as_named_input("resume_from")
    if not isinstance(resume_from, DatasetConsumptionConfig):
        raise JobError(
            f"resume_from={resume_from!r} ({type(resume_from).__name__}) cannot be resumed from",
            "Give a local folder or a dataset; download a run's files first with run.download_files().",
        )
    return ["--resume-from", inputs.reference(resume_from)]


def _distribution(config: DistributedConfiguration | None) -> tuple[dict[str, Json] | None, int]:
    """The distribution of a job file, and the number of nodes."""
    if config is None:
        return None, 1
    if isinstance(config, MpiConfiguration):
        per_node = _count("process_count_per_node", config.process_count_per_node)
        nodes = _count("node_count", config.node_count)
        return {"type": "mpi", "process_count_per_instance": per_node}, nodes
    if isinstance(config, TensorflowConfiguration):
        workers = _count("worker_count", config.worker_count)
        servers = _count("parameter_server_count", config.parameter_server_count, least=0)
        roles = {"chief": config.chief, "evaluator": config.evaluator}
        counts = {"worker_count": workers, "parameter_server_count": servers}
        return {"type": "tensorflow", **counts, **{role: True for role, is_there in roles.items() if is_there}}, workers
    if isinstance(config, PyTorchConfiguration):
        nodes = _count("node_count", config.node_count)
        return {
            "type": "pytorch",
            "process_count_per_instance": _per_node(config.process_count, nodes),
            "communication_backend": str(config.communication_backend).lower(),
        }, nodes
    raise JobError(
        f"distributed_job_config={config!r} is not known",
        "Use PyTorchConfiguration, MpiConfiguration or TensorflowConfiguration.",
    )


def _per_node(process_count: int | None, num_nodes: int) -> int | None:
    if process_count is None:
        return None
    total = _count("process_count", process_count)
    if total % num_nodes:
        below, above = total // num_nodes * num_nodes, (total // num_nodes + 1) * num_nodes
        fitting = f"{below} or {above}" if below else str(above)
        raise JobError(
            f"process_count={total} does not divide over node_count={num_nodes} nodes",
            f"process_count is the total; with {num_nodes} nodes use {fitting}.",
        )
    return total // num_nodes


def _count(name: str, value: Any, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise JobError(f"{name}={value!r} is not a count", f"Give a whole number of at least {least}.")
    return value


def _variables(environment: Environment | str | None, own: dict[str, str]) -> dict[str, str]:
    below = environment.environment_variables if isinstance(environment, Environment) else {}
    return {name: str(value) for name, value in {**below, **own}.items()}
