"""Submits a job, relative to a folder, as a run."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from muster.client.api import Client
from muster.client.imports import imported_modules, lacking
from muster.client.snapshot import FileChanged, Sent, push, scan, with_includes
from muster.environments import names
from muster.environments.current import installed
from muster.environments.files import with_contents
from muster.errors import JobError
from muster.job.check import check_files, local_path
from muster.job.parts import EnvironmentSpec, Input, Mpi, Scalar
from muster.job.rules import SNAPSHOT, is_address, is_snapshot
from muster.job.spec import JobSpec
from muster.wire.environments import EnvironmentView
from muster.wire.runs import RunView, Submission

_TRIES = 3


class SentCode(NamedTuple):
    """A snapshot that the server has, with notices about it."""

    digest: str
    notices: tuple[str, ...]


def submit(
    client: Client,
    spec: JobSpec,
    base_dir: Path | str,
    *,
    python: str | None = sys.executable,
    key: str | None = None,
    notices: Sequence[str] = (),
    sent: SentCode | None = None,
    progress: Sent = lambda done, total: None,
) -> RunView:
    """Check the job's files, upload its code unless it was `sent` already, submit it; returns the run's view."""
    made = gathered(client, spec, base_dir, python=python, notices=notices, sent=sent, progress=progress)
    return client.submit(made.spec, made.snapshot, key, python, made.notices, made.packages)


def submit_many(
    client: Client,
    specs: Sequence[JobSpec],
    base_dir: Path | str,
    *,
    python: str | None = sys.executable,
    notices: Sequence[str] = (),
    progress: Sent = lambda done, total: None,
) -> list[RunView]:
    """Submit many jobs in one call; code and environments that several share are checked and uploaded once."""
    base = Path(base_dir).resolve()
    firsts: dict[str, Gathered] = {}
    submissions = []
    for spec in specs:
        same = spec.model_dump_json(include=_IN_COMMON)
        if same not in firsts:
            firsts[same] = gathered(client, spec, base, python=python, notices=notices, progress=progress)
            made = firsts[same]
        else:
            made = _like(firsts[same], spec, base)
        submissions.append(
            Submission(
                uuid.uuid4().hex,
                made.spec.model_dump(mode="json"),
                made.snapshot,
                python,
                made.packages,
                notices=tuple(made.notices),
            )
        )
    return client.submit_many(submissions)


_IN_COMMON = {"environment", "code", "additional_includes", "distribution"}
"""The fields of a job that determine what is checked and uploaded with it."""


def _like(first: Gathered, spec: JobSpec, base: Path) -> Gathered:
    """The gathered form of a job with the same code and environment as a gathered one."""
    notices = list(dict.fromkeys([*first.notices, *check_files(spec, base)]))
    described = absolute_inputs(spec.model_copy(update={"environment": first.spec.environment}), base)
    return first._replace(spec=described, notices=notices)


class Gathered(NamedTuple):
    """A job with what the server must know about this machine, its code uploaded."""

    spec: JobSpec
    snapshot: str | None
    notices: list[str]
    packages: dict[str, str] | None


def gathered(
    client: Client,
    spec: JobSpec,
    base_dir: Path | str,
    *,
    python: str | None = sys.executable,
    notices: Sequence[str] = (),
    sent: SentCode | None = None,
    progress: Sent = lambda done, total: None,
) -> Gathered:
    """Check a job's files and upload its code: everything before the submission."""
    base = Path(base_dir).resolve()
    all_notices = [*notices, *check_files(spec, base)]
    spec, about_imports = with_imports(spec, base)
    all_notices += about_imports
    packages, about_packages = packages_here(spec, base, python)
    all_notices += about_packages
    described = with_contents(absolute_inputs(with_build(client, spec, base), base), base)
    snapshot = None
    if spec.code is not None or spec.additional_includes:
        snapshot, about_code = sent or send_code(client, *code_of(spec, base), progress)
        all_notices += about_code
    return Gathered(described, snapshot, list(dict.fromkeys(all_notices)), packages)


