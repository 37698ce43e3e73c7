"""Experiments: where runs are submitted and found."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from muster.client.importing.own_runs import children, started_run
from muster.client.provenance import record
from muster.client.submit import submit, submit_many
from muster.errors import JobError
from muster.job.check import check_files
from muster.job.spec import JobSpec
from muster.sdk import keyvault
from muster.sdk.connected import Connected
from muster.sdk.job import to_job
from muster.sdk.notices import tell
from muster.sdk.run import Run
from muster.sdk.runconfig import ScriptRunConfig
from muster.wire.codec import Json
from muster.wire.node.plan import PlanView
from muster.wire.runs import RunView


class Experiment:
    """A group of runs."""

    def __init__(self, workspace: Connected, name: str) -> None:
        self.workspace = workspace
        self.name = name

    def submit(self, config: ScriptRunConfig, tags: Mapping[str, Json] | None = None, **kwargs: Any) -> Run:
        """Submit a script; returns at once with its run.

        >>> config = ScriptRunConfig(source_directory=".", script="train.py", compute_target="local")
        >>> Experiment(workspace, "digits").submit(config, tags={"team": "vision"}).experiment
        Experiment(name='digits')
        """
        spec, notices = self._job(config, tags, kwargs.get("display_name"))
        view = submit(self.workspace.client, spec, Path.cwd(), python=self._python, notices=notices)
        return self._told([spec], [view])[0]

    def submit_many(self, configs: Sequence[ScriptRunConfig], tags: Mapping[str, Json] | None = None) -> list[Run]:
        """Submit many scripts in one call, all or none; on Slurm those with the same resources are one job array.

        >>> same = {"source_directory": ".", "script": "train.py", "compute_target": "local"}
        >>> configs = [ScriptRunConfig(**same, arguments=["--seed", seed]) for seed in range(3)]
        >>> runs = Experiment(workspace, "digits").submit_many(configs, tags={"array": "seeds"})
        >>> [run.get_tags() for run in runs]
        [{'array': 'seeds'}, {'array': 'seeds'}, {'array': 'seeds'}]
        """
        made = [self._job(config, tags) for config in configs]
        if not made:
            return []
        specs = [spec for spec, _ in made]
        notices = list(dict.fromkeys(text for _, said in made for text in said))
        views = submit_many(self.workspace.client, specs, Path.cwd(), python=self._python, notices=notices)
        return self._told(specs, views)

    def _job(
        self, config: ScriptRunConfig, tags: Mapping[str, Json] | None, title: str | None = None
    ) -> tuple[JobSpec, list[str]]:
        """The job of a configuration, and notices."""
        if not isinstance(config, ScriptRunConfig):
            raise JobError(
                f"a {type(config).__name__} cannot be submitted",
                "Experiment.submit takes a ScriptRunConfig, Experiment.submit_many a list of them.",
            )
        spec, notices = to_job(config, self.name)
        if tags or title is not None:
            texts = {str(key): str(value) for key, value in (tags or {}).items()}
            spec = spec.model_copy(update={"tags": texts, "display_name": title})
        if secrets := keyvault.variables(self.workspace.client):
            spec = spec.model_copy(update={"environment_variables": {**secrets, **spec.environment_variables}})
        return spec, notices

    @property
    def _python(self) -> str | None:
        """This machine's interpreter; None with a team's server, whose nodes do not have it."""
        return sys.executable if self.workspace.ref.server is None else None

    def _told(self, specs: Sequence[JobSpec], views: Sequence[RunView]) -> list[Run]:
        """The runs, after printing their notices and recording where they were submitted from."""
        code = specs[0].code
        folder = Path.cwd() / code if code else Path.cwd()
        record(self.workspace.client, [view.id for view in views], folder, [sys.executable, *sys.argv])
        tell(*dict.fromkeys(text for view in views for text in view.notices))
        return [Run._of(self.workspace, view) for view in views]

    @property
    def id(self) -> str:
        """The experiment's name, which is unique."""
        return self.name

    def get_portal_url(self) -> str:
        """The experiment's page in the portal; `muster portal` opens it signed in."""
        return f"{self.workspace.client.portal_url()}/portal/?experiment={quote(self.name)}"

    def dry_run(self, config: ScriptRunConfig) -> PlanView:
        """What every rank would run, on nodes like those of the compute target; nothing is started.

        `print(describe(plan))` with `muster.launch.describe.describe` shows it as `muster run --dry-run` does.
        """
        spec, notices = to_job(config, self.name)
        tell(*notices, *check_files(spec, Path.cwd()))
        return self.workspace.client.plan(spec, sys.executable if spec.environment is None else "python")

    def get_runs(
        self,
        type: str | None = None,
        tags: str | Mapping[str, str] | None = None,
        properties: Any = None,
        include_children: bool = False,
    ) -> Iterator[Run]:
        """The experiment's runs, newest first; `tags` is a tag name or a mapping that they must have.

        With `include_children`, child runs are included.

        >>> [run.status for run in Experiment(workspace, "examples").get_runs()]
        ['Completed']
        """
        wanted = {tags: None} if isinstance(tags, str) else dict(tags or {})
        made: frozenset[str] | None = frozenset() if include_children else None
        for view in self.workspace.client.each_run(experiment=self.name):
            if made is None and not view.num_ranks:
                # Child runs have no ranks.
                made = frozenset(children(self.workspace.client, self.name))
            if made and view.id in made:
                continue
            if all(key in view.tags and value in (None, view.tags[key]) for key, value in wanted.items()):
                yield Run._of(self.workspace, view)

    @staticmethod
    def list(workspace: Connected) -> list[Experiment]:
        """Every experiment that has a run."""
        names = dict.fromkeys(view.experiment for view in workspace.client.each_run())
        return [Experiment(workspace, name) for name in names]

    def start_logging(self, *args: Any, snapshot_directory: Any = None, display_name: str = "", **kwargs: Any) -> Run:
        """Start a run without ranks that this process logs to; `complete()`, or the end of a `with`, ends it.

        >>> run = Experiment(workspace, "by hand").start_logging()
        >>> run.log("alpha", 0.03)
        >>> run.complete()
        """
        run_id = started_run(self.workspace.client, self.name, display_name)
        return Run.get(self.workspace, run_id)

    def __repr__(self) -> str:
        return f"Experiment(name={self.name!r})"
