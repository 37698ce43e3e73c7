"""Encryption at rest: `muster key …`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from muster.cli.console import say
from muster.cli.options import Json, argument, option, print_json, print_result
from muster.client.connect import connect, connect_to_read
from muster.errors import Conflict, UserError
from muster.store.keyring import new_key
from muster.wire.encryption import NewKey

File = Annotated[Path, argument("FILE", "Where the key goes; must not exist.")]
KeyFile = Annotated[Path | None, option("FILE", "Read the new key from this file.", "--file")]
KeyEnv = Annotated[str | None, option("NAME", "The server reads it from this variable.", "--env")]
KeyCommand = Annotated[str | None, option("COMMAND", "The server runs this command, which prints it.", "--command")]


def create(file: File, as_json: Json = False) -> None:
    """Create a key in a file that only its owner may read.

    \b
    Examples:
      muster key create store.key
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Conflict(f"{file} exists; a key that is overwritten is lost.", "Choose another name.") from None
    with os.fdopen(descriptor, "w") as out:
        out.write(new_key() + "\n")
    say(f"a new key is in {file}: keep a copy elsewhere, since nothing can be read without it")
    say(f'"encryption": {{"key_file": "{file.resolve()}"}} in workspace.json has the workspace encrypt what it stores,')
    say("from the next start of its server on: `muster down`")
    if as_json:
        print_json({"file": str(file.resolve())})


def show(as_json: Json = False) -> None:
    """Show whether the workspace store is encrypted, and with which key; never the key itself.

    \b
    Examples:
      muster key show
    """
    found = connect_to_read().encryption()
    rotating = "; older keys are being replaced" if found.rotating else ""
    line = f"encrypted with the key {found.key}, from {found.source}{rotating}"
    if not found.encrypted:
        line = "not encrypted; `muster key create FILE` makes a key and says how it is used"
    print_result(found, [line], as_json)


def rotate(
    key_file: KeyFile = None, key_env: KeyEnv = None, key_command: KeyCommand = None, as_json: Json = False
) -> None:
    """Change the workspace's key: the key of each stored file is wrapped again, and no content is rewritten.

    \b
    Examples:
      muster key rotate --file new.key
    """
    given = NewKey(str(key_file.resolve()) if key_file else None, key_env or None, key_command or None)
    if len([value for value in (key_file, key_env, key_command) if value]) != 1:
        raise UserError("a new key has exactly one source.", "Give one of --file, --env and --command.")
    done = connect().rotate_key(given)
    old = "is still needed until the server's next start" if done.rotating else "is no longer needed"
    say(f"{done.files:,} files have the key {done.key} now; the old key {old}")
    if as_json:
        print_json(done)


def secrets(as_json: Json = False) -> None:
    """Change the key that seals secrets and the credentials of datastores, where the workspace keeps it itself.

    Grants that were made before end with the server.

    \b
    Examples:
      muster key secrets
    """
    done = connect().rotate_secrets()
    say(f"{done.count:,} secrets and credentials are sealed with the key {done.key} now")
    if as_json:
        print_json(done)


COMMANDS = (create, show, rotate, secrets)
