"""Getting an attempt's image onto the node: taken as it is, pulled, or built; then asked what it holds. In a worker."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from muster.agent import code
from muster.agent.code import Fetch
from muster.agent.container import engines
from muster.agent.environment import Abandoned, Ready, log_file
from muster.containers import failing, probe
from muster.containers.command import (
    APPTAINER,
    Engine,
    build_command,
    inspect_image_command,
    probe_command,
    pull_command,
    push_command,
)
from muster.containers.model import Container, Login, container_from_json, registry_of
from muster.containers.used import Used
from muster.environments.failures import Failure
from muster.paths import AttemptPaths, NodePaths, environments_dir
from muster.protocol import Order

log = logging.getLogger(__name__)

_TAIL_BYTES = 16 << 10


@dataclass(frozen=True)
class Images:
    """Makes images ready for attempts."""

    node: NodePaths
    mark: str
    fetch: Fetch
    begins: Callable[[], None]
    """Called when something begins that takes long: from then on its log grows."""
    doing: Callable[[str], None]
    unwanted: threading.Event
    environ: Mapping[str, str]

    def ready(self, order: Order, paths: AttemptPaths) -> Ready:
        """The attempt's image, on this node; raises Failure, or Abandoned."""
        assert order.container is not None
        container = container_from_json(order.container)
        engine = engines.find(self.environ)
        began = time.monotonic()
        image = self._present(engine, container)
        was_here = image is not None
        if image is None:
            self.begins()
            try:
                with _locked(f"{engine.kind}-{container.reference}", self.unwanted):
                    image = self._present(engine, container) or self._bring(engine, container, order, paths)
            finally:
                self.doing("")
        contents = self._ask(engine, container, image)
        facts: dict[str, Any] = {
            "key": Path(image).name.removeprefix("sha256:")[:12],
            "python": contents.python_text,
            "image": container.label,
            "engine": engine.kind,
        }
        if not was_here:
            facts["built_s"] = round(time.monotonic() - began, 3)
        self.node.containers_used.touch()
        used = Used(engine, container, image, contents, engines.extra(self.environ))
        # Images belong to their engine, which keeps those that containers use: there is nothing to hold.
        return Ready("python3", os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), facts, {}, used)

    def _present(self, engine: Engine, container: Container) -> str | None:
        """The image's id, or its file; None where it is not here."""
        if engine.kind == APPTAINER:
            local = Path(container.image)
            file = local if local.is_absolute() else _sif(container)
            return str(file) if file.exists() else None
        done = engines.ask(inspect_image_command(engine, container.reference), self.environ)
        return done.stdout.decode().strip() or None if done.returncode == 0 else None

    def _bring(self, engine: Engine, container: Container, order: Order, paths: AttemptPaths) -> str:
        with _auth_file(container.login) as auth:
            if container.build is None:
                self._pull(engine, container, order, paths, auth)
            elif engine.kind == APPTAINER:
                hint = "Use an image of a registry, or podman or docker on the node."
                raise Failure("environment", "apptainer cannot build from a Dockerfile", hint)
            elif not (container.push_to and self._pulled(engine, container, order, paths, auth)):
                self._build(engine, container, order, paths, auth)
        image = self._present(engine, container)
        if image is None:
            raise Failure("environment", f"the engine has no image {container.reference} after all", "Submit it again.")
        return image

    def _pull(self, engine: Engine, container: Container, order: Order, paths: AttemptPaths, auth: str) -> None:
        what = f"pulling the image {container.reference}"
        self.doing(what)
        target = str(_sif(container)) if engine.kind == APPTAINER else ""
        command = pull_command(engine, container.reference, auth, target)
        status, printed = self._perform(command, what, order, paths, _apptainer_login(engine, container.login))
        if status != 0:
            secret = failing.secret_name(registry_of(container.reference))
            raise failing.classify(f"{what} failed", status, printed, secret, pulled=True)

    def _pulled(self, engine: Engine, container: Container, order: Order, paths: AttemptPaths, auth: str) -> bool:
        """Whether another node has built it and the registry has it."""
        command = pull_command(engine, container.reference, auth)
        return self._perform(command, f"looking for {container.reference}", order, paths)[0] == 0

    def _build(self, engine: Engine, container: Container, order: Order, paths: AttemptPaths, auth: str) -> None:
        build = container.build
        assert build is not None
        what = f"building the image {build.tag}"
        self.doing(what)
        folder = paths.root / "build"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        code.place(self.node.code_cache, build.snapshot, self.fetch, folder)
        extra = engines.extra(self.environ, engines.BUILD_ARGS)
        command = build_command(engine, container.reference, str(folder), build.dockerfile, build.args, auth, extra)
        status, printed = self._perform(command, what, order, paths)
        shutil.rmtree(folder, ignore_errors=True)
        if status != 0:
            raise failing.classify(f"{what} failed", status, printed, "", pulled=False)
        if container.push_to:
            self.doing(f"pushing the image {container.reference}")
            pushing = push_command(engine, container.reference, auth)
            status, printed = self._perform(pushing, f"pushing {container.reference}", order, paths)
            if status != 0:
                # The image is here and the job can run; other nodes build it for themselves.
                log.warning("%s was not pushed: %s", container.reference, printed[-1:])

    def _perform(
        self,
        command: list[str],
        what: str,
        order: Order,
        paths: AttemptPaths,
        more: Mapping[str, str] | None = None,
    ) -> tuple[int, list[str]]:
        """Run a command of the engine with its output in the run's log; its exit code and last lines."""
        path = log_file(paths, order)
        environ = {**engines.environment(self.environ, self.mark), **(more or {})}
        with path.open("ab") as out:
            out.write(f"muster: {what}\n".encode())
            out.flush()
            start = out.tell()
            status = engines.perform(command, environ, out, self.unwanted)
        with path.open("rb") as printed:
            printed.seek(max(start, path.stat().st_size - _TAIL_BYTES))
            return status, printed.read().decode(errors="replace").splitlines()

    def _ask(self, engine: Engine, container: Container, image: str) -> probe.Contents:
        """What the image holds, remembered by its id."""
        identity = image if engine.kind != APPTAINER else f"{image}@{Path(image).stat().st_mtime_ns}"
        name = hashlib.sha256(f"{engine.kind} {identity} {probe.SCRIPT}".encode()).hexdigest()[:24]
        memory = images_dir() / f"{name}.json"
        try:
            known = json.loads(memory.read_text())
            return probe.Contents(**{**known, "python": tuple(known["python"])})
        except (OSError, ValueError, TypeError):
            pass
        command = probe_command(engine, image, engines.extra(self.environ), probe.SCRIPT)
        done = engines.ask(command, engines.environment(self.environ, self.mark))
        contents = probe.read(done.stdout.decode(errors="replace"))
        if contents is None:
            lines = done.stderr.decode(errors="replace").strip().splitlines()[-10:]
            raise probe.no_answer(container.label, engine.kind, done.returncode, lines)
        partial = memory.with_name(f"{memory.name}.{os.getpid()}.{threading.get_ident()}")
        partial.write_text(json.dumps(asdict(contents)))
        partial.rename(memory)
        return contents


