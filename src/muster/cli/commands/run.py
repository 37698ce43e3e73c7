"""`muster run`: submit a job and follow it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from muster.cli import report
from muster.cli.console import Paint, notice, say
from muster.cli.options import Json, print_json
from muster.cli.request import Overrides, is_job_file, parse_env, parse_pairs, script_job, with_overrides
from muster.cli.text import parse_duration
from muster.errors import JobError, MusterError

if TYPE_CHECKING:
    from muster.client.api import Client
    from muster.job.jobfile import LoadedJob
    from muster.job.spec import JobSpec

EXIT_CODES = {"Completed": 0, "Failed": report.EXIT_FAILED, "Canceled": report.EXIT_INTERRUPTED}


def run(
    target: Annotated[
        str,
        typer.Argument(
            metavar="JOBFILE|SCRIPT", help="A job file (.yml, .yaml), a script, or a program.", show_default=False
        ),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ARGS", help="After `--`: arguments of the script; $NAME is filled in per rank.", show_default=False
        ),
    ] = None,
    nodes: Annotated[int | None, typer.Option(min=1, metavar="N", help="Number of nodes.")] = None,
    procs: Annotated[
        int | None,
        typer.Option(min=1, metavar="P", help="Processes on each node. Without it, --nodes starts one on each."),
    ] = None,
    gpus_per_node: Annotated[int | None, typer.Option(min=0, metavar="G", help="GPUs to hold on each node.")] = None,
    inputs: Annotated[
        list[str] | None, typer.Option("--input", "-i", metavar="K=V", help="An input's value or path; repeatable.")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            "-e",
            metavar="K=V|K",
            help="A variable for the ranks, or the name of one of this shell; repeatable.",
        ),
    ] = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop the run after this long: 90, 15m, 1h30m.")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="A name to call the run by.")] = None,
    experiment: Annotated[str | None, typer.Option(metavar="NAME", help="The experiment that it belongs to.")] = None,
    compute: Annotated[str | None, typer.Option(metavar="NAME", help="The cluster to run on.")] = None,
    priority: Annotated[str | None, typer.Option(metavar="low|medium|high", help="Its place in the queue.")] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Print the run's id and return at once.", show_default=False)
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what every rank would run, and run nothing.", show_default=False)
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option("--quiet/--follow", "-q/-f", help="Print the summary alone, or the ranks' lines as they come."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a job file or a script, and follow it to its end.

    A script runs in its own folder, which is sent along as the job's code. With --procs it is started that
    often on each node, with the variables of PyTorch (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR ...); with
    --nodes alone once on each; with neither once. Options win over what a job file says.

    Ctrl-C cancels the run, a second one kills it. A closed terminal leaves it running. The exit code is 0
    when the run completed, 1 when it failed, 130 when it was cancelled.

    \b
    Examples:
      muster run job.yml
      muster run train.py --nodes 2 --procs 4 -- --epochs 3
      muster run job.yml --input epochs=10 --timeout 2h --detach
      muster run train.py --procs 2 --dry-run
    """
    overrides = Overrides(
        nodes=nodes,
        procs=procs,
        gpus_per_node=gpus_per_node,
        inputs=parse_pairs("--input", inputs or []),
        env=parse_env(env or [], os.environ),
        timeout_s=_timeout(timeout),
        name=name,
        experiment=experiment,
        compute=compute,
        priority=priority,
    )
    job = load(target, arguments or [], overrides)
    if dry_run:
        show_plan(job, as_json)
        return
    raise typer.Exit(start(job, detach=detach, quiet=quiet, as_json=as_json))


def load(target: str, arguments: list[str], overrides: Overrides) -> LoadedJob:
    """The job that the command line describes."""
    from muster.job.explain import make_spec
    from muster.job.jobfile import LoadedJob, load_job_file

    if not is_job_file(target):
        data = with_overrides(script_job(target, arguments), overrides, source="script")
        return LoadedJob(spec=make_spec(data), notices=(), base_dir=Path.cwd())
    if arguments:
        raise JobError(
            f"{target} says itself what it runs; {' '.join(arguments)!r} has no place in it.",
            "Declare inputs in the job file and give them with --input NAME=VALUE.",
        )
    loaded = load_job_file(Path(target))
    if overrides == Overrides():
        return loaded
    changed = with_overrides(loaded.spec.model_dump(exclude_unset=True), overrides)
    return LoadedJob(spec=make_spec(changed), notices=loaded.notices, base_dir=loaded.base_dir)


