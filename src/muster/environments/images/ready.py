"""The image of an attempt on this node: used as it is, pulled, or built; then probed. In a worker."""

from __future__ import annotations

import base64
import hashlib
import logging
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from muster.environments import agreement
from muster.environments.caller import Caller, Ready, Used
from muster.environments.failures import Failure, classify_engine
from muster.environments.images import engines, kept, layer, probe, sharing
from muster.environments.images.command import APPTAINER, Engine, build_command, pull_command
from muster.environments.images.kept import images_dir
from muster.environments.images.registries import registry_of, secret_name, whole
from muster.environments.images.runner import EngineRunner
from muster.environments.limits import images_limit_bytes
from muster.host.files import PRIVATE, read_json, remove_tree, write_json
from muster.host.locks import HeldLock
from muster.wire.codec import WireError, from_json, to_json
from muster.wire.environments import BuiltEnvironment
from muster.wire.node.containers import Container, Login
from muster.wire.node.recipes import Recipe

log = logging.getLogger(__name__)


def make_ready(caller: Caller, container: Container) -> Ready:
    """Prepare the attempt's image on this node; raises Failure, or Abandoned."""
    engine = engines.find(caller.environ)
    worked = threading.Event()

    def begins() -> None:
        worked.set()
        caller.begins()

    runner = EngineRunner(engine, replace(caller, begins=begins))
    began = time.monotonic()
    try:
        image, lock, built = _held(runner, container)
    finally:
        caller.doing("")
    if worked.is_set():
        built = replace(built, built_s=round(time.monotonic() - began, 3))
        for gone in kept.evict(engine, runner.ask, images_limit_bytes(), keep=image):
            log.info("%s: removed the image %s, which was used longest ago", caller.name, gone)
    contents = _contents(runner, container, image)
    used = Used(engine, container, image, contents, engines.extra(caller.environ))
    variables = container.packages.variables if container.packages else {}
    return Ready("python3", lock, built, variables, used)


def _held(runner: EngineRunner, container: Container) -> tuple[str, HeldLock, BuiltEnvironment]:
    """The image, the lock that keeps it from being removed, and the record for the server."""
    while True:
        image, built = _whole(runner, container)
        lock = kept.hold(image)
        # It may have been removed to make room since it was found.
        if _is_there(runner, container, image):
            return image, lock, built
        lock.release()


def _is_there(runner: EngineRunner, container: Container, image: str) -> bool:
    if runner.engine.kind == APPTAINER:
        return Path(image).exists()
    is_made = container.build is not None or container.packages is not None
    return not is_made or runner.present(image) is not None


def _whole(runner: EngineRunner, container: Container) -> tuple[str, BuiltEnvironment]:
    """The image with all packages on top."""
    with _auth_file(container.logins) as auth:
        image = _present(runner, container)
        if image is None:
            with runner.alone(container.reference):
                image = _present(runner, container) or sharing.through(
                    runner, container.reference, lambda: _bring(runner, container, auth)
                )
        contents = _contents(runner, container, image)
        if container.packages is None:
            return image, _described(runner, container, image, contents)
        recipe = agreement.before(runner.caller, container.packages, contents.python_text)
        made, built = _with_packages(runner, container, recipe, image, contents, auth)
        wanted = agreement.after(runner.caller, recipe, built)
        if wanted is not recipe:
            made, built = _with_packages(runner, container, wanted, image, contents, auth)
        return made, built


def _with_packages(
    runner: EngineRunner, container: Container, recipe: Recipe, base: str, contents: probe.Contents, auth: str
) -> tuple[str, BuiltEnvironment]:
    made = layer.put_on(runner, container, recipe, base, contents, auth)
    versions = layer.recorded(runner, container.label, made)
    return made, replace(_described(runner, container, made, contents), lock=versions)


def _described(runner: EngineRunner, container: Container, image: str, contents: probe.Contents) -> BuiltEnvironment:
    key = Path(image).name.removeprefix("sha256:")[:12]
    return BuiltEnvironment(key, contents.python_text, image=container.label, engine=runner.engine.kind)


