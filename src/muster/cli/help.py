"""How `muster --help` reads: commands in groups, each with a line that can be typed."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

EXAMPLES = {
    "init": "muster init",
    "run": "muster run train.py --nodes 2 --procs 4 -- --epochs 3",
    "ps": "muster ps --status Running",
    "show": "muster show @latest",
    "logs": "muster logs -f @latest",
    "wait": "muster wait @latest --timeout 1h",
    "cancel": "muster cancel @latest",
    "retry": "muster retry @latest",
    "download": "muster download @latest outputs --to ./results",
    "rm": "muster rm brave-otter --yes",
    "up": "muster up --host 0.0.0.0 --tls",
    "down": "muster down",
    "status": "muster status",
    "doctor": "muster doctor",
    "cluster": "muster cluster create small --min-nodes 1 --max-nodes 2",
    "ray": "muster ray hosts many --host 10.0.0.1 --host 10.0.0.2",
    "cost": "muster cost --by user",
    "bench": "muster bench scaling job.yml --procs 1,2,4",
    "env": "muster env build environment.yml",
    "datastore": "muster datastore create scratch --path ./images",
    "data": "muster data create digits --path ./images",
    "secret": "muster secret set HF_TOKEN",
    "gc": "muster gc --dry-run",
    "key": "muster key show",
}


class Group(TyperGroup):
    """Lists commands by their panel, with an example for each."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[Any]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            panels.setdefault(command.rich_help_panel, []).append(command)
        for panel, commands in panels.items():
            with formatter.section(panel):
                for command in commands:
                    formatter.write(f"  {command.name:<9} {command.get_short_help_str(200)}\n")
                    formatter.write(f"  {'':<9} $ {EXAMPLES[command.name]}\n")


class ScriptCommand(TyperCommand):
    """A command with a script's arguments behind `--`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if type(error).__name__ == "NoSuchOption":
                error.message = f"{error.message.rstrip('.')}. Arguments of the script go after `--`."  # type: ignore[attr-defined]
            raise
