"""An image that the nodes of a gang share: one fetches and saves it, the others load that file."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from muster.environments.failures import Failure
from muster.environments.images import engines
from muster.environments.images.command import APPTAINER, load_command, save_command
from muster.environments.images.kept import hold, images_dir
from muster.environments.images.runner import EngineRunner
from muster.host import processes
from muster.host.files import remove_tree, unpack

log = logging.getLogger(__name__)

_FILE = "image.tar"
_FOLDER = "shared-"
_WHAT = "the image"


def through(runner: EngineRunner, reference: str, bring: Callable[[], str]) -> str:
    """The image's id: taken from another node of the gang, or fetched here and offered to the others.

    An image with a digest in its name is not shared: engines know it by that name only if they pulled it themselves.
    """
    caller = runner.caller
    if caller.num_nodes == 1 or runner.engine.kind == APPTAINER or "@" in reference:
        return bring()
    # For this run only: in another one, the name may mean a newer image.
    key = hashlib.sha256(json.dumps(["image", caller.run, reference]).encode()).hexdigest()
    try:
        with caller.others.taken(key, lambda: runner.present(reference) is not None, _WHAT) as packed:
            found = runner.present(reference) if packed is None else _loaded(runner, reference, packed)
        if found is None:
            found = bring()
            caller.others.keep(key, partial(_saved, runner, reference, found), _WHAT)
        return found
    finally:
        caller.others.close()


@contextmanager
def _saved(runner: EngineRunner, reference: str, image: str) -> Iterator[Path]:
    """A folder with the image as a file; like the saving, it may outlive the attempt."""
    with _folder() as folder, hold(image), (folder / "printed").open("w+b") as printed:
        command = save_command(runner.engine, reference, str(folder / _FILE))
        if engines.perform(command, runner.caller.environ, printed, threading.Event()) != 0:
            printed.seek(0)
            raise Failure("environment", f"it could not be saved: {printed.read(2000).decode(errors='replace')}", "")
        (folder / "printed").unlink()
        yield folder


def _loaded(runner: EngineRunner, reference: str, packed: Path) -> str | None:
    """The image's id; None if the received file cannot be loaded: then it is fetched as if there were no others."""
    what = f"loading the image {reference}, which another node has brought"
    runner.caller.doing(what)
    try:
        with _folder() as folder:
            with tarfile.open(packed) as tar:
                unpack(tar, folder, [tar.getmember(f"./{_FILE}")])
            _check_name(folder / _FILE, reference)
            status, _ = runner.perform(load_command(runner.engine, str(folder / _FILE)), what)
            return runner.present(reference) if status == 0 else None
    except (tarfile.TarError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("%s: the image %s did not come from another node: %s", runner.caller.name, reference, error)
        return None


def _check_name(file: Path, reference: str) -> None:
    """Refuse a file that would take other names on this host than the requested one."""
    with tarfile.open(file) as tar:
        found = tar.extractfile("manifest.json")
        images = json.loads(found.read() if found else b"[]")
    names = [name for image in images for name in image["RepoTags"] or ()]
    if len(images) != 1 or any(_short(name) != _short(reference) for name in names):
        raise ValueError(f"it holds {len(images)} images, named {names}")


def _short(name: str) -> str:
    """The name without the registry and the folders, which engines add if they are left out."""
    last = name.rpartition("/")[2]
    return last if ":" in last else f"{last}:latest"


@contextmanager
def _folder() -> Iterator[Path]:
    """A private folder on the disk of the images; first removes those of processes that were killed."""
    for left in images_dir().glob(f"{_FOLDER}*"):
        if processes.read(int(left.name.removeprefix(_FOLDER).partition("-")[0])) is None:
            remove_tree(left)
    with tempfile.TemporaryDirectory(prefix=f"{_FOLDER}{os.getpid()}-", dir=images_dir()) as folder:
        yield Path(folder)
