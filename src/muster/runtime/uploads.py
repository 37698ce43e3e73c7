"""Puts files under a name into the folder from which the agent uploads them."""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import IO, Any, Iterator, Tuple, Union

UNFINISHED = ".muster-part"
Source = Union[str, "os.PathLike[str]", IO[Any]]


def check_name(name: str) -> str:
    """The name as a path that stays below the run's files; ValueError otherwise."""
    text = os.fspath(name)
    if not isinstance(text, str) or not text:
        raise TypeError("the name of an uploaded file is a text such as 'outputs/model.pt', not {!r}".format(name))
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if text.startswith("/") or ".." in parts or not parts or "\0" in text or "\\" in text:
        raise ValueError(
            "the name {!r} leaves the run's files; give a relative name such as 'outputs/model.pt'".format(text)
        )
    return "/".join(parts)


def put(folder: Path, name: str, source: Source) -> None:
    """Copy a file or stream to `folder/name` so that it is never seen in part; a disk error causes a warning."""
    target = folder / check_name(name)
    if isinstance(source, (str, os.PathLike)) and not Path(source).is_file():
        raise FileNotFoundError("no file {!r} to upload as {!r}".format(os.fspath(source), name))
    try:
        # In the same folder, which may be a separate mount; the agent skips unfinished files.
        _copy(source, target, folder / UNFINISHED)
    except OSError as error:
        print("muster: {!r} was not uploaded: {}".format(name, error), file=sys.stderr, flush=True)


def folder_files(name: str, folder: Union[str, "os.PathLike[str]"]) -> Iterator[Tuple[str, Path]]:
    """(name, path) of every regular file below a folder, in order; links to folders are not followed."""
    if not Path(folder).is_dir():
        raise FileNotFoundError("no folder {!r} to upload as {!r}".format(os.fspath(folder), name))
    for base, folders, files in os.walk(folder):
        folders.sort()
        for file in sorted(files):
            path = Path(base, file)
            if path.is_file():
                yield check_name(name + "/" + path.relative_to(folder).as_posix()), path


def _copy(source: Source, target: Path, parts: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    parts.mkdir(exist_ok=True)
    fd, name = tempfile.mkstemp(dir=str(parts))
    scratch = Path(name)
    try:
        with os.fdopen(fd, "wb") as out:
            if isinstance(source, (str, os.PathLike)):
                with Path(source).open("rb") as stream:
                    shutil.copyfileobj(stream, out, 1 << 20)
            else:
                _copy_stream(source, out)
        scratch.chmod(0o644)
        scratch.replace(target)
    except BaseException:
        scratch.unlink()
        raise


def _copy_stream(stream: IO[Any], out: IO[bytes]) -> None:
    while True:
        data = stream.read(1 << 20)
        if not data:
            return
        out.write(data.encode() if isinstance(data, str) else data)
