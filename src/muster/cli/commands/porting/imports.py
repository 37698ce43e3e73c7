"""`muster import`: batch scripts as job files, and records of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from muster.cli.commands.run import start
from muster.cli.commands.tracking.importing import mlflow
from muster.cli.console import notice, say
from muster.cli.options import argument, option, switch
from muster.errors import JobError, UserError
from muster.job.explain import make_spec
from muster.job.jobfile import LoadedJob
from muster.job.translation.job import Translated
from muster.job.translation.sbatch import from_sbatch

_MOST_BYTES = 1 << 20


def sbatch(
    file: Annotated[Path, argument("FILE", "A batch script of Slurm, with its #SBATCH lines.")],
    to: Annotated[Path | None, option("FILE", "Write the job file there (default: print it).", "--to")] = None,
    run: Annotated[bool, switch("Run the job, and follow it to its end.", "--run")] = False,
) -> None:
    """Turn a Slurm batch script into a job file.

    Nodes, tasks, GPUs, the time limit and variables are taken over; what Muster does itself is left out with a
    notice, and what has no meaning here is refused with its line. Slurm is not needed for it. A file that is there
    is never written over.

    \b
    Examples:
      muster import sbatch train.sbatch
      muster import sbatch train.sbatch --to bert.yml
      muster import sbatch train.sbatch --run
    """
    job = from_sbatch(_text(file), file.name)
    text = job.text(file.name)
    loaded = _checked(job, file)
    for item in job.notices:
        notice(item)
    if to is not None:
        _write(to, text)
        say(f"written to {to}; run it with `muster run {to}`")
    elif run:
        say(text)
    else:
        print(text, end="")
    if run:
        raise typer.Exit(start(loaded, detach=False, quiet=False, as_json=False))


def _text(file: Path) -> str:
    with file.open("rb") as stream:
        data = stream.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES or b"\0" in data:
        raise UserError(f"{file} is not a batch script", "Give a text file that begins with #! and #SBATCH lines.")
    return data.decode(errors="replace")


def _checked(job: Translated, file: Path) -> LoadedJob:
    """Validate now what the job file would be refused for later."""
    try:
        spec = make_spec({**job.document(), "code": str(file.resolve().parent)})
    except JobError as error:
        raise JobError(f"{file.name} does not make a job: {error.message}", error.hint) from error
    return LoadedJob(spec=spec, notices=(), base_dir=file.resolve().parent)


def _write(target: Path, text: str) -> None:
    try:
        with target.open("x") as stream:
            stream.write(text)
    except FileExistsError as error:
        raise UserError(f"{target} is there already", "Give another name: nothing is written over.") from error


COMMANDS = (sbatch, mlflow)
