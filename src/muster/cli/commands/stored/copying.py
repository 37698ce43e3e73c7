"""`muster data cp`, `sync`, `upload`, `download`: copies to, from and between datastores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from muster.cli.commands.files import Meter
from muster.cli.console import notice, print_lines, say
from muster.cli.options import Json, argument, option, print_json, switch
from muster.cli.text import counted, size
from muster.client.connect import connect
from muster.client.storage import Storage
from muster.client.transfer.copying import Choices, Prepared, carry_out, prepare
from muster.client.transfer.places import parse_place, stored
from muster.errors import UserError
from muster.wire.codec import Json as Value
from muster.wire.text import printable

Overwrite = Annotated[bool, switch("Replace files that differ.", "--overwrite")]
NoIgnore = Annotated[bool, switch("Copy what .amlignore and .gitignore name, too.", "--no-ignore")]
DryRun = Annotated[bool, switch("Only say what would be done.", "--dry-run")]
Recursive = Annotated[bool, switch("As other tools have it: folders are copied whole anyway.", "-r", "--recursive")]
SHOWN = 50
"""How many lines a dry run prints for people."""


def cp(
    source: Annotated[str, argument("SOURCE", "A local path, azureml://…, azureml:ASSET:VERSION, https://… or s3://…")],
    target: Annotated[str, argument("TARGET", "A local path or azureml://datastores/NAME/paths/…")],
    overwrite: Overwrite = False,
    no_ignore: NoIgnore = False,
    dry_run: DryRun = False,
    recursive: Recursive = False,
    as_json: Json = False,
) -> None:
    """Copy a file or folder to, from or between datastores: in parallel, verified, directly where possible.

    One file gets the target's name, or goes into a folder that is there or ends in a slash. The files of a folder go
    below the target. What is there with the same content is skipped; what differs is refused without --overwrite. A
    copy that was interrupted goes on when it is typed again.

    \b
    Examples:
      muster data cp ./images azureml://datastores/workspaceblobstore/paths/photos
      muster data cp azureml://datastores/workspaceblobstore/paths/photos ./photos --dry-run
      muster data cp azureml:digits@latest ./digits
    """
    prepared = _copy(source, target, Choices(overwrite, not no_ignore), dry_run, as_json)
    if as_json:
        print_json(_report(prepared, dry_run))


def sync(
    source: Annotated[str, argument("SOURCE", "A folder: local, azureml://…, an asset, s3://…")],
    target: Annotated[str, argument("TARGET", "A folder: local, or azureml://datastores/NAME/paths/…")],
    delete: Annotated[bool, switch("Remove at the target what the source does not have.", "--delete")] = False,
    no_ignore: NoIgnore = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Make a folder hold what another holds: copy what is new or differs, leave the rest alone.

    \b
    Examples:
      muster data sync ./images azureml://datastores/workspaceblobstore/paths/photos
      muster data sync ./images azureml://datastores/workspaceblobstore/paths/photos --delete --dry-run
    """
    prepared = _copy(source, target, Choices(True, not no_ignore, delete, folders=True), dry_run, as_json)
    if as_json:
        print_json(_report(prepared, dry_run))


