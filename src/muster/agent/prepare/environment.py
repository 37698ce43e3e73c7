"""The environment of an attempt on this node: taken from the host's cache, or built there by a process of its own."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muster.agent.builders import builders, end_group
from muster.agent.gpus import spawning
from muster.agent.prepare.agreement import Agreement, Ask
from muster.agent.run.variables import NODE_MARK
from muster.environments.failures import Failure, killed
from muster.environments.images.used import Used
from muster.environments.limits import limit_bytes
from muster.environments.venvs import locks
from muster.environments.venvs.cache import Built, Cache
from muster.environments.venvs.interpreters import Interpreter, NoInterpreter, find, host_platform
from muster.environments.venvs.recipe import Recipe, key_of, recipe_from_json
from muster.environments.venvs.request import Request
from muster.errors import MusterError
from muster.paths import AttemptPaths, environments_dir
from muster.wire.codec import to_json
from muster.wire.node.agents import Order
from muster.wire.stream import Level

log = logging.getLogger(__name__)

_TRIES = 2
_LOOK_S = 0.1


@dataclass(frozen=True)
class Ready:
    """An environment that is in place."""

    python: str
    lock: int
    """Keeps it from being removed while it is open; goes along with the keeper."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the server is told: key, python, lock, built_s."""
    variables: Mapping[str, str] = field(default_factory=dict)
    container: Used | None = None
    """The image that the ranks run in."""


@dataclass(frozen=True)
class Builder:
    """Makes environments ready for attempts; called in worker threads."""

    mark: str
    begins: Callable[[], None]
    """Called when a build begins: from then on its log grows."""
    doing: Callable[[str], None]
    """Told what is being done; empty at the end."""
    unwanted: threading.Event
    agree: Ask
    note: Callable[[Level, str], None]
    """Tells those who follow the run: level and text."""

    def ready(self, order: Order, paths: AttemptPaths) -> Ready | None:
        """The attempt's environment; None where it has none of its own. Raises Failure, or Abandoned."""
        if order.environment is None:
            return None
        recipe = recipe_from_json(to_json(order.environment))
        base = _base(recipe, order)
        cache = Cache(environments_dir())
        agreement = Agreement(self.agree, order, self.note)
        began = time.monotonic()
        if cache.find(choose_key(recipe, base, cache)) is None:
            recipe = agreement.before(recipe, base.minor)
        built, lock, built_here = self._held(recipe, base, cache, paths, order)
        try:
            wanted = agreement.after(recipe, _facts(built))
        except BaseException:
            os.close(lock)
            raise
        if wanted is not recipe:
            os.close(lock)
            built, lock, built_here = self._held(wanted, base, cache, paths, order)
        facts = _facts(built)
        if built_here:
            facts["built_s"] = round(time.monotonic() - began, 3)
        return Ready(built.python, lock, facts, recipe.variables)

    def _held(
        self, recipe: Recipe, base: Interpreter, cache: Cache, paths: AttemptPaths, order: Order
    ) -> tuple[Built, int, bool]:
        """The environment, what holds it, and whether it was built for this."""
        key = choose_key(recipe, base, cache)
        held = cache.hold(key)
        built_here = held is None
        while held is None:
            self._build(recipe, key, base, cache, paths, order)
            held = cache.hold(key)
        return *held, built_here

    def _build(
        self, recipe: Recipe, key: str, base: Interpreter, cache: Cache, paths: AttemptPaths, order: Order
    ) -> None:
        self.begins()
        what = f"building the environment {recipe.label}"
        self.doing(what)
        log.info("%s: building the environment %s", order.key, key)
        try:
            with log_file(paths, order).open("ab") as out:
                for _ in range(_TRIES):
                    answer = self._run(recipe, key, base, cache, out.fileno(), what)
                    if answer is not None:
                        break
        finally:
            self.doing("")
        if answer is None:
            raise killed("the process that built the environment", signal.SIGKILL, _tail(log_file(paths, order)))
        if "failed" in answer:
            failed = answer["failed"]
            message = f"the environment {recipe.label} could not be built: {failed['message']}"
            raise Failure(failed["code"], message, failed["next"], failed["lines"])

    def _run(
        self, recipe: Recipe, key: str, base: Interpreter, cache: Cache, out: int, what: str
    ) -> dict[str, Any] | None:
        """One try; its last answer, or None when its process died without one."""
        answers, theirs = os.pipe()
        request = Request(
            recipe.to_json(), key, base.path, list(base.version), str(cache.paths.root), limit_bytes(), theirs
        )
        with spawning:
            child = subprocess.Popen(
                [sys.executable, "-m", "muster.environments.venvs.build"],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                cwd=str(Path("/")),
                env={**os.environ, NODE_MARK: self.mark},
                pass_fds=[theirs],
                start_new_session=True,
            )
            builders.add(child.pid)
        os.close(theirs)
        try:
            assert child.stdin is not None
            child.stdin.write(request.to_line())
            child.stdin.flush()
            return self._listen(answers, what)
        except BrokenPipeError:
            return None
        finally:
            os.close(answers)
            end_group(child)

    def _listen(self, answers: int, what: str) -> dict[str, Any] | None:
        """Hear what the builder does until it has ended or nobody wants it any more."""
        os.set_blocking(answers, False)
        unread = b""
        while not self.unwanted.is_set():
            try:
                data = os.read(answers, 65536)
            except BlockingIOError:
                self.unwanted.wait(_LOOK_S)
                continue
            if not data:
                return None
            *lines, unread = (unread + data).split(b"\n")
            for line in lines:
                answer: dict[str, Any] = json.loads(line)
                if "doing" not in answer:
                    return answer
                self.doing(f"{what}: {answer['doing']}")
        raise Abandoned("nobody wants the environment any more")


class Abandoned(MusterError):
    """The attempt was stopped while its environment was built."""


def choose_key(recipe: Recipe, base: Interpreter, cache: Cache) -> str:
    """The recipe's key; with versions to keep to, that of an earlier build which came to just these."""
    plain = key_of(recipe.locked(()), base.minor, host_platform())
    if not recipe.constraints:
        return plain
    found = cache.find(plain)
    if found is not None and _same(found, recipe):
        return plain
    return key_of(recipe, base.minor, host_platform())


def log_file(paths: AttemptPaths, order: Order) -> Path:
    return paths.streams / "user_logs" / f"environment_node_{order.node_rank}.txt"


def _facts(built: Built) -> dict[str, Any]:
    return {name: built.facts[name] for name in ("python", "lock", "indexes")} | {"key": built.key}


def _same(built: Built, recipe: Recipe) -> bool:
    return locks.same(built.facts.get("lock", ()), recipe.constraints)


def _base(recipe: Recipe, order: Order) -> Interpreter:
    # A client's interpreter means nothing on a machine that is not the client's.
    own = order.python if order.python and os.access(order.python, os.X_OK) else sys.executable
    try:
        with spawning:
            return find(recipe.python, own)
    except NoInterpreter as error:
        hint = "Install that Python on the node, or set `python` in the environment to one that is there."
        raise Failure("environment", f"the environment {recipe.label} cannot be built: {error}", hint) from error


def _tail(path: Path) -> list[str]:
    try:
        return path.read_bytes()[-4096:].decode(errors="replace").splitlines()[-25:]
    except OSError:
        return []
