"""Puts packages on top of an attempt's image: once for each content, in a container that becomes an image."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from muster.environments.failures import Failure, classify, classify_engine
from muster.environments.images import engines, installing, packages, sharing
from muster.environments.images.command import APPTAINER, remove_command
from muster.environments.images.kept import hold, images_dir, label
from muster.environments.images.probe import Contents, answer_in
from muster.environments.images.runner import EngineRunner
from muster.environments.venvs import sources, steps
from muster.host.files import read_json, remove_tree, write_json
from muster.wire.codec import WireError, from_json
from muster.wire.node.containers import Container
from muster.wire.node.recipes import Recipe

# The engine's own failures, unlike those of the program in the container.
_ENGINES_OWN = (125, 126, 127)


def put_on(runner: EngineRunner, container: Container, recipe: Recipe, base: str, contents: Contents, auth: str) -> str:
    """The image with the packages on it, by its id; raises Failure, or Abandoned."""
    if runner.engine.kind == APPTAINER:
        hint = "Use an image that has them, or podman or docker on the node."
        raise Failure("environment", "apptainer cannot put packages on top of an image", hint)
    reference = container.made(packages.tag(recipe, base, contents.python))
    found = runner.present(reference)
    if found is not None:
        return found
    with hold(base), runner.alone(reference):
        found = runner.present(reference)
        if found is None and container.push_to and runner.pulled(reference, auth):
            found = runner.present(reference)
        if found is None:
            found = sharing.through(
                runner, reference, lambda: _made(runner, container, recipe, base, contents, reference, auth)
            )
    return found


def _made(
    runner: EngineRunner,
    container: Container,
    recipe: Recipe,
    base: str,
    contents: Contents,
    reference: str,
    auth: str,
) -> str:
    _install(runner, container, recipe, base, contents, reference)
    found = runner.made(reference)
    if container.push_to:
        with hold(found):
            runner.push(reference, auth)
    return found


def recorded(runner: EngineRunner, label: str, image: str) -> tuple[str, ...]:
    """The versions that were installed on top of an image, remembered by its id."""
    memory = images_dir() / f"{image.removeprefix('sha256:')[:24]}.packages.json"
    with contextlib.suppress(WireError):
        return from_json(tuple[str, ...], read_json(memory))
    found = answer_in(runner.look(label, image, packages.LOOK), packages.Looked)
    if found is None or found.lock is None:
        hint = "Remove it with `muster env rm`; it is then built again."
        raise Failure("environment", f"the image {label} does not say what is installed on it", hint)
    write_json(memory, found.lock)
    return tuple(found.lock)


def _install(
    runner: EngineRunner, container: Container, recipe: Recipe, base: str, contents: Contents, reference: str
) -> None:
    caller = runner.caller
    what = f"putting packages on the image {container.label}"
    caller.doing(what)
    found = answer_in(runner.look(container.label, base, packages.LOOK), packages.Looked) or packages.Looked()
    lent = _lent()
    gpus = Path("/dev/nvidiactl").exists()
    work = packages.plan(recipe, container.label, contents.python, found, lent, gpus)
    configured = sources.read(caller.environ, sys.prefix)
    name = f"muster-{caller.run}-{caller.attempt}-{caller.mark[:8]}-packages"
    with _folder(caller.folder / "packages") as folder, _container(runner, name):
        for file, text in packages.files(recipe, work, configured, caller.environ).items():
            (folder / file).write_text(text)
        shutil.copyfile(installing.__file__, folder / "installing.py")
        shutil.copyfile(Path(steps.__file__).with_name(steps.COMPILER), folder / "compiler")
        (folder / "compiler").chmod(0o755)
        cache = images_dir() / "pip"
        cache.mkdir(exist_ok=True)
        local = [path for path in packages.local_paths(recipe, configured) if Path(path).exists()]
        mounts = packages.mounted(str(folder), str(cache), lent.folder if work.lent and lent else "", local)
        attempt = (caller.mark, caller.run, caller.attempt)
        extra = engines.extra(caller.environ)
        command = packages.install_command(runner.engine, base, name, attempt, mounts, extra)
        status, printed = runner.perform(command, what, watched=True)
        if status != 0:
            raise _failure(container.label, what, status, printed)
        path = contents.env.get("PATH", "")
        committing = packages.commit_command(runner.engine, name, reference, work, path, label())
        status, printed = runner.perform(committing, f"keeping it as {reference}")
        if status != 0:
            raise classify_engine(f"{what} failed", status, printed)


def _failure(label: str, what: str, status: int, printed: list[str]) -> Failure:
    if status in _ENGINES_OWN:
        return classify_engine(f"{what} failed", status, printed)
    failed = classify("pip", status, printed)
    message = f"the packages could not be put on the image {label}: {failed.message}"
    # The full disk is the engine's.
    hint = "Remove images that nothing uses (`muster env rm`), or give the engine a larger disk."
    return Failure(failed.code, message, hint if failed.code == "disk_full" else failed.next, failed.lines)


def _lent() -> packages.Lent | None:
    """The pip of the agent's own Python; a distribution's is not lent, since it needs other packages of its own."""
    spec = importlib.util.find_spec("pip")
    if spec is None or spec.origin is None or spec.origin.startswith("/usr/lib/"):
        return None
    # Large for an agent, and needed by few jobs.
    from importlib.metadata import metadata

    about = metadata("pip")
    return packages.Lent(str(Path(spec.origin).parent), about["Version"], about["Requires-Python"] or "")


@contextlib.contextmanager
def _folder(path: Path) -> Iterator[Path]:
    """A private folder: addresses of indexes may contain passwords."""
    remove_tree(path)
    path.mkdir(mode=0o700)
    try:
        yield path
    finally:
        remove_tree(path)


@contextlib.contextmanager
def _container(runner: EngineRunner, name: str) -> Iterator[None]:
    """Makes sure that no container of that name exists before and after."""
    runner.ask(remove_command(runner.engine, name))
    try:
        yield
    finally:
        runner.ask(remove_command(runner.engine, name))
