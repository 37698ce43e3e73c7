"""Getting an attempt's image onto the node: taken as it is, pulled, or built; then asked what it holds. In a worker."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from muster.agent.prepare import code
from muster.agent.prepare.agreement import Agreement, Ask
from muster.agent.prepare.code import Fetch
from muster.agent.prepare.environment import Ready
from muster.agent.prepare.images import engines, packages
from muster.agent.prepare.images.commands import Workshop
from muster.agent.prepare.images.locking import locked
from muster.environments.failures import Failure
from muster.environments.images import failing, kept, probe
from muster.environments.images.command import APPTAINER, Engine, build_command, pull_command
from muster.environments.images.kept import images_dir
from muster.environments.images.model import Container, Login, container_from_json, registry_of
from muster.environments.images.used import Used
from muster.environments.limits import images_limit_bytes
from muster.environments.venvs.recipe import recipe_from_json
from muster.paths import AttemptPaths, NodePaths
from muster.wire.codec import to_json
from muster.wire.node.agents import Order
from muster.wire.stream import Level

log = logging.getLogger(__name__)


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
    agree: Ask
    note: Callable[[Level, str], None]
    """Tells those who follow the run: level and text."""
    environ: Mapping[str, str]

    def ready(self, order: Order, paths: AttemptPaths) -> Ready:
        """The attempt's image, on this node; raises Failure, or Abandoned."""
        assert order.container is not None
        container = container_from_json(to_json(order.container))
        engine = engines.find(self.environ)
        worked = threading.Event()

        def begins() -> None:
            worked.set()
            self.begins()

        shop = Workshop(engine, self.environ, self.mark, order, paths, begins, self.doing, self.note, self.unwanted)
        began = time.monotonic()
        try:
            image, lock, facts = self._held(shop, container)
        finally:
            self.doing("")
        if worked.is_set():
            facts["built_s"] = round(time.monotonic() - began, 3)
            for gone in kept.evict(engine, shop.ask, images_limit_bytes(), keep=image):
                log.info("%s: removed the image %s, which was used longest ago", order.key, gone)
        self.node.containers_used.touch()
        contents = self._ask(shop, container, image)
        used = Used(engine, container, image, contents, engines.extra(self.environ))
        variables = (container.packages or {}).get("variables", {})
        return Ready("python3", lock, facts, variables, used)

    def _held(self, shop: Workshop, container: Container) -> tuple[str, int, dict[str, Any]]:
        """The image, what keeps it from being removed, and what the server is told of it."""
        while True:
            image, facts = self._whole(shop, container)
            lock = kept.hold(image)
            # Between its finding and this moment somebody may have needed its room.
            if self._is_there(shop, container, image):
                return image, lock, facts
            os.close(lock)

    def _is_there(self, shop: Workshop, container: Container, image: str) -> bool:
        if shop.engine.kind == APPTAINER:
            return Path(image).exists()
        is_made = container.build is not None or container.packages is not None
        return not is_made or shop.present(image) is not None

    def _whole(self, shop: Workshop, container: Container) -> tuple[str, dict[str, Any]]:
        """The image with all that belongs on it."""
        with _auth_file(container.logins) as auth:
            image = self._present(shop, container)
            if image is None:
                with locked(f"{shop.engine.kind}-{container.reference}", self.unwanted):
                    image = self._present(shop, container) or self._bring(shop, container, auth)
            contents = self._ask(shop, container, image)
            python = contents.python_text
            facts: dict[str, Any] = {"python": python, "image": container.label, "engine": shop.engine.kind}
            if container.packages is None:
                return image, {**facts, "key": _key(image)}
            agreement = Agreement(self.agree, shop.order, self.note)
            recipe = agreement.before(recipe_from_json(container.packages), python)
            made = packages.put_on(shop, container, recipe, image, contents, auth)
            facts["lock"] = packages.recorded(shop, container.label, made)
            wanted = agreement.after(recipe, {**facts, "key": _key(made)})
            if wanted is not recipe:
                made = packages.put_on(shop, container, wanted, image, contents, auth)
                facts["lock"] = packages.recorded(shop, container.label, made)
            return made, {**facts, "key": _key(made)}

    def _present(self, shop: Workshop, container: Container) -> str | None:
        """The image's id, or its file; None where it is not here."""
        if shop.engine.kind == APPTAINER:
            local = Path(container.image)
            file = local if local.is_absolute() else _sif(container)
            return str(file) if file.exists() else None
        return shop.present(container.reference)

    def _bring(self, shop: Workshop, container: Container, auth: str) -> str:
        if container.build is None:
            self._pull(shop, container, auth)
        elif shop.engine.kind == APPTAINER:
            hint = "Use an image of a registry, or podman or docker on the node."
            raise Failure("environment", "apptainer cannot build from a Dockerfile", hint)
        elif not (container.push_to and shop.pulled(container.reference, auth)):
            self._build(shop, container, auth)
        return self._present(shop, container) or shop.made(container.reference)

    def _pull(self, shop: Workshop, container: Container, auth: str) -> None:
        what = f"pulling the image {container.reference}"
        self.doing(what)
        target = str(_sif(container)) if shop.engine.kind == APPTAINER else ""
        command = pull_command(shop.engine, container.reference, auth, target)
        status, printed = shop.perform(command, what, _apptainer_login(shop.engine, container.login))
        if status != 0:
            secret = failing.secret_name(registry_of(container.reference))
            raise failing.classify(f"{what} failed", status, printed, secret, pulled=True)

    def _build(self, shop: Workshop, container: Container, auth: str) -> None:
        build = container.build
        assert build is not None
        what = f"building the image {build.tag}"
        self.doing(what)
        folder = shop.paths.root / "build"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        code.place(self.node.code_cache, build.snapshot, self.fetch, folder)
        extra = (*engines.extra(self.environ, engines.BUILD_ARGS), "--label", kept.label())
        command = build_command(
            shop.engine, container.reference, str(folder), build.dockerfile, build.args, auth, extra
        )
        status, printed = shop.perform(command, what)
        shutil.rmtree(folder, ignore_errors=True)
        if status != 0:
            raise failing.classify(f"{what} failed", status, printed, "", pulled=False)
        if container.push_to:
            with kept.held(shop.made(container.reference)):
                shop.push(container.reference, auth)

    def _ask(self, shop: Workshop, container: Container, image: str) -> probe.Contents:
        """What the image holds, remembered by its id."""
        identity = image if shop.engine.kind != APPTAINER else f"{image}@{Path(image).stat().st_mtime_ns}"
        name = hashlib.sha256(f"{shop.engine.kind} {identity} {probe.SCRIPT}".encode()).hexdigest()[:24]
        memory = images_dir() / f"{name}.json"
        try:
            known = json.loads(memory.read_text())
            return probe.Contents(**{**known, "python": tuple(known["python"])})
        except (OSError, ValueError, TypeError):
            pass
        contents = probe.read(shop.look(container.label, image, probe.SCRIPT))
        if contents is None:
            raise probe.no_answer(container.label, shop.engine.kind, 0, [])
        partial = memory.with_name(f"{memory.name}.{os.getpid()}.{threading.get_ident()}")
        partial.write_text(json.dumps(asdict(contents)))
        partial.rename(memory)
        return contents


def _key(image: str) -> str:
    return Path(image).name.removeprefix("sha256:")[:12]


def _sif(container: Container) -> Path:
    return images_dir() / f"{hashlib.sha256(container.reference.encode()).hexdigest()[:24]}.sif"


@contextmanager
def _auth_file(logins: Sequence[Login]) -> Iterator[str]:
    """A private file with registries' credentials, as docker and podman read it; empty where there are none."""
    if not logins:
        yield ""
        return
    folder = tempfile.mkdtemp(prefix="muster-auth-")
    try:
        path = Path(folder) / "config.json"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump({"auths": dict(map(_auth, logins))}, file)
        yield str(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _auth(login: Login) -> tuple[str, dict[str, str]]:
    key = "https://index.docker.io/v1/" if login.registry == "docker.io" else login.registry
    return key, {"auth": base64.b64encode(f"{login.username}:{login.password}".encode()).decode()}


def _apptainer_login(engine: Engine, login: Login | None) -> dict[str, str]:
    if engine.kind != APPTAINER or login is None:
        return {}
    return {"APPTAINER_DOCKER_USERNAME": login.username, "APPTAINER_DOCKER_PASSWORD": login.password}
