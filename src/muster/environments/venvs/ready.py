"""The environment of an attempt on this node: taken from the host's cache, or built there by a separate process."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from muster.environments import agreement
from muster.environments.caller import Caller, Ready
from muster.environments.failures import Failure, killed
from muster.environments.limits import limit_bytes
from muster.environments.venvs import locks
from muster.environments.venvs.cache import Built, Cache, python_of
from muster.environments.venvs.interpreters import Interpreter, NoInterpreter, find, host_platform
from muster.environments.venvs.others import common_key
from muster.environments.venvs.recipe import key_of
from muster.environments.venvs.request import (
    Answer,
    Doing,
    Failed,
    Finished,
    Request,
    WheelAnswer,
    WheelMade,
    WheelWanted,
)
from muster.host.children import Child, ChildEnded, spawning
from muster.host.locks import HeldLock
from muster.paths import environments_dir
from muster.wire.codec import from_json, to_json
from muster.wire.environments import BuiltEnvironment
from muster.wire.node.recipes import Recipe

log = logging.getLogger(__name__)

_TRIES = 2
_WHAT = "the environment"


def make_ready(caller: Caller, recipe: Recipe, may_build: bool = True) -> Ready:
    """Prepare the attempt's environment; raises Failure, or Abandoned.

    Building runs code of the packages: a sandboxed job only uses what is there already.
    """
    base = _base(caller, recipe)
    cache = Cache(caller.environments or environments_dir(), limit_bytes())
    began = time.monotonic()
    try:
        taken = _take(caller, recipe, base, cache)
        if cache.find(choose_key(recipe, base, cache)) is None:
            recipe = agreement.before(caller, recipe, base.minor)
        built, lock, built_here = _held(caller, recipe, base, cache, may_build)
        try:
            wanted = agreement.after(caller, recipe, _described(built))
        except BaseException:
            lock.release()
            raise
        if wanted is not recipe:
            lock.release()
            built, lock, built_here = _held(caller, wanted, base, cache, may_build)
    finally:
        caller.others.close()
    described = _described(built)
    if built_here or taken:
        described = replace(described, built_s=round(time.monotonic() - began, 3))
    return Ready(str(python_of(built)), lock, described, recipe.variables)


def _take(caller: Caller, recipe: Recipe, base: Interpreter, cache: Cache) -> bool:
    """Take a missing environment from another node; waits for one that is building it."""
    key = choose_key(recipe, base, cache)
    # Conda's packages contain the path of their folder in too many places.
    if recipe.conda or cache.find(key) is not None:
        return False
    with caller.others.taken(common_key(key, base), lambda: cache.find(key) is not None, _WHAT) as packed:
        if packed is None:
            return False
        _build(caller, recipe, Request(recipe, key, base, str(cache.root), limit_bytes(), str(packed)), None)
    return True


def choose_key(recipe: Recipe, base: Interpreter, cache: Cache) -> str:
    """The recipe's key; with given versions, that of an earlier build with exactly these."""
    plain = key_of(recipe.locked(()), base.minor, host_platform())
    if not recipe.constraints:
        return plain
    found = cache.find(plain)
    if found is not None and locks.same(found.record.lock, recipe.constraints):
        return plain
    return key_of(recipe, base.minor, host_platform())


def _held(
    caller: Caller, recipe: Recipe, base: Interpreter, cache: Cache, may_build: bool
) -> tuple[Built, HeldLock, bool]:
    """The environment, its lock, and whether it was built for this attempt."""
    key = choose_key(recipe, base, cache)
    held = cache.hold(key)
    built_here = held is None
    while held is None:
        if not may_build:
            raise Failure(
                "environment",
                f"the environment {recipe.label} is not on this node, and is not built for a job in a sandbox: "
                "building runs code of its packages",
                "An administrator builds it first (`muster env build`), or the job names an image.",
            )
        _build(
            caller, recipe, Request(recipe, key, base, str(cache.root), limit_bytes()), cache.took_s(key, recipe.label)
        )
        held = cache.hold(key)
    if built_here:
        folder = held.entry.folder
        caller.others.keep(common_key(key, base), lambda: nullcontext(folder), _WHAT)
    return held.entry, held.lock, built_here


def _build(caller: Caller, recipe: Recipe, request: Request, took_s: float | None) -> None:
    caller.begins()
    last_time = "" if took_s is None else f" (took {took_s:.0f} s last time)"
    what = f"{'unpacking' if request.packed else 'building'} the environment {recipe.label}{last_time}"
    caller.doing(what)
    log.info("%s: building the environment %s", caller.name, request.key)
    try:
        with caller.log.open("ab") as out:
            for _ in range(_TRIES):
                answer = _run(caller, request, out.fileno(), what)
                if answer is not None:
                    break
    finally:
        caller.doing("")
        caller.wheels.close()
    if answer is None:
        raise killed("the process that built the environment", signal.SIGKILL, _tail(caller.log))
    if isinstance(answer, Failed):
        message = f"the environment {recipe.label} could not be built: {answer.message}"
        raise Failure(answer.code, message, answer.next, answer.lines)


def _run(caller: Caller, request: Request, out: int, what: str) -> Finished | Failed | None:
    """One try; returns its last answer, or None if its process died without one. Raises Abandoned."""
    command = [sys.executable, "-m", "muster.environments.venvs.build"]
    child = Child(command, environment=caller.environ, errors=out)
    try:
        child.send(to_json(request))
        while True:
            answer: Answer = from_json(Answer, child.receive(caller.unwanted))  # type: ignore[arg-type]
            if isinstance(answer, Doing):
                caller.doing(f"{what}: {answer.text}")
            elif isinstance(answer, WheelWanted):
                child.send(to_json(WheelAnswer(caller.wheels.find(answer.key, Path(answer.folder)))))
            elif isinstance(answer, WheelMade):
                caller.wheels.keep(answer.key, Path(answer.path))
                child.send(to_json(WheelAnswer(True)))
            else:
                return answer
    except ChildEnded:
        return None
    finally:
        child.end_group()


def _described(built: Built) -> BuiltEnvironment:
    return BuiltEnvironment(built.key, built.record.python, built.record.lock, built.record.indexes)


def _base(caller: Caller, recipe: Recipe) -> Interpreter:
    # A client's interpreter means nothing on other machines.
    given = caller.python
    own = given if given and os.access(given, os.X_OK) else sys.executable
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
