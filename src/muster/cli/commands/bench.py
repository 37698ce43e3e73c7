"""`muster bench`: measure a job."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from muster.cli import exits
from muster.cli.commands.run import load
from muster.cli.console import Paint, notice, say
from muster.cli.following.follower import follow
from muster.cli.options import Json, argument, option, print_json, switch
from muster.cli.overrides import Overrides, is_job_file, parse_pairs, with_overrides
from muster.cli.scaling import plot as plots
from muster.cli.scaling import study as studies
from muster.cli.scaling.study import FILES, Machine, Row, Sample, Size, Study
from muster.cli.text import counted, table
from muster.cli.views.metrics import is_number, throughput_metric
from muster.client.api import Client
from muster.client.connect import connect
from muster.client.snapshot import scan
from muster.client.submit import SentCode, code_of, send_code, submit
from muster.errors import JobError, RunFailed
from muster.job.check import check_files
from muster.job.explain import make_spec
from muster.job.jobfile import LoadedJob
from muster.version import VERSION
from muster.wire import states
from muster.wire.code import digest_of
from muster.wire.runs import RunView


def scaling(
    target: Annotated[str, argument("JOBFILE", "The job to measure.")],
    procs: Annotated[str, option("1,2,4", "Numbers of processes in all, from the smallest to the largest.")] = "1,2,4",
    per_node: Annotated[
        int | None, option("P", "Processes per node (default: as in the job file, or all on one node).", min=1)
    ] = None,
    metric: Annotated[str | None, option("NAME", "The metric to compare (default: a throughput, by its name).")] = None,
    repeat: Annotated[int, option("N", "Runs of each size; their median counts.", min=1)] = 1,
    inputs: Annotated[list[str] | None, option("K=V", "An input's value or path; repeatable.", "--input", "-i")] = None,
    compute: Annotated[str | None, option("NAME", "The cluster to run on.")] = None,
    out: Annotated[Path, option("DIR", "Where JSON and plots go.")] = Path("scaling"),
    plot: Annotated[bool, typer.Option("--plot/--no-plot", help="Draw scaling.png and scaling.svg.")] = True,
    fresh: Annotated[bool, switch("Start over instead of continuing an interrupted study.", "--fresh")] = False,
    dry_run: Annotated[bool, switch("Print the runs, and run nothing.", "--dry-run")] = False,
    as_json: Json = False,
) -> None:
    """Run a job with 1, 2, 4 ... processes and draw throughput, ideal line and efficiency.

    The throughput is the last value of a metric that the job logs, such as images_per_sec. The other sizes are
    compared with the smallest. Results go to DIR/scaling.json after every run; the same command continues an
    interrupted study, unless the code has changed since: then it starts over. Ctrl-C cancels the current run.

    \b
    Examples:
      muster bench scaling job.yml --procs 1,2,4
      muster bench scaling job.yml --procs 1,2,4,8 --per-node 4 --repeat 3 --metric images_per_sec
      muster bench scaling job.yml --procs 1,2 --dry-run
    """
    if not is_job_file(target):
        raise JobError(f"{target} is not a job file (.yml, .yaml).", "A study needs one, so that it can be repeated.")
    job = load(target, [], Overrides(inputs=parse_pairs("--input", inputs or []), compute=compute))
    sizes = studies.sizes_of(job.spec, studies.parse_procs(procs), per_node)
    wanted = studies.Study(
        key=studies.key_of(job.spec),
        job=job.spec.display_name or Path(target).stem,
        metric=metric or "",
        sizes=sizes,
        repeats=repeat,
        machine=Machine(platform.node(), os.cpu_count(), platform.platform(), platform.python_version(), VERSION),
        notices=_notices(job, sizes),
    )
    for text in wanted.notices:
        notice(text)
    if dry_run:
        _show_runs(wanted)
        return
    if plot:
        plots.require()
    check_files(job.spec, job.base_dir)
    path = out / "scaling.json"
    found = None if fresh else studies.read(path)
    study = studies.resume(found, replace(wanted, code=_code(job, out)))
    out.mkdir(parents=True, exist_ok=True)
    if study.samples:
        say(f"Kept from an earlier start: {counted(len(study.samples), 'run')}. --fresh measures them again.")
    elif found and found.samples and found.code != study.code:
        say(f"The code has changed since the runs in {path}: starting over.")
    study = _measure(job, study, path)
    studies.write(path, study)
    for text in studies.doubts(study.rows()):
        notice(text)
    drawn = plots.draw(study, out) if plot else []
    if as_json:
        print_json({"study": str(path), "plots": [str(item) for item in drawn], "rows": _plain(study.rows())})
        return
    _show_table(study)
    say(f"Written: {', '.join(map(str, [path, *drawn]))}")


def _code(job: LoadedJob, out: Path) -> str:
    """The digest of the job's code, without the study's own files."""
    if job.spec.code is None:
        return ""
    manifest = scan(job.base_dir / job.spec.code)
    written = {out.resolve() / name for name in FILES}
    return digest_of({name: entry for name, entry in manifest.files.items() if manifest.folder / name not in written})


def _measure(job: LoadedJob, study: Study, path: Path) -> Study:
    """Run what is left, one after the other, and save each figure at once."""
    left = study.left()
    if not left:
        return study
    client = connect()
    # Once for all runs: an edit in between does not affect later ones.
    sent = send_code(client, *code_of(job.spec, job.base_dir)) if job.spec.code is not None else None
    shown: set[str] = set()
    for number, (size, turn) in enumerate(left, 1):
        say(f"[{number}/{len(left)}] {_counted(size.procs)} on {size} (nodes x processes)")
        sample, name = _run_one(client, job, study, size, turn, sent, shown)
        study = replace(study.add(sample), metric=name)
        studies.write(path, study)
        say(f"    {sample.value:,.1f} {name}  ({sample.run})")
    return study


def _run_one(
    client: Client, job: LoadedJob, study: Study, size: Size, turn: int, sent: SentCode | None, shown: set[str]
) -> tuple[Sample, str]:
    """`shown`: notes of earlier runs of the study, which are mostly the same."""
    data = with_overrides(job.spec.model_dump(exclude_unset=True), Overrides(nodes=size.nodes, procs=size.per_node))
    # A run's name is unique; the study's runs are found by their experiment.
    data.pop("name", None)
    spec = make_spec({**data, "display_name": f"{study.job}-{size.procs}"})
    view = submit(client, spec, job.base_dir, python=sys.executable, notices=job.notices, sent=sent)
    status = follow(client, view, quiet=True, shown=shown)
    view = client.run(view.id)
    if status == states.CANCELED:
        raise typer.Exit(exits.EXIT_INTERRUPTED)
    if status != states.COMPLETED:
        reason = view.verdict.message if view.verdict else status
        raise RunFailed(
            f"the run with {_counted(size.procs)} failed: {reason}",
            hint=f"`muster show {view.id}` has the details. The same command continues from here.",
        )
    name, value = _figure(view, study.metric or None)
    return Sample(size.procs, turn, view.id, value), name


def _figure(view: RunView, metric: str | None) -> tuple[str, float]:
    metrics = view.metrics
    name = metric if metric is not None else throughput_metric(metrics)
    value = metrics.get(name) if name else None
    if name is None or not is_number(value):
        logged = ", ".join(sorted(key for key in metrics if not key.startswith(("node/", "muster/")))) or "none"
        what = f"no number called {metric!r}" if metric else "no throughput, such as images_per_sec,"
        raise JobError(
            f"run {view.id} logged {what} to compare; its metrics: {logged}.",
            "Log one with Run.get_context().log(NAME, VALUE), or name it with --metric.",
        )
    if not value > 0:
        raise JobError(
            f"the last {name} of run {view.id} is {value}, which cannot be compared.",
            "Did it run long enough to measure anything? Give it more steps.",
        )
    return name, float(value)


def _notices(job: LoadedJob, sizes: tuple[Size, ...]) -> tuple[str, ...]:
    """What limits the meaning of the figures."""
    cores = os.cpu_count() or 1
    is_here = job.spec.compute in (None, "local") and shutil.which("nvidia-smi") is None
    most = max(size.procs for size in sizes)
    notices = list(job.notices)
    if is_here and most > cores:
        notices.append(f"{most} processes share {cores} cores: efficiency above {cores} means little for a cluster")
    elif is_here and any(size.nodes > 1 for size in sizes):
        notices.append("the nodes are simulated on one machine: there is no network between them")
    return tuple(notices)


def _show_runs(study: Study) -> None:
    rows = [(str(size.procs), str(size.nodes), str(size.per_node or 1)) for size in study.sizes]
    print("\n".join(table(["PROCS", "NODES", "PER NODE"], rows)))
    print(f"{len(study.left())} runs, {study.repeats} of each size")


def _show_table(study: Study) -> None:
    paint = Paint.of(sys.stdout)
    header = [paint(title, "dim") for title in ("PROCS", "NODES", study.metric.upper(), "SPEED-UP", "EFFICIENCY")]
    rows = [
        (
            str(row.size.procs),
            str(row.size.nodes),
            f"{row.value:,.1f}",
            f"{row.speedup:.2f}x",
            f"{100 * row.efficiency:.0f} %",
        )
        for row in study.rows()
    ]
    print("\n".join(table(header, rows)))


def _plain(rows: list[Row]) -> list[dict[str, float]]:
    return [
        {
            "procs": row.size.procs,
            "nodes": row.size.nodes,
            "value": row.value,
            "speedup": row.speedup,
            "efficiency": row.efficiency,
        }
        for row in rows
    ]


def _counted(procs: int) -> str:
    return counted(procs, "process", "es")


COMMANDS = (scaling,)
