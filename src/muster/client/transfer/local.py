"""Files of this machine that are to be copied: all below a folder, except those that ignore files name."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from muster.client.ignore import IgnoreRules
from muster.errors import NotFound, UserError
from muster.wire.data.access import FileEntry, file_etag
from muster.wire.text import is_encodable

PARTIAL = ".muster-partial-"
"""The prefix of the folder of a copy that is under way."""

_RENAME = "Rename it, or name it in .musterignore."


@dataclass
class Found:
    """The files below a folder, or the file itself (whose path is its name)."""

    files: list[FileEntry] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    """What an ignore file names: files, and folders with a slash."""
    left_out: list[str] = field(default_factory=list)
    """Links to folders, pipes and the like."""
    outside: list[str] = field(default_factory=list)
    """Links that lead out of a datastore."""
    empty: list[str] = field(default_factory=list)
    """Empty folders: storages know only files."""


def find(root: Path, use_ignore_files: bool) -> Found:
    """The files to copy; raises NotFound if the path does not exist."""
    found = Found()
    if root.is_file():
        found.files.append(_entry(root.name, root.stat()))
    elif root.is_dir():
        _walk(root, "", IgnoreRules(root) if use_ignore_files else None, found)
    else:
        raise NotFound(f"there is no file or folder {root}.", "Correct the path.")
    return found


def check_names(paths: Iterable[str]) -> None:
    """Refuse names that no datastore takes, before anything is sent."""
    for path in paths:
        if not is_encodable(path):
            shown = os.fsencode(path).decode("utf-8", "backslashreplace")
            raise UserError(f"the name of the file {shown} is not UTF-8, and no datastore takes it.", _RENAME)
        if "\\" in path:
            raise UserError(f"{path}: a name with a backslash cannot be stored, since some storages split it.", _RENAME)


def _walk(folder: Path, prefix: str, rules: IgnoreRules | None, found: Found) -> None:
    if rules is not None:
        rules.enter(folder, prefix)
    items = sorted(os.scandir(folder), key=lambda item: item.name)
    if not items and prefix:
        found.empty.append(prefix)
    for item in items:
        name, is_folder = prefix + item.name, item.is_dir(follow_symlinks=False)
        if item.name.startswith(PARTIAL):
            continue
        if rules is not None and rules.ignores(name, is_folder):
            found.ignored.append(f"{name}/" if is_folder else name)
        elif is_folder:
            _walk(Path(item.path), f"{name}/", rules, found)
        elif item.is_file():
            found.files.append(_entry(name, item.stat()))
        else:
            found.left_out.append(name)


def _entry(name: str, status: os.stat_result) -> FileEntry:
    return FileEntry(name, status.st_size, etag=file_etag(status.st_size, status.st_mtime))
