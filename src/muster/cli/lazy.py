"""Lazy commands: a command's module is imported when it is called, not for the list of commands."""

from __future__ import annotations

import inspect
import os
import sys
import textwrap
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from importlib import import_module
from typing import Annotated, Any, TypeAlias, cast

import typer.main
from typer.core import TyperCommand, TyperGroup

from muster.cli import exits
from muster.cli.console import columns
from muster.cli.text import folded
from muster.wire.text import refused_value

_NAME = len("batch-endpoint")
"""Width of the name column in the list of commands."""
_WHOLE = 1000
"""A limit that no help text reaches, so that it is never cut."""
WORKSPACE_HELP = "Use this workspace instead of the one of the current folder (MUSTER_WORKSPACE)."

MEANT = {
    "list": "ps", "ls": "ps", "runs": "ps", "history": "ps", "queue": "ps", "squeue": "ps", "jobs": "ps",
    "stop": "cancel", "kill": "cancel", "scancel": "cancel", "abort": "cancel",
    "delete": "rm", "remove": "rm", "del": "rm",
    "submit": "run", "start": "run", "sbatch": "run", "launch": "run", "train": "run",
    "exec": "shell", "ssh": "shell", "attach": "logs", "log": "logs", "tail": "logs", "follow": "logs",
    "describe": "show", "info": "show", "get": "download", "fetch": "download", "cp": "download",
    "diff": "compare", "resume": "retry", "clone": "rerun", "metric": "metrics", "plot": "metrics",
    "sinfo": "cluster", "nodes": "cluster", "top": "status", "server": "up", "check": "doctor", "stats": "metrics",
    "sacct": "ps", "connect": "login", "environments": "env", "dataset": "data",
    "online-endpoint": "endpoint", "online-deployment": "endpoint deploy",
    "batch-deployment": "batch-endpoint deploy",
}  # fmt: skip
"""Commands of other tools, and Muster's equivalent."""
MEANT_IN_GROUPS = {
    "get-credentials": "keys", "regenerate-keys": "keys --regenerate", "get-logs": "logs", "list-jobs": "runs",
    "update": "traffic", "create": "register", "archive": "promote --stage Archived", "ls": "list", "rm": "delete",
    "remove": "delete",
}  # fmt: skip
"""The same for commands of groups."""

Command: TypeAlias = TyperCommand | TyperGroup


@dataclass(frozen=True)
class Word:
    """An entry of the table of commands."""

    target: str
    """`module:attribute` below `cli.commands`: a function, or those of a group, which are named like its commands."""
    help: str
    example: str = ""
    """The example of a group; commands have their own."""
    takes_script: bool = False
    otherwise: str = ""
    """The default command of a group, where its first word is not a command."""


@dataclass(frozen=True)
class Completion:
    """Shell completions of an unfinished word."""

    value: str
    help: str
    type: str = "plain"


class Commands(Mapping[str, Command]):
    """The commands of a table, each imported on demand."""

    def __init__(self, words: Mapping[str, Word]) -> None:
        self._words = words
        self._loaded: dict[str, Command] = {}

    def __getitem__(self, name: str) -> Command:
        if name not in self._loaded:
            self._loaded[name] = load(name, self._words[name])
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._words)

    def __len__(self) -> int:
        return len(self._words)


def lazy_group(panels: Mapping[str, Mapping[str, Word]]) -> type[TyperGroup]:
    """The class of a group that lists commands by panel, and loads the one that is called."""
    words = {name: word for panel in panels.values() for name, word in panel.items()}

    class LazyGroup(TyperGroup):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**{**settings, "commands": Commands(words)})

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            try:
                return super().resolve_command(ctx, args)
            except Exception as error:
                _put_right(error, args[0], MEANT, words)
                raise

        def list_commands(self, ctx: Any) -> list[str]:
            return list(words)

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            for panel, listed in panels.items():
                with formatter.section(panel):
                    for name, word in listed.items():
                        formatter.write(_listed(name, word, formatter.width))

        def shell_complete(self, ctx: Any, incomplete: str) -> Any:
            options = super(TyperGroup, self).shell_complete(ctx, incomplete)
            named = [Completion(name, word.help) for name, word in words.items() if name.startswith(incomplete)]
            return [*named, *options]

    return LazyGroup


def _put_right(error: Any, typed: str, table: Mapping[str, str], known: Container[str]) -> None:
    """Suggest Muster's command for a word of another tool, where there is one."""
    meant = table.get(typed, "")
    if meant and meant.split()[0] in known and hasattr(error, "message"):
        error.message = f"No such command {typed!r}. Did you mean {meant!r}?"


