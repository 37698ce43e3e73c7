"""The command line: `muster`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from muster.cli import exits
from muster.cli.lazy import WORKSPACE_HELP, Word, choose_workspace, lazy_group
from muster.version import VERSION

PANELS = {
    "Run": {
        "run": Word(
            "run:run",
            "Run a job file or a script, and follow it to its end.",
            takes_script=True,
        ),
        "import": Word(
            "porting.imports:COMMANDS",
            "Import batch scripts and the records of other tools.",
            "muster import sbatch train.sbatch --to ported.yml",
        ),
        "cancel": Word("runs:cancel", "Cancel runs: ranks get SIGTERM, then 30 seconds; --force kills."),
        "rerun": Word("records.rerun:rerun", "Repeat a run with the code that it had, and follow it to its end."),
        "retry": Word("runs:retry", "Retry runs that failed or were cancelled, from the last checkpoint."),
    },
    "Look": {
        "ps": Word("records.listing:ps", "List runs, newest first."),
        "show": Word("runs:show", "Show a run: states, attempts, ranks, verdict, metrics, files."),
        "logs": Word("logs:logs", "Print the output of all ranks, each line with its rank, or of one rank."),
        "metrics": Word(
            "records.metrics:metrics", "Print what a run logged: a line for each metric, or one metric's history."
        ),
        "plot": Word("records.plot:plot", "Draw a metric of runs, in the terminal or as an image."),
        "compare": Word(
            "records.compare:compare", "Show how two runs differ: command, inputs, code, packages, machines, metrics."
        ),
        "explain": Word(
            "explain:explain", "Explain a failure from its logs, even one that did not happen under Muster."
        ),
        "notify": Word(
            "team.notify:COMMANDS",
            "Get notified when runs end, fail, hang, or their loss is NaN.",
            "muster notify @latest https://hooks.example.org/me",
            otherwise="watch",
        ),
        "wait": Word("runs:wait", "Wait until runs have ended."),
        "portal": Word("team.portal:portal", "Open the workspace in a browser, signed in."),
        "bench": Word("bench:COMMANDS", "Measure how a job scales.", "muster bench scaling job.yml --procs 1,2,4"),
    },
    "Inside a run": {
        "shell": Word(
            "inside.shell:shell",
            "Open a shell where a rank runs: with its environment, in its folder or container.",
            takes_script=True,
        ),
        "stacks": Word("inside.stacks:stacks", "Show where each rank is: its Python stacks, equal ones only once."),
        "forward": Word(
            "inside.forward:forward", "Forward ports of a rank to 127.0.0.1 on this machine, until Ctrl-C."
        ),
        "tensorboard": Word(
            "inside.tensorboard:tensorboard", "Start TensorBoard on the event files of runs, until Ctrl-C."
        ),
    },
    "Keep and remove": {
        "download": Word("files:download", "Download a run's files: outputs, logs, uploads, checkpoints; its code."),
        "tag": Word("runs:tag", "Set tags of a run, or remove them."),
        "rm": Word("runs:rm", "Remove ended runs with their logs, metrics and outputs."),
        "gc": Word("gc:gc", "Remove unused code, unfinished uploads and superseded checkpoints."),
    },
    "Workspace": {
        "init": Word("workspace:init", "Make a folder a workspace, which keeps runs in its .muster folder."),
        "trust": Word("workspace:trust", "Trust a workspace that somebody else made."),
        "login": Word("team.login:login", "Log in to a team's server, and use it from now on."),
        "logout": Word("team.login:logout", "Forget the server that you logged in to."),
        "workspaces": Word("team.login:workspaces", "List the workspaces and servers that you have used."),
        "status": Word("workspace:status", "Show this workspace, its server, nodes and active runs."),
        "doctor": Word("doctor:doctor", "Check this machine for problems, with advice on each."),
        "up": Word("workspace:up", "Serve this workspace to a team, in the foreground."),
        "down": Word("workspace:down", "Stop this workspace's server."),
        "backup": Word("backup:backup", "Write the workspace's records, settings and keys to one file."),
        "restore": Word("backup:restore", "Restore the workspace from a backup."),
        "repair": Word("backup:repair", "Rebuild a damaged database from the last automatic backup and the store."),
        "env": Word(
            "env:COMMANDS",
            "List, build, register and remove the environments that jobs run in.",
            "muster env build environment.yml",
        ),
        "secret": Word(
            "secret:COMMANDS", "Store values that jobs need but nobody should see.", "muster secret set HF_TOKEN"
        ),
        "key": Word("key:COMMANDS", "Encrypt the workspace store, and change its key.", "muster key show"),
        "mlflow": Word(
            "tracking.mlflow:mlflow", "Let MLflow's own clients on this machine read and write this workspace."
        ),
    },
    "People": {
        "user": Word("people.user:COMMANDS", "Add and invite people, and give them roles.", "muster user invite ada"),
        "token": Word("people.token:COMMANDS", "Create, list, rotate and revoke tokens.", "muster token list"),
        "audit": Word("people.audit:audit", "Show who did what to what, when and from where."),
    },
    "Clusters": {
        "cost": Word("cluster:cost", "Show node hours used, and their cost where prices are known."),
        "cluster": Word(
            "cluster:COMMANDS",
            "Create, resize, stop and delete clusters, and manage their nodes.",
            "muster cluster create small --min-nodes 1 --max-nodes 2",
        ),
        "simulate": Word("simulate:command", "Try Muster's queue on a trace of your own cluster."),
        "ray": Word(
            "ray:COMMANDS",
            "Start Ray on your own machines, or write files for Ray's launcher.",
            "muster ray hosts many --host 10.0.0.1 --host 10.0.0.2",
        ),
    },
    "Data": {
        "datastore": Word(
            "datastore:COMMANDS",
            "Register storage with its credentials, and test it.",
            "muster datastore create scratch --path ./images",
        ),
        "data": Word(
            "data:COMMANDS",
            "Version data, and copy files to and from datastores.",
            "muster data create digits --path ./images",
        ),
        "fileserver": Word(
            "stored.fileserver:COMMANDS",
            "Keep data on a node that serves it to a cluster over NFS.",
            "muster fileserver list",
        ),
        "cache": Word(
            "stored.caching:COMMANDS",
            "List and clear the data that jobs on this machine have staged.",
            "muster cache list",
        ),
    },
    "Models": {
        "model": Word(
            "models.model:COMMANDS",
            "Register, compare, promote and download models.",
            "muster model register resnet50 --path ./model.pt",
        ),
        "score": Word("models.score:score", "Score files or tables with a model, on any number of processes."),
        "serve": Word("models.serve:serve", "Answer requests with a model or a script, until the run is cancelled."),
        "endpoint": Word(
            "models.endpoint:COMMANDS",
            "Deploy models at stable addresses, with keys and split traffic.",
            "muster endpoint list",
        ),
        "batch-endpoint": Word(
            "models.batch_endpoint:COMMANDS",
            "Deploy models that score data on request.",
            "muster batch-endpoint list",
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
    epilog="`muster COMMAND --help` has the details. RUN is an id, the beginning of it, a name, or @latest.",
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
    workspace: Annotated[
        str | None, typer.Option("--workspace", "-w", metavar="FOLDER|NAME", help=WORKSPACE_HELP, show_default=False)
    ] = None,
) -> None:
    """Train deep-learning models on many processes and many machines.

    \b
    Examples:
      muster init ./first --template ddp
      muster run train.py --nodes 2 --procs 4 -- --epochs 3
      muster logs -f @latest
      muster portal
    """
    choose_workspace(workspace)


def main() -> None:
    """Run the command line; always ends with an exit code."""
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
