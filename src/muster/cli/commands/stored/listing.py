"""`muster data ls`, `du`, `cat`, `rm`, `watch`: files in datastores."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from muster.cli.commands.stored.assets import remove_asset
from muster.cli.console import notice, print_lines, say
from muster.cli.options import Json, argument, option, print_json, print_result, seconds_of, switch
from muster.cli.text import counted, moment, size, table
from muster.client.connect import connect, connect_to_read
from muster.client.storage import Storage
from muster.client.transfer.copying import find_stored, remove
from muster.client.transfer.looking import Shown, changes, content, entries_of, level
from muster.client.transfer.places import Place, parse_place, stored
from muster.errors import NotFound, UserError
from muster.wire.data.access import FileEntry
from muster.wire.text import printable

Address = Annotated[str, argument("ADDRESS", "azureml://datastores/NAME/paths/…, azureml:ASSET:VERSION, s3://…")]


def ls(
    address: Address,
    recursive: Annotated[bool, switch("Every file below, not only the first level.", "--recursive", "-r")] = False,
    as_json: Json = False,
) -> None:
    """List what is at an address: files, and folders with what they contain.

    \b
    Examples:
      muster data ls azureml://datastores/workspaceblobstore
      muster data ls azureml:digits@latest --recursive
    """
    entries = _entries(address)
    found = [Shown(entry.path, entry.size) for entry in entries] if recursive else level(entries)
    rows = [
        [size(item.size), f"{item.files:,}" if item.name.endswith("/") else "", printable(item.name)] for item in found
    ]
    if found or as_json:
        print_result(found, table(["SIZE", "FILES", "NAME"], rows), as_json)
    if not found:
        say(f"{address} is empty")


def du(address: Address, as_json: Json = False) -> None:
    """Show how much data is at an address, and in each of its folders.

    \b
    Examples:
      muster data du azureml://datastores/workspaceblobstore
    """
    entries = _entries(address)
    total = Shown("total", sum(entry.size for entry in entries), len(entries))
    folders = [item for item in level(entries) if item.name.endswith("/")]
    found = [*sorted(folders, key=lambda item: -item.size), total]
    rows = [[size(item.size), f"{item.files:,}", printable(item.name)] for item in found]
    print_result(found, table(["SIZE", "FILES", "NAME"], rows), as_json)


def cat(
    addresses: Annotated[list[str], argument("ADDRESS", "Files: azureml://…, https://…, s3://…")],
) -> None:
    """Write files of datastores to standard output, one after the other.

    \b
    Examples:
      muster data cat azureml://datastores/workspaceblobstore/paths/photos/one.txt
    """
    storage = Storage(connect_to_read().calls)
    for address in addresses:
        for piece in content(storage, parse_place(address)):
            sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def rm(
    address: Annotated[str, argument("ADDRESS", "azureml://datastores/NAME/paths/…, or an asset as NAME:VERSION.")],
    recursive: Annotated[bool, switch("A folder, with all that is below it.", "--recursive", "-r")] = False,
    yes: Annotated[bool, switch("Do not ask.", "--yes", "-y")] = False,
    dry_run: Annotated[bool, switch("Only say what would be removed.", "--dry-run")] = False,
    as_json: Json = False,
) -> None:
    """Remove a file or folder of a datastore, or a version of a data asset that no active run uses.

    What a data asset or a model holds stays; the number of a version that was removed is not used again.

    \b
    Examples:
      muster data rm azureml://datastores/workspaceblobstore/paths/photos --recursive --yes
      muster data rm digits:1 --dry-run
    """
    storage = Storage(connect().calls)
    if "://" not in address and ":" in address:
        uses = remove_asset(storage, address, yes, _ask, dry_run)
        if as_json:
            print_json({"asset": address, "uses": uses, "dry_run": dry_run})
        return
    location = stored(address, "rm")
    location, seen = find_stored(storage, location)
    found = seen.files
    if not found:
        raise NotFound(f"{location}: there is no file.", "Check the name of the datastore.")
    is_file = not found[0].path
    if not is_file and not recursive:
        raise UserError(f"{location} is a folder with {counted(len(found), 'file')}.", "Remove it with --recursive.")
    root, names = (location.parent, [location.name]) if is_file else (location, [entry.path for entry in found])
    what = f"{counted(len(names), 'file')}, {size(sum(entry.size for entry in found))} at {location}"
    if not dry_run:
        _ask(what, yes)
        remove(storage, root, names)
    if as_json:
        print_json({"address": str(location), "removed": names, "dry_run": dry_run})
        return
    say(f"{'would be removed' if dry_run else 'removed'}: {what}")


def watch(
    address: Address,
    every: Annotated[str, option("TIME", "How often to check.", "--every")] = "5s",
    lasts: Annotated[str | None, option("TIME", "For how long (default: until Ctrl-C).", "--for")] = None,
    as_json: Json = False,
) -> None:
    """Watch an address, and print which files are added, changed and removed.

    \b
    Examples:
      muster data watch azureml://datastores/workspaceblobstore/paths/photos --for 2s --every 1s
    """
    storage, location = Storage(connect().calls), parse_place(address)
    pause_s, end = seconds_of("--every", every), seconds_of("--for", lasts) if lasts else None
    deadline = time.monotonic() + end if end is not None else None
    before = _files_at(storage, location)
    say(f"{counted(len(before), 'file')} at {address} now; looking every {every}")
    while deadline is None or time.monotonic() < deadline:
        time.sleep(pause_s if deadline is None else max(0.0, min(pause_s, deadline - time.monotonic())))
        now = _files_at(storage, location)
        for change in changes(before, now):
            if as_json:
                print_json(change)
            else:
                at = moment(time.time(), time.time())
                print_lines([f"{at}  {change.what:<7}  {size(change.size):>8}  {printable(change.path)}"])
        before = now


def _entries(address: str) -> tuple[FileEntry, ...]:
    """Every file at an address; links that lead out of a datastore are reported."""
    found = entries_of(Storage(connect_to_read().calls), parse_place(address))
    if found.left_out:
        notice(f"left out, links that lead out of the datastore: {', '.join(map(printable, found.left_out[:3]))}")
    return found.files


def _files_at(storage: Storage, location: Place) -> dict[str, FileEntry]:
    """The files at a location; one that does not exist yet has none."""
    try:
        return {entry.path: entry for entry in entries_of(storage, location).files}
    except NotFound:
        if location.kind == "store":
            storage.datastore(location.store)
        return {}


def _ask(what: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UserError("there is no terminal to ask whether to remove.", "Say it with --yes.")
    if not typer.confirm(f"Remove {what}?", default=False, err=True):
        raise typer.Exit(1)