def _present(runner: EngineRunner, container: Container) -> str | None:
    """The image's id, or its file; None if it is not here."""
    if runner.engine.kind == APPTAINER:
        local = Path(container.image)
        file = local if local.is_absolute() else _sif(container)
        return str(file) if file.exists() else None
    return runner.present(container.reference)


def _bring(runner: EngineRunner, container: Container, auth: str) -> str:
    if container.build is None:
        _pull(runner, container, auth)
    elif runner.engine.kind == APPTAINER:
        hint = "Use an image of a registry, or podman or docker on the node."
        raise Failure("environment", "apptainer cannot build from a Dockerfile", hint)
    elif not (container.push_to and runner.pulled(container.reference, auth)):
        _build(runner, container, auth)
    return _present(runner, container) or runner.made(container.reference)


def _pull(runner: EngineRunner, container: Container, auth: str) -> None:
    what = f"pulling the image {container.reference}"
    runner.caller.doing(what)
    target = str(_sif(container)) if runner.engine.kind == APPTAINER else ""
    command = pull_command(runner.engine, container.reference, auth, target)
    status, printed = runner.perform(command, what, _apptainer_login(runner.engine, container.login))
    if status != 0 and any("did not resolve to an alias" in line for line in printed):
        # podman may have no registry for short names; everywhere else they are docker.io's.
        status, printed = runner.perform(pull_command(runner.engine, whole(container.reference), auth), what)
    if status != 0:
        secret = secret_name(registry_of(container.reference))
        raise classify_engine(f"{what} failed", status, printed, secret, pulled=True)


def _build(runner: EngineRunner, container: Container, auth: str) -> None:
    build, caller = container.build, runner.caller
    assert build is not None
    what = f"building the image {build.tag}"
    caller.doing(what)
    folder = caller.folder / "build"
    remove_tree(folder)
    folder.mkdir()
    caller.unpack(build.snapshot, folder)
    extra = (*engines.extra(caller.environ, engines.BUILD_ARGS), "--label", kept.label())
    command = build_command(runner.engine, container.reference, str(folder), build.dockerfile, build.args, auth, extra)
    status, printed = runner.perform(command, what)
    remove_tree(folder)
    if status != 0:
        raise classify_engine(f"{what} failed", status, printed)
    if container.push_to:
        with kept.hold(runner.made(container.reference)):
            runner.push(container.reference, auth)


def _contents(runner: EngineRunner, container: Container, image: str) -> probe.Contents:
    """The contents of the image, remembered by its id."""
    identity = image if runner.engine.kind != APPTAINER else f"{image}@{Path(image).stat().st_mtime_ns}"
    name = hashlib.sha256(f"{runner.engine.kind} {identity} {probe.SCRIPT}".encode()).hexdigest()[:24]
    memory = images_dir() / f"{name}.json"
    try:
        return from_json(probe.Contents, read_json(memory))
    except WireError:
        pass
    contents = probe.read(runner.look(container.label, image, probe.SCRIPT))
    if contents is None:
        raise probe.no_answer(container.label, runner.engine.kind, 0, [])
    write_json(memory, to_json(contents))
    return contents


def _sif(container: Container) -> Path:
    return images_dir() / f"{hashlib.sha256(container.reference.encode()).hexdigest()[:24]}.sif"


@contextmanager
def _auth_file(logins: Sequence[Login]) -> Iterator[str]:
    """A private file with registries' credentials, in the format of docker and podman; empty if there are none."""
    if not logins:
        yield ""
        return
    with tempfile.TemporaryDirectory(prefix="muster-auth-") as folder:
        path = Path(folder) / "config.json"
        write_json(path, {"auths": dict(map(_auth, logins))}, mode=PRIVATE)
        yield str(path)


def _auth(login: Login) -> tuple[str, dict[str, str]]:
    key = "https://index.docker.io/v1/" if login.registry == "docker.io" else login.registry
    return key, {"auth": base64.b64encode(f"{login.username}:{login.password}".encode()).decode()}


def _apptainer_login(engine: Engine, login: Login | None) -> dict[str, str]:
    if engine.kind != APPTAINER or login is None:
        return {}
    return {"APPTAINER_DOCKER_USERNAME": login.username, "APPTAINER_DOCKER_PASSWORD": login.password}
