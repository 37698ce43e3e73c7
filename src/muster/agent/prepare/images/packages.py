"""Putting packages on top of an attempt's image: once for each content, in a container that becomes an image."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from muster.agent.prepare.images import engines
from muster.agent.prepare.images.commands import Workshop
from muster.agent.prepare.images.locking import locked
from muster.environments import failures
from muster.environments.failures import Failure
from muster.environments.images import failing, installing, packages
from muster.environments.images.command import APPTAINER, remove_command
from muster.environments.images.kept import held, images_dir, label
from muster.environments.images.model import Container
from muster.environments.images.probe import Contents
from muster.environments.venvs import sources, steps
from muster.environments.venvs.recipe import Recipe

# An engine's own trouble, unlike that of what runs in the container.
_ENGINES_OWN = (125, 126, 127)


def put_on(shop: Workshop, container: Container, recipe: Recipe, base: str, contents: Contents, auth: str) -> str:
    """The image with the packages on it, by its id; raises Failure, or Abandoned."""
    if shop.engine.kind == APPTAINER:
        hint = "Use an image that has them, or podman or docker on the node."
        raise Failure("environment", "apptainer cannot put packages on top of an image", hint)
    reference = container.made(packages.tag(recipe, base, contents.python))
    found = shop.present(reference)
    if found is not None:
        return found
    with held(base), locked(f"{shop.engine.kind}-{reference}", shop.unwanted):
        found = shop.present(reference)
        if found is None and container.push_to and shop.pulled(reference, auth):
            found = shop.present(reference)
        if found is None:
            _install(shop, container, recipe, base, contents, reference)
            found = shop.made(reference)
            if container.push_to:
                with held(found):
                    shop.push(reference, auth)
    return found


def recorded(shop: Workshop, label: str, image: str) -> list[str]:
    """The versions of what was put on an image, remembered by its id."""
    memory = images_dir() / f"{image.removeprefix('sha256:')[:24]}.packages.json"
    try:
        return list(json.loads(memory.read_text()))
    except (OSError, ValueError):
        pass
    found = packages.looked(shop.look(label, image, packages.LOOK))
    if found is None or found.lock is None:
        hint = "Remove it with `muster env rm`; it is then built again."
        raise Failure("environment", f"the image {label} does not say what is installed on it", hint)
    partial = memory.with_name(f"{memory.name}.{os.getpid()}.new")
    partial.write_text(json.dumps(found.lock))
    partial.rename(memory)
    return list(found.lock)


def _install(
    shop: Workshop, container: Container, recipe: Recipe, base: str, contents: Contents, reference: str
) -> None:
    what = f"putting packages on the image {container.label}"
    shop.doing(what)
    found = packages.looked(shop.look(container.label, base, packages.LOOK)) or packages.Looked()
    lent = _lent()
    gpus = Path("/dev/nvidiactl").exists()
    work = packages.plan(recipe, container.label, contents.python, found, lent, gpus)
    configured = sources.read(shop.environ, sys.prefix)
    name = f"muster-{shop.order.run}-{shop.order.attempt}-{shop.mark[:8]}-packages"
    with _folder(shop.paths.root / "packages") as folder, _container(shop, name):
        for file, text in packages.files(recipe, work, configured, shop.environ).items():
            (folder / file).write_text(text)
        shutil.copyfile(installing.__file__, folder / "installing.py")
        shutil.copyfile(Path(steps.__file__).with_name(steps.COMPILER), folder / "compiler")
        (folder / "compiler").chmod(0o755)
        cache = images_dir() / "pip"
        cache.mkdir(exist_ok=True)
        places = [place for place in packages.local_places(recipe, configured) if Path(place).exists()]
        mounts = packages.mounted(str(folder), str(cache), lent.folder if work.lent and lent else "", places)
        attempt = (shop.mark, shop.order.run, shop.order.attempt)
        extra = engines.extra(shop.environ)
        command = packages.install_command(shop.engine, base, name, attempt, mounts, extra)
        status, printed = shop.perform(command, what, watched=True)
        if status != 0:
            raise _failure(container.label, what, status, printed)
        path = contents.env.get("PATH", "")
        committing = packages.commit_command(shop.engine, name, reference, work, path, label())
        status, printed = shop.perform(committing, f"keeping it as {reference}")
        if status != 0:
            raise failing.classify(f"{what} failed", status, printed, "", pulled=False)


def _failure(label: str, what: str, status: int, printed: list[str]) -> Failure:
    if status in _ENGINES_OWN:
        return failing.classify(f"{what} failed", status, printed, "", pulled=False)
    failed = failures.classify("pip", status, printed)
    message = f"the packages could not be put on the image {label}: {failed.message}"
    # It is the engine's disk that has no room.
    hint = "Remove images that nobody uses (`muster env rm`), or give the engine a larger disk."
    return Failure(failed.code, message, hint if failed.code == "disk_full" else failed.next, failed.lines)


def _lent() -> packages.Lent | None:
    """The pip of the agent's own Python; a distribution's, which leans on other packages of its own, is not lent."""
    spec = importlib.util.find_spec("pip")
    if spec is None or spec.origin is None or spec.origin.startswith("/usr/lib/"):
        return None
    # Large for an agent, and few jobs need it.
    from importlib.metadata import metadata

    about = metadata("pip")
    return packages.Lent(str(Path(spec.origin).parent), about["Version"], about["Requires-Python"] or "")


@contextlib.contextmanager
def _folder(path: Path) -> Iterator[Path]:
    """A private folder: addresses of indexes may hold passwords."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(mode=0o700)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _container(shop: Workshop, name: str) -> Iterator[None]:
    """No container of that name before and after."""
    shop.ask(remove_command(shop.engine, name))
    try:
        yield
    finally:
        shop.ask(remove_command(shop.engine, name))
