"""The command line: `muster`."""

from __future__ import annotations

import copy
import sys
from typing import Annotated

import typer

from muster.cli import report
from muster.cli.commands import (
    bench,
    cluster,
    data,
    datastore,
    env,
    files,
    gc,
    key,
    logs,
    ray,
    run,
    runs,
    secret,
    workspace,
)
from muster.cli.help import Group, ScriptCommand

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="`muster COMMAND --help` says more. RUN is an id, the beginning of it, a name, or @latest.",
)

app.command(rich_help_panel="Run", cls=ScriptCommand)(report.guarded(run.run))
for panel, commands in {
    "Run": (runs.cancel, runs.retry),
    "Look": (runs.ps, runs.show, logs.logs, runs.wait),
    "Keep and remove": (files.download, runs.rm),
    "Workspace": (workspace.init, workspace.status, workspace.doctor, workspace.up, workspace.down),
}.items():
    for command in commands:
        app.command(rich_help_panel=panel)(report.guarded(command))

clusters = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help=cluster.HELP)
for name, function in cluster.COMMANDS.items():
    clusters.command(name)(report.guarded(function))
app.add_typer(clusters, name="cluster", rich_help_panel="Clusters")
app.command(rich_help_panel="Clusters")(report.guarded(cluster.cost))

rays = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help=ray.HELP)
for name, function in ray.COMMANDS.items():
    rays.command(name)(report.guarded(function))
app.add_typer(rays, name="ray", rich_help_panel="Clusters")

benches = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help=bench.HELP)
for name, function in bench.COMMANDS.items():
    benches.command(name)(report.guarded(function))
app.add_typer(benches, name="bench", rich_help_panel="Look")

environments = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help=env.HELP)
for name, function in env.COMMANDS.items():
    environments.command(name)(report.guarded(function))
app.add_typer(environments, name="env", rich_help_panel="Workspace")

for panel_name, module in {"datastore": datastore, "data": data, "secret": secret, "key": key}.items():
    group = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help=module.HELP)
    for name, function in module.COMMANDS.items():
        group.command(name)(report.guarded(function))
    app.add_typer(group, name=panel_name, rich_help_panel="Data")
app.command(rich_help_panel="Data")(report.guarded(gc.gc))


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"muster {version('muster')}")
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
        _narrowed(sys.argv[1:])(prog_name="muster")
    except (Exception, KeyboardInterrupt) as error:
        sys.exit(report.report(error))
    except SystemExit as ended:
        try:
            sys.stdout.flush()
        except OSError as error:
            sys.exit(report.report(error))
        raise ended


def _narrowed(words: list[str]) -> typer.Typer:
    """The one command or group that is called: to look at all of them takes longer than many a call."""
    first = words[0] if words else ""
    commands = [item for item in app.registered_commands if item.callback and item.callback.__name__ == first]
    groups = [item for item in app.registered_groups if item.name == first]
    if not (commands or groups):
        return app
    chosen = copy.copy(app)
    chosen.registered_commands, chosen.registered_groups = commands, groups
    return chosen