def with_imports(spec: JobSpec, base_dir: Path) -> tuple[JobSpec, list[str]]:
    """Choose by the code's imports what an Azure ML name stands for; a compiled Horovod only in an MPI job."""
    name = spec.environment
    if not isinstance(name, str) or spec.code is None or not names.is_azure(name):
        return spec, []
    found = names.with_imports(name, imported_modules(base_dir / spec.code), isinstance(spec.distribution, Mpi))
    if found is None:
        return spec, []
    other, module = found
    compiled = ", which is compiled once" if module == "horovod" else ""
    notice = f"environment {name}: the code imports {module}, so it stands for {other}{compiled}"
    return spec.model_copy(update={"environment": other}), [notice]


def with_build(client: Client, spec: JobSpec, base_dir: Path) -> JobSpec:
    """The same job with the build folder of its image uploaded: nodes build from its current content."""
    environment = spec.environment
    if not isinstance(environment, EnvironmentSpec) or environment.build is None:
        return spec
    build = environment.build
    if is_snapshot(build.path):
        return spec
    folder = (base_dir / Path(build.path).expanduser()).resolve()
    dockerfile = build.dockerfile_path or "Dockerfile"
    if not (folder / dockerfile).is_file():
        hint = "Correct build.path or build.dockerfile_path."
        raise JobError(f"environment.build: there is no file {dockerfile} in {folder}", hint)
    # The container engine has an ignore file of its own.
    digest = push(client, scan(folder, is_code=False))
    sent = build.model_copy(update={"path": f"{SNAPSHOT}:{digest}"})
    return spec.model_copy(update={"environment": environment.model_copy(update={"build": sent})})


def register_environment(client: Client, name: str, spec: JobSpec, base_dir: Path) -> EnvironmentView:
    """Register a job's environment under a name, with the contents of the files that it refers to."""
    environment = with_contents(with_build(client, spec, base_dir), base_dir).environment
    assert isinstance(environment, EnvironmentSpec)
    content = environment.model_dump(mode="json", exclude_defaults=True, exclude={"name"})
    return client.register_environment(name, content)


def packages_here(spec: JobSpec, base_dir: Path, python: str | None) -> tuple[dict[str, str] | None, list[str]]:
    """This Python's packages, where it may stand in for the environment that the job names; and notices."""
    environment = spec.environment
    name = environment if isinstance(environment, str) else environment.name if environment is not None else None
    is_named = isinstance(environment, str) or (environment is not None and environment.is_a_name)
    if not is_named or name is None or python != sys.executable:
        return None, []
    missing = lacking(name, base_dir / spec.code) if spec.code is not None else []
    if not missing:
        return installed(), []
    notice = (
        f"the code imports {', '.join(missing)}, which the Python that submits does not have, so that does not stand in"
    )
    return {}, [f"environment {name}: {notice}"]


def absolute_inputs(spec: JobSpec, base_dir: Path) -> JobSpec:
    """The same job with local input paths made absolute: the server does not know the job file's folder."""
    inputs = {name: _absolute(value, base_dir) for name, value in spec.inputs.items()}
    return spec.model_copy(update={"inputs": inputs})


def _absolute(value: Scalar | Input, base_dir: Path) -> Scalar | Input:
    if not isinstance(value, Input) or value.path is None or not is_local(value.path):
        return value
    return value.model_copy(update={"path": str((base_dir / Path(value.path).expanduser()).resolve())})


def is_local(path: str) -> bool:
    """Whether a path is a file system path, not a URI such as `azureml://…` or `azureml:name`."""
    return not is_address(path)


def code_of(spec: JobSpec, base_dir: Path) -> tuple[Path | None, tuple[Path, ...]]:
    """The folder of a job's code, and its additional includes."""
    includes = tuple(local_path(path, base_dir) for path in spec.additional_includes)
    return None if spec.code is None else base_dir / spec.code, includes


def send_code(
    client: Client, folder: Path | None, includes: Sequence[Path] = (), progress: Sent = lambda done, total: None
) -> SentCode:
    """Upload a job's code in its current state."""
    for attempt in range(1, _TRIES + 1):
        manifest = with_includes(None if folder is None else scan(folder), includes)
        try:
            return SentCode(push(client, manifest, progress), manifest.notices)
        except FileChanged:
            if attempt == _TRIES:
                raise
    raise AssertionError("unreachable")
