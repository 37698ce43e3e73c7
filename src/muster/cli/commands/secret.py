"""Secrets: `muster secret …`."""

from __future__ import annotations

import getpass
import sys
import time
from typing import Annotated

import typer

from muster.cli.console import say
from muster.cli.options import Json, argument, print_json, print_result
from muster.cli.text import moment, table
from muster.client.connect import connect, connect_to_read
from muster.errors import UserError

Name = Annotated[str, argument("NAME", "Letters, digits and '_'.")]


def set_(
    name: Name,
    shared: Annotated[
        bool | None,
        typer.Option("--shared/--private", help="Whether jobs of everybody may use it.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Set or replace a secret. Its value is prompted for, or read from standard input.

    A job gets it by name: environment_variables: {TOKEN: "${{secrets.NAME}}"}. The value is masked in the
    output of its processes. Only your own jobs get it, unless it is shared.

    \b
    Examples:
      muster secret set HF_TOKEN < token.txt
      muster secret set HF_TOKEN --shared < token.txt
    """
    if sys.stdin.isatty():
        value = getpass.getpass(f"value of {name} (not shown): ")
    else:
        value = sys.stdin.read().removesuffix("\n")
    if not value:
        raise UserError(f"no value was given for {name}.", "Type it, or write it to standard input.")
    connect().set_secret(name, value, shared)
    say(f"secret {name} is set; jobs name it as ${{{{secrets.{name}}}}} in environment_variables")
    if as_json:
        print_json({"set": name})


def list_(as_json: Json = False) -> None:
    """List the names of secrets and when they were set.

    \b
    Examples:
      muster secret list
    """
    found = connect_to_read().secrets()
    now = time.time()
    rows = [
        [
            item.name,
            moment(item.updated_at, now),
            item.updated_by or "",
            "everybody" if item.shared else item.owner or "",
        ]
        for item in found
    ]
    lines = (
        table(["NAME", "SET", "BY", "FOR JOBS OF"], rows)
        if rows
        else ["no secrets yet; `muster secret set NAME` makes one"]
    )
    print_result(found, lines, as_json)


def rm(name: Name, as_json: Json = False) -> None:
    """Remove a secret; jobs that name it are refused from then on.

    \b
    Examples:
      muster secret rm HF_TOKEN
    """
    connect().remove_secret(name)
    say(f"secret {name} is removed")
    if as_json:
        print_json({"removed": name})


COMMANDS = (set_, list_, rm)
