"""`ml_client.jobs`: submitted jobs, as v2 scripts see them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from muster.client.storage import Storage
from muster.client.submit import submit
from muster.errors import JobError, UserError
from muster.host.files import is_safe_path
from muster.job.spec import JobSpec
from muster.ml.command import Command
from muster.ml.operations import Done, Operations
from muster.ml.values import Output, Section, section
from muster.sdk.notices import tell
from muster.sdk.run import Run
from muster.sdk.workspace import Workspace
from muster.storage.addresses import parse_address
from muster.wire.codec import Json

_LOOK_S = 0.2


@dataclass(frozen=True)
class StudioPage:
    """The page that shows a job."""

    endpoint: str
    status: str = "Running"
    type: str = "Studio"


@dataclass(frozen=True)
class Service:
    """A service of a job; `endpoint` is the command that reaches it."""

    type: str
    endpoint: str
    port: int | None


@dataclass(frozen=True)
class CreationContext:
    """When a job was submitted, and by whom."""

    created_at: datetime
    created_by: str
    created_by_type: str = "User"


class Job:
    """A submitted job, as v2 scripts see it; the values of its job file are attributes under their keys."""

    type = "command"

    def __init__(self, run: Run) -> None:
        self.run = run
        self.name = run.id
        self.experiment_name = run.experiment.name
        # Changes to these three are stored by `create_or_update`.
        self.display_name = run.display_name
        self.tags = run.tags
        self.description = run.description

    def __getattr__(self, name: str) -> Any:
        if name not in JobSpec.model_fields:
            raise AttributeError(f"a submitted job has no {name!r}")
        return section(self._spec(name))

    @property
    def creation_context(self) -> CreationContext:
        view = self.run.workspace.client.run(self.name)
        return CreationContext(datetime.fromtimestamp(view.created_at, UTC), view.submitted_by or "")

    @property
    def status(self) -> str:
        """The current state."""
        return self.run.get_status()

    @property
    def studio_url(self) -> str:
        """The address of the job's page in the portal."""
        return self.run.get_portal_url()

    @property
    def services(self) -> dict[str, StudioPage]:
        return {"Studio": StudioPage(self.studio_url)}

    @property
    def id(self) -> str:
        return self.name

    @property
    def properties(self) -> dict[str, str]:
        return self.run.properties

    @property
    def compute(self) -> str | None:
        """The cluster that the job file names."""
        return next((str(value) for value in [self._spec("compute")] if value), None)

    @property
    def inputs(self) -> Mapping[str, Json]:
        """The `inputs` of the job file."""
        found = self._spec("inputs")
        return Section(found if isinstance(found, Mapping) else {})

    @property
    def outputs(self) -> Mapping[str, Output]:
        """The job's outputs, each with an address that another job can take as an input."""
        found = self._spec("outputs")
        named = found if isinstance(found, Mapping) else {}
        address = f"azureml://jobs/{self.name}/outputs"
        return Section({name: _output(item, f"{address}/{name}") for name, item in named.items()})

    def _spec(self, key: str) -> Json:
        return self.run.workspace.client.run(self.name).spec.get(key)

    def __repr__(self) -> str:
        return f"Job(name={self.name!r}, status={self.run.status!r})"


@dataclass(frozen=True)
class Validation:
    """The answer of `jobs.validate`."""

    error_messages: str

    @property
    def passed(self) -> bool:
        return not self.error_messages


