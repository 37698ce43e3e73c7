"""`muster run`: submit a job and follow it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import indent
from typing import Annotated, Any

import typer

from muster.cli.arrays import TAG, Array, array_name, member, parse_array
from muster.cli.console import notice, say
from muster.cli.interrupts import submitted
from muster.cli.lazy import find
from muster.cli.options import Json, argument, option, print_result, seconds_of, switch
from muster.cli.overrides import Overrides, is_job_file, parse_env, parse_pairs, script_job, with_overrides
from muster.client.api import Client
from muster.client.connect import connect
from muster.client.submit import gathered, submit_many
from muster.errors import JobError
from muster.job.explain import make_spec
from muster.job.jobfile import LoadedJob, read_job_file
from muster.job.mlproject import NAME as PROJECT
from muster.job.translation.job import Translated
from muster.job.translation.launchers import from_arguments, is_launcher
from muster.wire.runs import RunView

_PATIENCE_S = 1.0


def run(
    target: Annotated[str, argument("JOBFILE|SCRIPT", "A job file (.yml, .yaml, .json), a script, or a program.")],
    arguments: Annotated[
        list[str] | None, argument("ARGS", "After `--`: arguments of the script; $NAME is filled in per rank.")
    ] = None,
    nodes: Annotated[int | None, option("N", "Number of nodes.", min=1)] = None,
    procs: Annotated[
        int | None, option("P", "Processes on each node. Without it, --nodes starts one on each.", min=1)
    ] = None,
    gpus_per_node: Annotated[
        float | None, option("G", "GPUs to reserve on each node; below 1: this part of one.", min=0)
    ] = None,
    inputs: Annotated[list[str] | None, option("K=V", "An input's value or path; repeatable.", "--input", "-i")] = None,
    env: Annotated[
        list[str] | None,
        option("K=V|K", "A variable for the ranks, or the name of one in this shell; repeatable.", "--env", "-e"),
    ] = None,
    timeout: Annotated[str | None, option("TIME", "Stop the run after this long: 90, 15m, 1h30m.")] = None,
    name: Annotated[str | None, option("NAME", "A name for the run.")] = None,
    experiment: Annotated[str | None, option("NAME", "The experiment it belongs to.")] = None,
    compute: Annotated[str | None, option("NAME", "The cluster to run on.")] = None,
    environment: Annotated[
        str | None, option("NAME|FILE|none", "What the ranks run in; `none`: the current Python.")
    ] = None,
    settings: Annotated[
        list[str] | None, option("KEY=VALUE", "A key of the job file, such as limits.timeout=60; repeatable.", "--set")
    ] = None,
    tags: Annotated[list[str] | None, option("K=V", "A tag for the run; repeatable.", "--tag", "-t")] = None,
    priority: Annotated[str | None, option("low|medium|high", "Its priority in the queue.")] = None,
    after: Annotated[
        list[str] | None, option("RUN", "Start once this run has completed (RUN:ended: has ended); repeatable.")
    ] = None,
    array: Annotated[
        str | None, option("VALUES", "One run for each value: 0-199, or for an input lr=0.1,0.01; in one submission.")
    ] = None,
    detach: Annotated[bool, switch("Print the run's id and return at once.", "--detach", "-d")] = False,
    dry_run: Annotated[bool, switch("Print what every rank would run, and run nothing.", "--dry-run")] = False,
    quiet: Annotated[
        bool,
        typer.Option("--quiet/--follow", "-q/-f", help="Print only the summary, or the ranks' output as it comes."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a job file or a script, and follow it to its end.

    A script runs in its own folder, which is sent along as the job's code. With --procs it is started that many
    times on each node, with the variables of PyTorch (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR ...); with
    --nodes alone once on each; with neither once. Options win over what a job file says. Behind `--`, the command line
    of torchrun, mpirun, accelerate, deepspeed or srun is shown as the job file that it stands for, and run.

    With --array there is one run for each value, submitted together (on Slurm as one job array). Each finds its
    value in ARRAY_VALUE, or in the input that is named; all have the tag `array`.

    Ctrl-C cancels the run, a second one kills it. A closed terminal leaves it running. The exit code is 0
    when the run completed, 1 when it failed, 130 when it was cancelled.

    \b
    Examples:
      muster run job.yml
      muster run train.py --nodes 2 --procs 4 -- --epochs 3
      muster run job.yml --input epochs=10 --timeout 2h --detach
      muster run job.yml --compute local --set resources.instance_count=1
      muster run train.py --environment requirements.txt --tag team=vision
      muster run train.py --procs 2 --dry-run
      muster run evaluate.py --after @latest
      muster run train.py --array 0-9 -- --seed '$ARRAY_VALUE'
      muster run -- torchrun --nproc-per-node 2 train.py --epochs 3
    """
    overrides = Overrides(
        nodes=nodes,
        procs=procs,
        gpus_per_node=gpus_per_node,
        inputs=parse_pairs("--input", inputs or []),
        env=parse_env(env or [], os.environ),
        timeout_s=None if timeout is None else seconds_of("--timeout", timeout),
        name=name,
        experiment=experiment,
        compute=compute,
        priority=priority,
        environment=environment,
        settings=parse_pairs("--set", settings or []),
        tags=parse_pairs("--tag", tags or []),
        after=tuple(after or ()),
    )
    if array is not None:
        jobs = load_array(target, arguments or [], overrides, parse_array(array))
        if dry_run:
            notice(f"this is the first of {len(jobs)} runs")
            find("planning.dry_run:show_plan")(jobs[0], as_json)
            return
        raise typer.Exit(start_array(jobs, detach=detach, quiet=quiet, as_json=as_json))
    job = load(target, arguments or [], overrides)
    if dry_run:
        find("planning.dry_run:show_plan")(job, as_json)
        return
    raise typer.Exit(start(job, detach=detach, quiet=quiet, as_json=as_json))


