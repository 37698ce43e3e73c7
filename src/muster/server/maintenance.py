"""Maintains a workspace without its server: `python -m muster.server.maintenance backup|restore|repair`."""

from __future__ import annotations

import argparse
import json
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from muster import errors
from muster.defaults import BACKUPS_KEPT
from muster.host.files import PRIVATE, unpack, write_file, write_json
from muster.host.locks import FileLock
from muster.paths import WorkspacePaths
from muster.server.data.state import WorkspaceFiles
from muster.server.data.workspace_store import open_workspace_store
from muster.server.database import backup
from muster.server.database.connection import Database, sqlite_file
from muster.server.database.faults import explained
from muster.server.database.integrity import problem
from muster.server.runs.repair import Rebuilt, rebuild
from muster.store.keyring import load_keyring, read_config
from muster.store.snapshots import Snapshots
from muster.store.streams import Streams
from muster.version import VERSION

_DATABASE = "muster.db"
_ABOUT = "backup.json"
_CONFIG = "workspace.json"
_KEPT_HERE = ("database", "store", "store_options")
"""Keys of workspace.json with locations, which a restore leaves unchanged."""


def main() -> None:
    options = _arguments()
    paths = WorkspacePaths(Path(options.workspace).resolve())
    try:
        if options.command == "backup":
            make_backup(paths, options.file)
        elif options.command == "restore":
            restore(paths, options.file)
        else:
            repair(paths)
    except errors.MusterError as error:
        _fail(error)
    except SQLAlchemyError as error:
        _fail(explained(error))
    except OSError as error:
        _fail(error)


def make_backup(paths: WorkspacePaths, file: Path | None) -> Path:
    """Write the database with the workspace's keys and settings to one file; a server may be running."""
    config = _config(paths)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    target = file or Path(f"muster-backup-{config['name']}-{stamp}.tar")
    if target.exists():
        raise errors.Conflict(f"{target} exists already", "Choose another name, or remove it.")
    with tempfile.TemporaryDirectory(dir=target.absolute().parent, prefix=".muster-backup-") as folder:
        copy = Path(folder) / _DATABASE
        backup.copy_to_file(_database_url(paths, config), copy)
        if trouble := problem(copy):
            raise errors.UserError(f"the database is damaged, and so would be its copy: {trouble}", "`muster repair`.")
        about = Path(folder) / _ABOUT
        write_json(about, {"muster": VERSION, "workspace": config["id"], "made_at": time.time()})
        archive = Path(folder) / "archive"
        with tarfile.open(archive, "w") as tar:
            for name, path in [(_ABOUT, about), (_DATABASE, copy), *_small_files(paths)]:
                tar.add(path, arcname=name)
        archive.chmod(PRIVATE)
        archive.replace(target)
    print(f"{target}  {target.stat().st_size / (1 << 20):.1f} MiB")
    print(
        "It holds the keys of the workspace: keep it as safe as them.\nThe files of runs are in the store, not in it."
    )
    return target


def restore(paths: WorkspacePaths, file: Path) -> None:
    """Restore the workspace from a backup; what that replaces is kept aside."""
    config = _config(paths)
    aside = _aside(paths, "before-restore")
    with _alone(paths), tempfile.TemporaryDirectory(prefix="muster-restore-") as folder:
        _unpack(file, Path(folder))
        paths.server_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        backup.put_back(Path(folder) / _DATABASE, _database_url(paths, config), aside)
        _put_small_files(paths, Path(folder), aside)
        database, files = _open(paths)
        try:
            found = rebuild(database, files)
        finally:
            database.close()
    print(f"restored from {file}")
    if aside.exists():
        print(f"what was here before is kept in {aside}")
    _report(found)


def repair(paths: WorkspacePaths) -> None:
    """Replace a damaged database by an intact one, and restore runs from the store."""
    url = _database_url(paths, _config(paths))
    file = sqlite_file(url)
    with _alone(paths):
        if file is not None and (trouble := problem(file)):
            _replace_damaged(paths, file, url, trouble)
        database, files = _open(paths)
        try:
            found = rebuild(database, files)
        finally:
            database.close()
        # A server need not check it again.
        paths.server_info.unlink(missing_ok=True)
    _report(found)