def show_plan(job: LoadedJob, as_json: bool) -> None:
    """The whole plan on simulated nodes, and the script that a site's own queue would be given."""
    from muster.job.check import check_files
    from muster.launch.describe import describe
    from muster.launch.plan import plan, sample_slots
    from muster.wire.codec import to_json

    notices = [*job.notices, *check_files(job.spec, job.base_dir)]
    slots = sample_slots(job.spec, cpus=os.cpu_count() or 1)
    # What a node builds is found on its PATH.
    python = sys.executable if job.spec.environment is None else "python"
    made = plan(job.spec, slots, run_id="dry-run", attempt=1, python=python)
    script = _script(job.spec, notices)
    if as_json:
        told = {"notices": [*notices, *made.notices], "spec": job.spec.model_dump(mode="json"), "script": script}
        print_json({**to_json(made), **told})
        return
    for text in notices:
        notice(text)
    print(describe(made), end="")
    if script is not None:
        print(f"\n{script}", end="")


def _script(spec: JobSpec, notices: list[str]) -> str | None:
    """What the job's cluster hands to somebody else's queue; only a server knows clusters other than `local`."""
    from muster.client.connect import connect

    if spec.compute == "local":
        return None
    try:
        script: str | None = connect().plan(spec).get("script")
    except MusterError as error:
        notices.append(f"compute {spec.compute}: {error.message}")
        return None
    return script


def start(job: LoadedJob, *, detach: bool, quiet: bool, as_json: bool) -> int:
    """Submit, and follow unless detached; returns the exit code."""
    from muster.client.connect import connect
    from muster.client.submit import submit

    client = connect()
    view = submit(client, job.spec, job.base_dir, python=sys.executable, notices=job.notices)
    for text in view["notices"]:
        notice(text)
    if detach:
        if as_json:
            print_json(view)
        else:
            print(view["id"])
        return 0
    status = follow(client, view, quiet=quiet or as_json)
    view = client.run(view["id"])
    if as_json:
        print_json(view)
    else:
        _tell_end(view)
    return EXIT_CODES.get(status, report.EXIT_FAILED)


def follow(client: Client, view: dict[str, Any], quiet: bool, told: set[str] | None = None) -> str:
    """Show the run until it ends; returns its final state. A quiet one does not repeat what was `told` before."""
    from muster.cli.display import QuietDisplay, open_display
    from muster.cli.follow import Abandoned, Follower, Interrupts, Screen
    from muster.cli.merge import Merger
    from muster.cli.state import RunState
    from muster.cli.story import ref

    state = RunState.of(view)
    merger = Merger(color=Paint.of(sys.stdout).color)
    told = set() if told is None else told
    try:
        with (
            Interrupts() as interrupts,
            QuietDisplay(sys.stdout, told) if quiet else open_display(merger.pending, state, ref(view)) as display,
        ):
            if not quiet:
                display.note(
                    f"run {view['id']}" + (f" ({view['name']})" if view["name"] not in (None, view["id"]) else "")
                )
            screen = Screen(display, state, merger)
            return Follower(client, view, screen, interrupts).until_end(logs=not quiet)
    except Abandoned:
        say(f"Not waiting any longer; `muster show {view['id']}` tells what became of it.")
        raise typer.Exit(report.EXIT_INTERRUPTED) from None


def _tell_end(view: dict[str, Any]) -> None:
    from muster.cli.story import summary

    # Beside the ranks' lines where these go into a pipe or file.
    out = sys.stdout if sys.stdout.isatty() else sys.stderr
    print("\n".join(["", *summary(view, Paint.of(out), time.time())]), file=out, flush=True)


def _timeout(text: str | None) -> int | None:
    if text is None:
        return None
    seconds = parse_duration(text)
    if seconds is None:
        raise JobError(f"--timeout {text}: give seconds or a time above zero, such as 90, 15m, 1h30m or 2d.")
    return seconds