def _listed(name: str, word: Word, room: int) -> str:
    """A line of the list: a command's name, and what it does."""
    begin = " " * (_NAME + 3)
    help = textwrap.fill(word.help, room, initial_indent=f"  {name:<{_NAME}} ", subsequent_indent=begin)
    return f"{help}\n"


def choose_workspace(text: str | None) -> str | None:
    """Use the workspace that an option names from now on."""
    if text:
        os.environ["MUSTER_WORKSPACE"] = text
    return text


def with_workspace(function: Callable[..., None]) -> Callable[..., None]:
    """The command with `--workspace` also accepted after its name, where people look for it."""
    known = inspect.signature(function, eval_str=True)

    @wraps(function)
    def command(*args: Any, workspace: str | None = None, **kwargs: Any) -> None:
        choose_workspace(workspace)
        function(*args, **kwargs)

    kind = Annotated[
        str | None, typer.Option("--workspace", "-w", metavar="FOLDER|NAME", help=WORKSPACE_HELP, show_default=False)
    ]
    option = inspect.Parameter("workspace", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
    command.__annotations__ = {**function.__annotations__, "workspace": kind}
    command.__signature__ = known.replace(parameters=[*known.parameters.values(), option])  # type: ignore[attr-defined]
    return command


def load(name: str, word: Word) -> Command:
    """Import a command and turn it into one of typer's."""
    found = find(f"commands.{word.target}")
    if callable(found):
        app = typer.Typer(rich_markup_mode=None, add_completion=False)
        app.command(name, cls=ScriptCommand if word.takes_script else PlainCommand)(
            exits.guarded(with_workspace(found))
        )
        return cast(TyperCommand, typer.main.get_command(app))
    return _group(name, word, found)


def find(target: str) -> Any:
    """Import `module:attribute` below `cli`."""
    module, _, attribute = target.partition(":")
    return getattr(import_module(f"muster.cli.{module}"), attribute)


def _group(name: str, word: Word, functions: Sequence[Callable[..., None]]) -> Command:
    about = f"{word.help}\n\n\b\nExamples:\n  {word.example}"
    app = typer.Typer(
        name=name, cls=PlainGroup, rich_markup_mode=None, add_completion=False, no_args_is_help=True, help=about
    )
    for function in functions:
        app.command(function.__name__.rstrip("_"), cls=PlainCommand)(exits.guarded(with_workspace(function)))
    # A group even if it has only one command.
    made = typer.main.get_group(app)
    if word.otherwise:
        made.resolve_command = partial(_resolve, made, word.otherwise)  # type: ignore[method-assign]
    return made


def _resolve(group: TyperGroup, otherwise: str, ctx: Any, args: list[str]) -> Any:
    """The command that the first word names, or the default command."""
    is_known = args[0] in group.commands or args[0].startswith("-")
    return TyperGroup.resolve_command(group, ctx, args if is_known else [otherwise, *args])


class PlainGroup(TyperGroup):
    """A group whose list of commands shows whole sentences."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:
            _put_right(error, args[0], MEANT_IN_GROUPS, self.commands)
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        room = max(map(len, self.commands), default=0)
        begin = " " * (room + 4)
        with formatter.section("Commands"):
            for name, command in self.commands.items():
                first = f"  {name:<{room}}  "
                help = command.get_short_help_str(_WHOLE)
                formatter.write(
                    textwrap.fill(
                        help, formatter.width, initial_indent=first, subsequent_indent=begin, break_on_hyphens=False
                    )
                )
                formatter.write("\n")


class PlainCommand(TyperCommand):
    """A command whose errors name the refused value and the allowed ones, wrapped to the terminal."""

    about_options = ""
    """Additional hints for unknown options."""

    @property
    def _named_without_option(self) -> str:
        """The same for people who are used to `--name NAME`."""
        first = next((item for item in self.params if item.param_type_name == "argument"), None)
        return "Write the name without an option." if first is not None and first.name == "name" else ""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if hasattr(error, "format_message"):
                named = self._named_without_option if getattr(error, "option_name", "") in ("-n", "--name") else ""
                _put_plainly(error, named or self.about_options)
            raise


def _put_plainly(error: Any, about_options: str) -> None:
    found = getattr(error.__cause__, "errors", None)
    if found is not None:
        first = found()[0]
        error.message = refused_value(first["type"], first["input"], first.get("ctx", {}), first["msg"])
    if type(error).__name__ == "NoSuchOption" and about_options:
        error.message = f"{error.message.rstrip('.')}. {about_options}"
    message = folded(f"Error: {error.format_message()}", columns(sys.stderr)).removeprefix("Error: ")
    error.format_message = lambda: message


class ScriptCommand(PlainCommand):
    """A command with a script's arguments behind `--`."""

    about_options = "Arguments of the script go after `--`."
