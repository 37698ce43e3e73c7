"""The command line: `muster`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from muster.cli import exits
from muster.cli.lazy import Word, lazy_group
from muster.version import VERSION

PANELS = {
    "Run": {
        "run": Word(
            "run:run",
            "Run a job file or a script, and follow it to its end.",
            "muster run train.py --nodes 2 --procs 4 -- --epochs 3",
            takes_script=True,
        ),
        "cancel": Word(
            "runs:cancel",
            "Cancel runs: their ranks get SIGTERM and 30 seconds; --force kills them.",
            "muster cancel @latest",
        ),
        "retry": Word(
            "runs:retry",
            "Start one more attempt of runs that failed or were cancelled; each resumes from its last checkpoint.",
            "muster retry @latest",
        ),
    },
    "Look": {
        "ps": Word("runs:ps", "List runs, newest first.", "muster ps --status Running"),
        "show": Word(
            "runs:show",
            "Tell a run's story: states, attempts, ranks, verdict, metrics, files.",
            "muster show @latest",
        ),
        "logs": Word(
            "logs:logs",
            "Print what the ranks print, merged with a prefix for each, or of one rank.",
            "muster logs -f @latest",
        ),
        "wait": Word("runs:wait", "Wait until runs have ended.", "muster wait @latest --timeout 1h"),
        "bench": Word("bench:COMMANDS", "Measure how a job scales.", "muster bench scaling job.yml --procs 1,2,4"),
    },
    "Keep and remove": {
        "download": Word(
            "files:download",
            "Copy a run's files here: outputs, logs, uploads; checkpoints where they are named.",
            "muster download @latest outputs --to ./results",
        ),
        "rm": Word("runs:rm", "Remove ended runs with their logs, metrics and outputs.", "muster rm brave-otter --yes"),
    },
    "Workspace": {
        "init": Word(
            "workspace:init",
            "Make a folder a workspace: its runs and their files are kept in its .muster.",
            "muster init",
        ),
        "status": Word(
            "workspace:status", "Tell about this workspace, its server, nodes and active runs.", "muster status"
        ),
        "doctor": Word(
            "doctor:doctor", "Check this machine: what fits, what does not, and what to do about it.", "muster doctor"
        ),
        "up": Word(
            "workspace:up", "Serve this workspace to a team, in the foreground.", "muster up --host 0.0.0.0 --tls"
        ),
        "down": Word("workspace:down", "End this workspace's server.", "muster down"),
        "env": Word(
            "env:COMMANDS",
            "Look at, build, register and remove environments: what the ranks of a job run in.",
            "muster env build environment.yml",
        ),
    },
    "Clusters": {
        "cost": Word(
            "cluster:cost",
            "Tell how many node hours were used, and what they cost where prices are known.",
            "muster cost --by user",
        ),
        "cluster": Word(
            "cluster:COMMANDS",
            "Create, resize, stop and delete clusters, and look after their nodes.",
            "muster cluster create small --min-nodes 1 --max-nodes 2",
        ),
        "ray": Word(
            "ray:COMMANDS",
            "Start Ray on machines of your own, or describe those of a cloud to Ray's launcher.",
            "muster ray hosts many --host 10.0.0.1 --host 10.0.0.2",
        ),
    },
    "Data": {
        "gc": Word(
            "gc:gc",
            "Remove what nothing refers to: code without runs, uploads that were not finished, superseded checkpoints.",
            "muster gc --dry-run",
        ),
        "datastore": Word(
            "datastore:COMMANDS",
            "Give storage a name, with what opens it, and try it out.",
            "muster datastore create scratch --path ./images",
        ),
        "data": Word(
            "data:COMMANDS",
            "Version data, and copy files to and from datastores.",
            "muster data create digits --path ./images",
        ),
        "secret": Word(
            "secret:COMMANDS", "Keep values that jobs need and nobody should see.", "muster secret set HF_TOKEN"
        ),
        "key": Word(
            "key:COMMANDS", "Encrypt what rests in the workspace store, and change the key.", "muster key show"
        ),
    },
}
"""Every command, in the order in which `muster --help` lists them. Only the module of the one called is imported."""

app = typer.Typer(
    cls=lazy_group(PANELS),
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="`muster COMMAND --help` says more. RUN is an id, the beginning of it, a name, or @latest.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"muster {VERSION}")
        raise typer.Exit


@app.callback()
def muster(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version.", show_default=False
        ),
    ] = False,
) -> None:
    """Train deep-learning models on many processes and many machines."""


def main() -> None:
    """Run the command line; the only way out is an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        app(prog_name="muster")
    except (Exception, KeyboardInterrupt) as error:
        sys.exit(exits.report(error))
    except SystemExit as ended:
        try:
            sys.stdout.flush()
        except OSError as error:
            sys.exit(exits.report(error))
        raise ended