class Ending(Done):
    """A job that is being cancelled: its ranks get half a minute to end."""

    def __init__(self, run: Run) -> None:
        super().__init__(None)
        self._run = run

    def result(self, timeout: float | None = None) -> None:
        """Wait until the job has ended."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.done():
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"{self._run.id} has not ended after {timeout:g} s")
            time.sleep(_LOOK_S)

    def wait(self, timeout: float | None = None) -> None:
        self.result(timeout)

    def done(self) -> bool:
        return self._run.done()


class Jobs(Operations):
    """`ml_client.jobs`."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def create_or_update(
        self,
        job: Command | Job,
        *,
        description: str | None = None,
        compute: str | None = None,
        tags: Mapping[str, Any] | None = None,
        experiment_name: str | None = None,
        **kwargs: Any,
    ) -> Job:
        """Submit a job and return at once; for a submitted job, store its current tags, title and description."""
        if isinstance(job, Job):
            job.description = job.description if description is None else description
            return self._update(job, tags or {})
        if not isinstance(job, Command):
            raise JobError(f"a {type(job).__name__} is not a job", "Make one with command() or load_job().")
        changes = {"description": description, "compute": compute, "tags": tags, "experiment_name": experiment_name}
        given = {name: value for name, value in changes.items() if value is not None}
        loaded = Command({**job.values, **given}, job.base_dir).checked()
        python = sys.executable if self._workspace.ref.server is None else None
        client = self._workspace.client
        view = submit(client, loaded.spec, loaded.base_dir, python=python, notices=loaded.notices)
        tell(*view.notices)
        return Job(Run._of(self._workspace, view))

    def _update(self, job: Job, tags: Mapping[str, Any]) -> Job:
        wanted = {str(key): str(value) for key, value in {**job.tags, **tags}.items()}
        gone = dict.fromkeys(key for key in job.run.get_tags() if key not in wanted)
        self._workspace.client.update_run(
            job.name, tags={**wanted, **gone}, display_name=job.display_name, description=job.description
        )
        return self.get(job.name)

    def get(self, name: str) -> Job:
        return Job(Run.get(self._workspace, name))

    def list(
        self, *, parent_job_name: str | None = None, max_results: int | None = None, **kwargs: Any
    ) -> Iterator[Job]:
        """All jobs, or the child jobs of one, newest first; at most `max_results`."""
        if parent_job_name is not None:
            return islice(map(Job, self.get(parent_job_name).run.get_children()), max_results)
        found = (Job(Run._of(self._workspace, view)) for view in self._workspace.client.each_run())
        return islice(found, max_results)

    def stream(self, name: str) -> None:
        """Print the job's output until it ends; a failed job raises RunFailed with its verdict."""
        self.get(name).run.wait_for_completion(show_output=True)

    def show_services(self, name: str, node_index: int = 0) -> dict[str, Service]:
        """The services of a job, each with the command that reaches it; they are on the node of rank 0."""
        if node_index:
            raise JobError(
                f"node_index={node_index}: services are only on the node of rank 0",
                "Leave node_index out; `muster shell RUN --rank N` reaches other nodes.",
            )
        job = self.get(name)
        said = job._spec("services")
        found = said if isinstance(said, Mapping) else {}
        return {key: _service(job.name, key, item) for key, item in found.items()}

    def begin_cancel(self, name: str, **kwargs: Any) -> Done:
        run = self.get(name).run
        run.cancel()
        return Ending(run)

    def download(
        self, name: str, *, download_path: str | Path = ".", output_name: str | None = None, all: bool = False
    ) -> None:
        """Download the job's files into `artifacts/`, or one output into `named-outputs/NAME/`; `all`: both."""
        run, target = self.get(name).run, Path(download_path)
        files = run.get_file_names()
        outputs = [output_name] if output_name else sorted(self._outputs(run)) if all else []
        elsewhere = self._in_datastores(run, outputs, target)
        if output_name and not elsewhere and not any(_is_below(file, output_name) for file in files):
            raise UserError(f"{run.id} has no output {output_name!r}", f"It has: {', '.join(self._outputs(run))}.")
        for file in files:
            if not is_safe_path(file):
                raise UserError(f"the file name {file!r} leaves the target folder")
            owner = next((output for output in outputs if _is_below(file, output)), None)
            if owner is not None:
                inner = file.removeprefix(f"outputs/{owner}").lstrip("/") or owner
                self._workspace.client.download(run.id, file, target / "named-outputs" / owner / inner)
            elif not output_name:
                self._workspace.client.download(run.id, file, target / "artifacts" / file)

    def validate(self, job: Command, **kwargs: Any) -> Validation:
        """Check a job without submitting it."""
        try:
            job.checked()
        except JobError as error:
            return Validation(str(error.message))
        return Validation("")

    def archive(self, name: str) -> None:
        """Kept for v2 scripts: runs stay until `muster rm` or `muster gc`."""

    def restore(self, name: str) -> None:
        """Kept for v2 scripts, as `archive` is."""

    def _in_datastores(self, run: Run, outputs: Sequence[str], target: Path) -> bool:
        """Download the outputs that are in a datastore; returns whether there was one."""
        spec = self._workspace.client.run(run.id).spec.get("outputs")
        storage, found = Storage(self._workspace.client.calls), False
        for name in outputs:
            item = spec.get(name) if isinstance(spec, dict) else None
            path = item.get("path") if isinstance(item, dict) else None
            location = parse_address(path) if isinstance(path, str) else None
            if location is not None and location.kind == "datastore":
                storage.download_path(location.store, location.path, target / "named-outputs" / name)
                found = True
        return found

    def _outputs(self, run: Run) -> Sequence[str]:
        spec = self._workspace.client.run(run.id).spec
        declared = spec.get("outputs")
        return [*declared] if isinstance(declared, dict) else []


def _service(job: str, name: str, item: Json) -> Service:
    said = item if isinstance(item, Mapping) else {}
    port = said.get("port")
    return Service(str(said.get("type") or ""), f"muster forward {job} {name}", port if isinstance(port, int) else None)


def _output(item: Json, address: str) -> Output:
    """An output with the path that the job file gives, or its address in the run."""
    said = item if isinstance(item, Mapping) else {}
    path = said.get("path")
    return Output(type=str(said.get("type") or "uri_folder"), path=path if isinstance(path, str) else address)


def _is_below(file: str, output: str) -> bool:
    return file == f"outputs/{output}" or file.startswith(f"outputs/{output}/")
