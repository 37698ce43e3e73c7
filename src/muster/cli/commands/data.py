"""Data assets and files of datastores: `muster data …`."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from muster.cli.commands.files import Meter
from muster.cli.commands.imagenet import imagenet
from muster.cli.commands.shards.packing import index, pack
from muster.cli.commands.stored.assets import archive, diff
from muster.cli.commands.stored.copying import cp, download, sync, upload
from muster.cli.commands.stored.listing import cat, du, ls, rm, watch
from muster.cli.console import columns, say
from muster.cli.options import Json, argument, option, print_json, print_result, switch
from muster.cli.text import counted, moment, size, table
from muster.cli.views.columns import Column, fit
from muster.client.connect import connect
from muster.client.storage import Storage, local_files
from muster.errors import UserError
from muster.job.assets.data import read_data_file
from muster.storage.addresses import DEFAULT_DATASTORE, parse_address
from muster.wire.codec import to_json
from muster.wire.data.assets import AssetView, NewAsset
from muster.wire.text import printable

Asset = Annotated[str, argument("ASSET", "NAME, NAME:VERSION or NAME@latest.")]


def create(
    name: Annotated[str | None, argument("NAME", "The asset's name.")] = None,
    path: Annotated[
        str | None, option("PATH", "A local file or folder, which is copied, or an address.", "--path")
    ] = None,
    file: Annotated[
        str | None, option("FILE", "A data asset's file (.yml); options win over it.", "-f", "--file")
    ] = None,
    version: Annotated[str | None, option("VERSION", "Its version (default: the next number).")] = None,
    kind: Annotated[
        Literal["uri_file", "uri_folder", "mltable"] | None,
        option("TYPE", "uri_file, uri_folder or mltable (default: as found).", "--type"),
    ] = None,
    datastore: Annotated[
        str | None, option("NAME", "Where a local path is copied to (default: the workspace's own).")
    ] = None,
    description: Annotated[str | None, option("TEXT", "A description.")] = None,
    as_json: Json = False,
) -> None:
    """Create the next version of a data asset, which never changes: sizes and hashes of its files are kept.

    \b
    Examples:
      muster data create digits --path ./images
      muster data create images --path azureml://datastores/scratch --version 2012
      muster data create --file data.yml
    """
    asset, path = _described(name, path, file)
    asset = replace(
        asset, version=version or asset.version, type=kind or asset.type, description=description or asset.description
    )
    storage = Storage(connect().calls)
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


def _described(name: str | None, path: str | None, file: str | None) -> tuple[NewAsset, str]:
    """The asset of a file, or of a name and a path; the command line wins."""
    if file is None:
        if name is None or path is None:
            missing = "a name" if name is None else "where the data is (--path)"
            raise UserError(f"{missing} is missing", "`muster data create NAME --path PATH`, or --file FILE.")
        return NewAsset(name, ""), path
    asset_file = read_data_file(Path(file), name)
    asset = NewAsset(
        asset_file.name, "", asset_file.version, asset_file.type, asset_file.description, tags=asset_file.tags
    )
    return asset, path or asset_file.path


def list_(
    name: Annotated[str | None, argument("NAME", "Show all versions of this asset.")] = None,
    archived: Annotated[bool, switch("Archived versions, too.", "--archived")] = False,
    as_json: Json = False,
) -> None:
    """List data assets: the newest version of each, or all versions of one.

    \b
    Examples:
      muster data list
      muster data list digits
    """
    storage = Storage(connect().calls)
    found = storage.assets(name, archived)
    if name is not None and not found:
        # Raises an error that lists what exists.
        storage.asset(name)
    if name is None:
        newest: dict[str, AssetView] = {}
        for item in found:
            newest.setdefault(item.name, item)
        found = list(newest.values())
    now = time.time()
    rows = [
        [
            f"{item.name}:{item.version}",
            f"{item.type}{', archived' if item.archived_at else ''}",
            _amount(item),
            moment(item.created_at, now),
            item.address,
        ]
        for item in found
    ]
    heads = [
        Column("ASSET", 12), Column("TYPE", leaves=3), Column("SIZE", leaves=1), Column("MADE", leaves=2),
        Column("WHERE", 24, leaves=4),
    ]  # fmt: skip
    print_result(found, fit(heads, rows, columns(sys.stdout)) if rows else [_without_assets(storage)], as_json)


def _without_assets(storage: Storage) -> str:
    if storage.assets(None, True):
        return "all data assets are archived; `muster data list --archived` shows them"
    return "no data assets yet; `muster data create NAME --path …` makes one"


def show(
    asset: Asset,
    files: Annotated[bool, switch("List its files with their hashes.", "--files")] = False,
    as_json: Json = False,
) -> None:
    """Show one version of a data asset.

    \b
    Examples:
      muster data show digits
      muster data show digits:1 --files
    """
    storage = Storage(connect().calls)
    name, version = _split(asset)
    found = storage.asset(name, version)
    manifest = storage.manifest(name, found.version) if files or as_json else ()
    if as_json:
        print_json({**to_json(found), "files": manifest})
        return
    for key in ("name", "version", "type", "address", "description", "digest", "created_by"):
        if value := getattr(found, key):
            print(f"{key:<12} {printable(value)}")
    print(f"{'holds':<12} {_amount(found)}")
    if not found.digest:
        print(f"{'hashes':<12} of some files are computed at the first download, and checked from then on")
    if files:
        rows = [[printable(item.path) or ".", f"{item.size:,}", item.sha256 or "not known yet"] for item in manifest]
        print("\n".join(table(["FILE", "BYTES", "SHA256"], rows)))


def _split(asset: str) -> tuple[str, str | None]:
    location = parse_address(f"azureml:{asset.removeprefix('azureml:')}")
    return location.store, location.version


def _amount(item: AssetView) -> str:
    return f"{counted(item.num_files, 'file')}, {size(item.size)}"


COMMANDS = (
    *(create, list_, show, diff, archive, cp, sync, ls, du, cat, rm, watch, upload, download, pack, imagenet, index),
)