def load(target: str, arguments: list[str], overrides: Overrides) -> LoadedJob:
    """The job that the command line describes."""
    if is_launcher([target, *arguments]) and not Path(target).is_file():
        return translated_job(from_arguments([target, *arguments], os.environ), overrides)
    if (Path(target) / PROJECT).is_file():
        target = str(Path(target) / PROJECT)
    if not is_job_file(target):
        data = with_overrides(script_job(target, arguments), overrides, source="script")
        return LoadedJob(spec=make_spec(data), notices=(), base_dir=Path.cwd())
    if arguments:
        raise JobError(
            f"{target} contains its own command; it takes no arguments ({' '.join(arguments)!r}).",
            "Declare inputs in the job file and give them with --input NAME=VALUE.",
        )
    document = read_job_file(Path(target))
    return document.checked(with_overrides(document.data, overrides))


def load_array(target: str, arguments: list[str], overrides: Overrides, array: Array) -> list[LoadedJob]:
    """The jobs that the command line describes, one for each value."""
    first = load(target, arguments, overrides if array.input is None else _with_input(overrides, array, 0))
    name = array_name(first.spec)
    found = []
    for number, value in enumerate(array.values):
        job = first
        if array.input is not None and number:
            job = load(target, arguments, _with_input(overrides, array, number))
        found.append(replace(job, spec=member(job.spec, value, name)))
    return found


def _with_input(overrides: Overrides, array: Array, number: int) -> Overrides:
    assert array.input is not None
    return replace(overrides, inputs={**overrides.inputs, array.input: array.values[number]})


def translated_job(translated: Translated, overrides: Overrides) -> LoadedJob:
    """The job for another launcher's command line, after printing it."""
    say(f"the equivalent job file:\n\n{indent(translated.text(), '  ')}")
    data = with_overrides({**translated.document(), "code": str(Path.cwd())}, overrides, source="command line")
    return LoadedJob(spec=make_spec(data), notices=translated.notices, base_dir=Path.cwd())


def start(job: LoadedJob, *, detach: bool, quiet: bool, as_json: bool) -> int:
    """Submit, and follow unless detached; returns the exit code."""
    return follow(*begin(job), detach=detach, quiet=quiet, as_json=as_json)


def begin(job: LoadedJob) -> tuple[Client, RunView]:
    """Submit a job, with a progress line for its code where the upload takes long."""
    client = connect()
    upload = Upload()
    python = sys.executable
    made = gathered(client, job.spec, job.base_dir, python=python, notices=job.notices, progress=upload.advance)
    upload.end()

    def ask() -> RunView:
        return client.submit(made.spec, made.snapshot, None, python, made.notices, made.packages)

    def then(view: RunView) -> None:
        # The run is submitted: its provenance is collected in the background.
        find("following.origin:keep")(client, [view], job)
        tell(view)

    return client, submitted(client, ask, then)


def tell(view: RunView) -> None:
    """Print the notices of a new run, and import what follows it while its ranks start."""
    for text in view.notices:
        notice(text)
    find("following.follower:follow_to_end")


def start_array(jobs: Sequence[LoadedJob], *, detach: bool, quiet: bool, as_json: bool) -> int:
    """Submit many jobs together, and wait for them unless detached; returns the exit code."""
    client, first = connect(), jobs[0]
    upload = Upload()
    specs = [job.spec for job in jobs]
    views = submit_many(client, specs, first.base_dir, notices=first.notices, progress=upload.advance)
    upload.end()
    find("following.origin:keep")(client, views, first)
    for text in dict.fromkeys(text for view in views for text in view.notices):
        notice(text)
    tag = f"{TAG}={first.spec.tags[TAG]}"
    say(f"{len(views)} runs; `muster ps --tag {tag}` lists them.")
    if detach:
        print_result(views, [view.id for view in views], as_json)
        return 0
    return int(find("following.several:follow_several")(client, views, quiet=quiet, as_json=as_json))


def follow(client: Client, view: RunView, *, detach: bool, quiet: bool, as_json: bool) -> int:
    """Follow a run to its end unless detached; returns the exit code."""
    if detach:
        print_result(view, [view.id], as_json)
        return 0
    return int(find("following.follower:follow_to_end")(client, view, quiet=quiet, as_json=as_json))


class Upload:
    """Progress of the code's upload, once that has taken a while."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._meter: Any = None
        self._seen = 0

    def advance(self, done: int, total: int) -> None:
        if self._meter is None:
            if time.monotonic() - self._began < _PATIENCE_S:
                return
            self._meter = find("commands.files:Meter")(total)
            self._meter.begin("of the code")
        self._meter.add(done - self._seen)
        self._seen = done

    def end(self) -> None:
        if self._meter is not None:
            self._meter.end()