def _replace_damaged(paths: WorkspacePaths, file: Path, url: str, trouble: str) -> None:
    aside = _aside(paths, "damaged")
    print(f"the database is damaged: {trouble}")
    copy = backup.AutomaticBackups(paths.backups, BACKUPS_KEPT).newest_whole()
    if copy is not None:
        backup.put_back(copy, url, aside)
        made = time.strftime("%d %b %H:%M:%S", time.localtime(copy.stat().st_mtime))
        print(f"taken from the automatic backup of {made} ({copy})")
    else:
        backup.move_aside(file, aside)
        print("there is no automatic backup of it: it starts again with what the store has")
    print(f"the damaged one is kept in {aside}")


def _report(found: Rebuilt) -> None:
    for ids, what in (
        (found.added, "put back from the store"),
        (found.renewed, "brought up to date from the store"),
        (found.without_record, "left as files only: the store has no record of"),
    ):
        if ids:
            print(f"{what}: {len(ids)} run{'' if len(ids) == 1 else 's'}")
            print("\n".join(f"  {run_id}" for run_id in ids))
    if not (found.added or found.renewed):
        print("the store has no run that the database lacks")


def _open(paths: WorkspacePaths) -> tuple[Database, WorkspaceFiles]:
    config = _config(paths)
    ring = load_keyring(read_config(config), paths.root)
    store = open_workspace_store(config.get("store") or str(paths.store), config, ring)
    streams = store.local_root / "runs" if store.local_root else paths.server_dir / "streams"
    database = Database(_database_url(paths, config))
    return database, WorkspaceFiles(store, Snapshots(store), Streams(streams, ring), ring)


def _config(paths: WorkspacePaths) -> dict[str, str]:
    try:
        found: dict[str, str] = json.loads(paths.config.read_text())
    except (OSError, ValueError) as error:
        raise errors.UserError(f"{paths.config} cannot be read: {error}", "Restore it first.") from error
    return found


def _database_url(paths: WorkspacePaths, config: dict[str, str]) -> str:
    return config.get("database") or f"sqlite:///{paths.database}"


def _small_files(paths: WorkspacePaths) -> Iterator[tuple[str, Path]]:
    """The workspace's settings and keys, by their names in a backup."""
    for path in (paths.config, paths.admin_token, paths.server_dir / "workspace.key"):
        if path.exists():
            yield path.name, path
    if paths.tls_dir.is_dir():
        yield from ((f"tls/{path.name}", path) for path in sorted(paths.tls_dir.iterdir()) if path.is_file())


def _put_small_files(paths: WorkspacePaths, folder: Path, aside: Path) -> None:
    here = json.loads(paths.config.read_text())
    for source in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(source.relative_to(folder))
        if name in (_DATABASE, _ABOUT):
            continue
        target = paths.config if name == _CONFIG else paths.server_dir / name
        data = source.read_bytes()
        if name == _CONFIG:
            kept = {key: here[key] for key in _KEPT_HERE if key in here}
            theirs = {key: value for key, value in json.loads(data).items() if key not in _KEPT_HERE}
            data = json.dumps({**theirs, **kept}, indent=2).encode()
        if target.exists() and target.read_bytes() != data:
            (aside / name).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            target.replace(aside / name)
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_file(target, data, mode=PRIVATE, durable=True)


def _unpack(file: Path, folder: Path) -> None:
    try:
        with tarfile.open(file) as tar:
            unpack(tar, folder)
    except (tarfile.TarError, OSError, ValueError) as error:
        raise errors.UserError(f"{file} cannot be read as a backup: {error}", "`muster backup` makes one.") from error
    if not (folder / _DATABASE).is_file():
        raise errors.UserError(f"{file} is no backup of a workspace", "`muster backup` makes one.")


@contextmanager
def _alone(paths: WorkspacePaths) -> Iterator[None]:
    """Hold the workspace so that no server runs or starts."""
    paths.server_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    held = FileLock(paths.server_lock).acquire_within(1.0)
    if held is None:
        raise errors.Conflict(
            f"a server has the workspace {paths.root}", "End it first: `muster down --force`. Runs go on without it."
        )
    with held:
        yield


def _aside(paths: WorkspacePaths, why: str) -> Path:
    return paths.server_dir / f"{why}-{time.strftime('%Y%m%d-%H%M%S')}"


def _fail(error: Exception) -> None:
    message, hint = (error.message, error.hint) if isinstance(error, errors.MusterError) else (str(error), "")
    print(f"error: {message}" + (f"\n  {hint}" if hint else ""), file=sys.stderr)
    sys.exit(2)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m muster.server.maintenance")
    parser.add_argument("command", choices=("backup", "restore", "repair"))
    parser.add_argument("--workspace", required=True, help="the workspace folder (.muster)")
    parser.add_argument("file", nargs="?", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