def images_dir() -> Path:
    folder = environments_dir() / ".images"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _sif(container: Container) -> Path:
    return images_dir() / f"{hashlib.sha256(container.reference.encode()).hexdigest()[:24]}.sif"


@contextmanager
def _locked(name: str, unwanted: threading.Event) -> Iterator[None]:
    """Held by the one process of the host that brings this image."""
    path = images_dir() / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if unwanted.wait(0.1):
                    raise Abandoned("nobody wants the image any more") from None
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _auth_file(login: Login | None) -> Iterator[str]:
    """A private file with the registry's credentials, as docker and podman read it; empty where there are none."""
    if login is None:
        yield ""
        return
    folder = tempfile.mkdtemp(prefix="muster-auth-")
    try:
        key = "https://index.docker.io/v1/" if login.registry == "docker.io" else login.registry
        token = base64.b64encode(f"{login.username}:{login.password}".encode()).decode()
        path = Path(folder) / "config.json"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump({"auths": {key: {"auth": token}}}, file)
        yield str(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _apptainer_login(engine: Engine, login: Login | None) -> dict[str, str]:
    if engine.kind != APPTAINER or login is None:
        return {}
    return {"APPTAINER_DOCKER_USERNAME": login.username, "APPTAINER_DOCKER_PASSWORD": login.password}
