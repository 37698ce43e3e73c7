"""A script or command together with how it is to be run."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from muster.defaults import MAX_RUN_S
from muster.sdk.environment import Environment
from muster.sdk.runconfig import DistributedConfiguration, DockerConfiguration, Named, RunConfiguration


class ScriptRunConfig:
    """What `Experiment.submit` takes. `script` and `command` exclude each other."""

    def __init__(
        self,
        source_directory: str | Path,
        script: str | None = None,
        arguments: Sequence[Any] | None = None,
        command: str | Sequence[Any] | None = None,
        compute_target: str | Named | None = None,
        environment: Environment | str | None = None,
        distributed_job_config: DistributedConfiguration | None = None,
        resume_from: Any = None,
        max_run_duration_seconds: int | None = MAX_RUN_S,
        *,
        run_config: RunConfiguration | None = None,
        docker_runtime_config: DockerConfiguration | None = None,
    ) -> None:
        self.source_directory = source_directory
        self.run_config = copy.deepcopy(run_config) if run_config is not None else RunConfiguration()
        self.script = script if script is not None else self.run_config.script
        self.arguments = arguments if arguments is not None else self.run_config.arguments
        self.command = command if command is not None else self.run_config.command
        self.distributed_job_config = distributed_job_config
        self.resume_from = resume_from
        if compute_target is not None:
            self.run_config.target = compute_target
        if environment is not None:
            self.run_config.environment = environment
        if docker_runtime_config is not None:
            self.run_config.docker = docker_runtime_config
        if run_config is None or max_run_duration_seconds != MAX_RUN_S:
            self.run_config.max_run_duration_seconds = max_run_duration_seconds

    @property
    def compute_target(self) -> str | Named:
        return self.run_config.target

    @property
    def environment(self) -> Environment | str | None:
        return self.run_config.environment