def upload(
    source: Annotated[Path, argument("PATH", "A local file or folder.")],
    target: Annotated[str, argument("ADDRESS", "azureml://datastores/NAME/paths/…")],
    overwrite: Overwrite = False,
    no_ignore: NoIgnore = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Copy a local file or folder into a datastore, as `muster data cp` does.

    \b
    Examples:
      muster data upload ./images azureml://datastores/workspaceblobstore/paths/digits
    """
    stored(target, "an upload")
    prepared = _copy(str(source), target, Choices(overwrite, not no_ignore), dry_run, as_json)
    if as_json:
        report = _report(prepared, dry_run)
        print_json({**report, "address": target, "files": report["copied"]})


def download(
    what: Annotated[str, argument("WHAT", "An asset, or azureml://datastores/NAME/paths/…")],
    to: Annotated[
        Path | None, option("DIR", "Target folder (default: of that name; for one file: here).", "--to")
    ] = None,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Copy a data asset, or a file or folder of a datastore, into a folder here, as `muster data cp` does.

    \b
    Examples:
      muster data download digits --to ./copy
      muster data download azureml://datastores/workspaceblobstore/paths/digits
    """
    address = what if "://" in what or what.startswith("azureml:") else f"azureml:{what}"
    prepared = _copy(address, "", Choices(overwrite), dry_run, as_json, into=to)
    if as_json:
        report, folder = _report(prepared, dry_run), str(prepared.landing.folder)
        print_json({**report, "folder": folder, "files": len(prepared.plan.copies)})


def _copy(source: str, target: str, choices: Choices, dry_run: bool, quiet: bool, into: Path | None = None) -> Prepared:
    """Copy, or only print what would be done; `quiet` leaves the result to the caller."""
    storage = Storage(connect().calls)
    if not target:
        target = _folder_for(storage, source, into)
    with _metered() as meter:
        prepared = prepare(storage, source, target, choices, meter)
        if not dry_run:
            carry_out(prepared, storage, meter)
    _tell_left_out(prepared)
    if dry_run and not quiet and (lines := list(_listed(prepared))):
        print_lines(lines)
    if not quiet:
        say(_summary(prepared, dry_run))
    return prepared


@contextmanager
def _metered() -> Iterator[Meter]:
    meter = Meter(0)
    try:
        yield meter
    except KeyboardInterrupt:
        meter.end()
        say("stopped; the same command goes on from here")
        raise
    finally:
        meter.end()


def _folder_for(storage: Storage, source: str, into: Path | None) -> str:
    """The target folder of a download: named after the source, unless one is given."""
    location = parse_place(source)
    if location.kind not in ("store", "asset"):
        raise UserError(
            f"{source} is neither an asset nor a path in a datastore.", "Write NAME:VERSION or azureml://…."
        )
    if location.kind == "asset":
        one, own = storage.asset(location.store, location.version).type == "uri_file", location.name
    else:
        one = bool(location.path) and storage.is_file(location.store, location.path)
        own = "." if one else location.name
    folder = into if into is not None else Path(own)
    return f"{folder}/" if one else str(folder)


def _tell_left_out(prepared: Prepared) -> None:
    found = prepared.opened.found
    if found.ignored:
        first = ", ".join(found.ignored[:3]) + (", …" if len(found.ignored) > 3 else "")
        notice(f"left out, named by an ignore file: {first} (--no-ignore copies it)")
    for names, what in (
        (found.left_out, "links to folders, pipes and the like"),
        (found.outside, "links that lead out of the datastore"),
        (found.empty, "empty folders, which storages do not know"),
    ):
        if names:
            more = ", …" if len(names) > 3 else ""
            notice(f"left out, {what}: {', '.join(map(printable, names[:3]))}{more}")


def _listed(prepared: Prepared) -> Iterable[str]:
    plan = prepared.plan
    lines = [f"copy    {size(copy.entry.size):>8}  {printable(copy.name)}" for copy in plan.copies]
    lines += [f"remove  {'':>8}  {printable(name)}" for name in plan.removals]
    return [*lines[:SHOWN], *([f"… and {len(lines) - SHOWN:,} more (--json lists all)"] if len(lines) > SHOWN else [])]


def _summary(prepared: Prepared, dry_run: bool) -> str:
    plan = prepared.plan
    would = "would " if dry_run else ""
    done = "copy" if dry_run else "copied"
    parts = [f"{would}{done} {counted(len(plan.copies), 'file')}, {size(plan.size)} to {prepared.label}"]
    if not plan.copies:
        parts = [f"nothing to copy to {prepared.label}"]
    if plan.same:
        parts.append(f"{counted(len(plan.same), 'file')} there already with the same content")
    if plan.removals:
        parts.append(f"{would}remove{'' if dry_run else 'd'} {counted(len(plan.removals), 'file')}")
    return "; ".join(parts)


def _report(prepared: Prepared, dry_run: bool) -> dict[str, Value]:
    plan = prepared.plan
    return {
        "target": prepared.label,
        "copied": [{"path": copy.name, "size": copy.entry.size} for copy in plan.copies],
        "bytes": plan.size,
        "same": list(plan.same),
        "removed": list(plan.removals),
        "ignored": list(prepared.opened.found.ignored),
        "dry_run": dry_run,
    }
