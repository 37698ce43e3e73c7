"""Data assets and files of datastores: `muster data …`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from muster.cli.commands.files import Meter
from muster.cli.commands.imagenet import imagenet
from muster.cli.console import say
from muster.cli.options import Json, print_json
from muster.cli.text import counted, moment, size, table
from muster.client.connect import connect
from muster.client.storage import local_files
from muster.errors import Conflict, UserError
from muster.storage.addresses import DEFAULT_DATASTORE, parse_address
from muster.wire.access import FileEntry
from muster.wire.assets import AssetView, NewAsset
from muster.wire.codec import to_json

Asset = Annotated[str, typer.Argument(metavar="ASSET", help="NAME, NAME:VERSION or NAME@latest.", show_default=False)]


def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The asset's name.", show_default=False)],
    path: Annotated[
        str, typer.Option("--path", metavar="PATH", help="A local file or folder, which is copied, or an address.")
    ],
    version: Annotated[str | None, typer.Option(metavar="VERSION", help="Its version; the next number else.")] = None,
    kind: Annotated[
        Literal["uri_file", "uri_folder", "mltable"] | None,
        typer.Option("--type", metavar="TYPE", help="uri_file, uri_folder or mltable; as found else."),
    ] = None,
    datastore: Annotated[
        str | None, typer.Option(metavar="NAME", help="Where a local path is copied to; the workspace's own else.")
    ] = None,
    description: Annotated[str | None, typer.Option(metavar="TEXT", help="A word about it.")] = None,
    as_json: Json = False,
) -> None:
    """Make the next version of a data asset. It never changes: sizes and hashes of all files are kept.

    \b
    Examples:
      muster data create digits --path ./images
      muster data create images --path azureml://datastores/scratch --version 2012
    """
    storage = connect().storage
    asset = NewAsset(name, "", version, kind, description)
    if parse_address(path).kind == "local" and not path.startswith("file:"):
        source = Path(path).expanduser()
        meter = Meter(sum(file.stat().st_size for _, file in local_files(source)))
        made = storage.upload_asset(source, asset, datastore or DEFAULT_DATASTORE, meter.add)
        meter.end()
    else:
        made = storage.create_asset(replace(asset, address=path))
    if as_json:
        print_json(made)
        return
    say(f"azureml:{made.name}:{made.version}: {_amount(made)} at {made.address}")


def list_(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="All versions of it.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """List data assets: the newest version of each, or all versions of one.

    \b
    Examples:
      muster data list
      muster data list digits
    """
    storage = connect().storage
    found = storage.assets(name)
    if name is not None and not found:
        # Says what there is instead.
        storage.asset(name)
    if name is None:
        newest: dict[str, AssetView] = {}
        for item in found:
            newest.setdefault(item.name, item)
        found = list(newest.values())
    if as_json:
        print_json(found)
        return
    now = time.time()
    rows = [[_title(item), item.type, _amount(item), moment(item.created_at, now), item.address] for item in found]
    print("\n".join(table(["ASSET", "TYPE", "SIZE", "MADE", "WHERE"], rows)))


def show(
    asset: Asset,
    files: Annotated[
        bool, typer.Option("--files", help="List its files with their hashes.", show_default=False)
    ] = False,
    as_json: Json = False,
) -> None:
    """Tell about one version of a data asset.

    \b
    Examples:
      muster data show digits
      muster data show digits:1 --files
    """
    storage = connect().storage
    name, version = _split(asset)
    found = storage.asset(name, version)
    manifest = storage.manifest(name, found.version) if files or as_json else ()
    if as_json:
        print_json({**to_json(found), "files": manifest})
        return
    for key in ("name", "version", "type", "address", "description", "digest", "created_by"):
        if value := getattr(found, key):
            print(f"{key:<12} {value}")
    print(f"{'holds':<12} {_amount(found)}")
    if not found.digest:
        print(f"{'hashes':<12} of some files are taken at the first download, and hold from then on")
    if files:
        print("\n".join(table(["FILE", "BYTES", "SHA256"], [_row(item) for item in manifest])))


def upload(
    source: Annotated[Path, typer.Argument(metavar="PATH", help="A local file or folder.", show_default=False)],
    target: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="azureml://datastores/NAME/paths/…", show_default=False)
    ],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Also where files of that name are there.", show_default=False)
    ] = False,
) -> None:
    """Copy a file or folder into a datastore, verified.

    \b
    Examples:
      muster data upload ./images azureml://datastores/workspaceblobstore/paths/digits
    """
    location = parse_address(target)
    if location.kind != "datastore":
        raise UserError(f"{target} is no place in a datastore.", "Write azureml://datastores/NAME/paths/….")
    source = source.expanduser()
    meter = Meter(sum(file.stat().st_size for _, file in local_files(source)))
    try:
        sent = connect().storage.upload(source, location.store, location.path, meter.add, fresh=not overwrite)
    except Conflict as error:
        hint = "Choose another place, or --overwrite what is there." if not overwrite else error.hint
        raise Conflict(error.message, hint) from error
    meter.end()
    say(f"{counted(len(sent), 'file')}, {size(meter.done)} at {target}")


def download(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="An asset, or azureml://datastores/NAME/paths/…")],
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Where to; a folder of that name else.")
    ] = None,
) -> None:
    """Copy a data asset, or a file or folder of a datastore, here. An asset's files are verified.

    \b
    Examples:
      muster data download digits --to ./copy
      muster data download azureml://datastores/workspaceblobstore/paths/digits
    """
    storage = connect().storage
    meter = Meter(0)
    if "://" not in what:
        name, version = _split(what)
        root = to or Path(name)
        got = storage.download_asset(name, version, root, meter.add, meter.expect)[1]
    else:
        location = parse_address(what)
        if location.kind != "datastore":
            raise UserError(
                f"{what} is neither an asset nor a place in a datastore.", "Write NAME:VERSION or azureml://…."
            )
        root = to or Path(location.path.rpartition("/")[2] or location.store)
        got = storage.download_path(location.store, location.path, root, meter.add, meter.expect)
    meter.end()
    print(f"{counted(len(got), 'file')}, {size(meter.done)} in {root}")


def _split(asset: str) -> tuple[str, str | None]:
    location = parse_address(f"azureml:{asset.removeprefix('azureml:')}")
    return location.store, location.version


def _title(item: AssetView) -> str:
    return f"{item.name}:{item.version}"


def _amount(item: AssetView) -> str:
    return f"{counted(item.num_files, 'file')}, {size(item.size)}"


def _row(item: FileEntry) -> list[str]:
    return [item.path or ".", f"{item.size:,}", item.sha256 or "not known yet"]


COMMANDS: dict[str, Callable[..., None]] = {
    "create": create,
    "list": list_,
    "show": show,
    "upload": upload,
    "download": download,
    "imagenet": imagenet,
}
