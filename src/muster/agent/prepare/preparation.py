"""Preparing one attempt in a worker thread: folders, environment, code, checkpoint, inputs, outputs, ports."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from muster.agent import folder, identity, mover
from muster.agent.attempt import Attempt, PreparedAttempt
from muster.agent.link import Backoff
from muster.agent.prepare import code, ports, preflight
from muster.agent.prepare.bundles import Bundles, worth_sharing
from muster.agent.prepare.environments import NodeEnvironments
from muster.agent.prepare.inputs import Inputs
from muster.agent.prepare.outputs import check_outputs, output_paths
from muster.agent.prepare.shares import Shares
from muster.agent.prepare.wheels import NodeWheels
from muster.agent.refusal import Refusal, refusal_of
from muster.agent.run.container import sandbox
from muster.agent.run.container.describe import look as look_into
from muster.agent.run.mpi.find import Found, find, find_inside
from muster.agent.run.variables import NODE_MARK
from muster.agent.services import NodeServices
from muster.agent.ship import checkpoints
from muster.environments.caller import Caller, Ready
from muster.environments.failures import Failure
from muster.environments.venvs import ready as venvs
from muster.environments.venvs.others import NoOthers
from muster.errors import MusterError, NotFound
from muster.host.files import write_file
from muster.paths import AttemptPaths
from muster.wire.checkpoints import CheckpointFile
from muster.wire.node.agents import Facts, Order
from muster.wire.node.plan import Needs

log = logging.getLogger(__name__)


class Preparation:
    """Prepares one attempt; the attempt holds on to what was prepared."""

    def __init__(self, attempt: Attempt, services: NodeServices) -> None:
        self._attempt = attempt
        self._services = services
        self._doing = partial(services.doing, attempt.key)
        self._note = partial(services.note, attempt.order)

    def run(self) -> PreparedAttempt | None:
        """Retry while the server is away; None when it is no longer wanted. Raises Refusal."""
        attempt, backoff = self._attempt, Backoff()
        while not attempt.unwanted.is_set():
            try:
                with _refusing(attempt.order, attempt.paths):
                    return self._prepare(attempt.order, attempt.paths)
            except Refusal:
                raise
            except MusterError as error:
                log.info("%s: code or checkpoint did not arrive, trying again: %s", attempt.key, error)
                attempt.unwanted.wait(backoff.next_s())
            except Exception as error:
                log.exception("%s could not be prepared", attempt.key)
                raise Refusal("platform", f"it could not be prepared: {error!r}") from error
        return None

    def _prepare(self, order: Order, paths: AttemptPaths) -> PreparedAttempt:
        folder.make(order, paths)
        needs = order.needs or Needs()
        preflight.check_machine(needs, order.user_env)
        sandbox.check(order)
        environment = self._prepare_environment(order, paths)
        python = environment.python if environment else _interpreter(order.python)
        python_bin = "" if environment and environment.container else self._python_bin(python)
        # Before slow steps: a job that cannot run need not wait for its data.
        facts, mpi = self._check(needs, order, paths, environment, python, python_bin)
        share = partial(_share_checkpoint, self._bundles(order), order.run) if order.shared else _not_shared
        resumed, resume_dir, about_resume = checkpoints.fetch(order, paths, self._services.link, share)
        facts = replace(facts, notices=(*facts.notices, *about_resume), machine=identity.machine())
        shares = self._mount_shares(order, paths)
        outputs = output_paths(order, paths)
        check_outputs(order, self._services.link, self._mover(), self._doing)
        inputs = self._prepare_inputs(order, paths)
        held = ports.hold(order.ports_count, order.ports_preferred, order.ports_avoid, chosen=needs.port)
        tmp = str(folder.short_tmp(paths))
        return PreparedAttempt(
            tuple(held), inputs, outputs, python, python_bin, tmp, resumed, resume_dir, facts, environment, shares, mpi
        )

    def _check(
        self, needs: Needs, order: Order, paths: AttemptPaths, environment: Ready | None, python: str, python_bin: str
    ) -> tuple[Facts, Found | None]:
        """Fetch the code, and check the ranks' Python meanwhile; also find the mpirun of an MPI job."""
        if environment is not None and environment.container is not None:
            self._fetch_code(order, paths)
            facts = look_into(environment.container, needs, order, paths)
            return facts, find_inside(environment.container) if order.mpi else None
        confine = partial(sandbox.confined, order, self._services)
        # Variables that load libraries must not reach bubblewrap, which is not confined yet.
        names = order.user_env if order.sandbox is None else ("PATH",) if "PATH" in order.user_env else ()
        user_env = {name: order.user_env[name] for name in names}
        check = preflight.PythonCheck(needs, python, python_bin, user_env, confine=confine)
        mpi = find(python, python_bin, user_env, confine) if order.mpi else None
        self._fetch_code(order, paths)
        return check.result(), mpi

    def _fetch_code(self, order: Order, paths: AttemptPaths) -> None:
        if order.snapshot is not None:
            self._unpack(order.snapshot, paths.work)

    def _unpack(self, digest: str, folder: Path) -> None:
        """Copy the files of a code snapshot to a folder."""
        order, services = self._attempt.order, self._services
        share = partial(code.share_snapshot, self._bundles(order)) if order.shared else _not_shared
        code.copy_snapshot(services.paths.code_cache, digest, services.link.archive, folder, share=share)

    def _bundles(self, order: Order) -> Bundles:
        services = self._services
        return Bundles(
            order.key, order.own_cache, services.link, self._mover(), services.peers, self._doing, self._note
        )

    def _prepare_environment(self, order: Order, paths: AttemptPaths) -> Ready | None:
        attempt = self._attempt
        if attempt.environment is None and order.container is not None:
            # Imported here: few jobs have one, and every start of an agent would pay for it.
            from muster.environments.images import ready as images

            self._services.paths.containers_used.touch()
            attempt.environment = images.make_ready(self._caller(order, paths), order.container)
        elif attempt.environment is None and order.environment is not None:
            may_build = order.sandbox is None
            attempt.environment = venvs.make_ready(self._caller(order, paths), order.environment, may_build=may_build)
        return attempt.environment

    def _caller(self, order: Order, paths: AttemptPaths) -> Caller:
        services = self._services
        return Caller(
            order.run,
            order.attempt,
            order.num_nodes,
            order.python if order.sandbox is None else None,
            mark=services.mark,
            environ={**services.environ, NODE_MARK: services.mark},
            folder=paths.root,
            log=paths.streams / "user_logs" / f"environment_node_{order.node_rank}.txt",
            unwanted=self._attempt.unwanted,
            begins=partial(services.track, order, paths),
            doing=self._doing,
            note=self._note,
            agree=partial(services.link.agree, order),
            unpack=self._unpack,
            wheels=NodeWheels(services.link, self._attempt.unwanted),
            others=NodeEnvironments(self._bundles(order), self._attempt.unwanted) if order.shared else NoOthers(),
            environments=services.paths.environments if order.own_cache else None,
        )

    def _prepare_inputs(self, order: Order, paths: AttemptPaths) -> dict[str, str]:
        services = self._services
        self._attempt.inputs = Inputs(
            order, paths, services.link, self._mover(), self._doing, self._note, services.peers
        )
        return self._attempt.inputs.prepare()

    def _mount_shares(self, order: Order, paths: AttemptPaths) -> dict[str, str]:
        services = self._services
        self._attempt.shares = Shares(order, paths, services.link, self._mover(), self._doing, self._note)
        return self._attempt.shares.prepare() if order.mounts else {}

    def _mover(self) -> mover.Mover:
        return mover.Mover(self._services.mark, self._attempt.unwanted)

    def _python_bin(self, python: str) -> str:
        """A folder in which `python` is the interpreter: the interpreter's own, or a small one made for it."""
        own = Path(python).parent
        if (own / "python").exists():
            return str(own)
        made = self._services.paths.root / "bin" / hashlib.sha256(python.encode()).hexdigest()[:12]
        if not (made / "python").exists():
            made.mkdir(parents=True, exist_ok=True)
            # A script, not a link: a virtual environment is recognized by the path that it was started from.
            write_file(made / "python", f'#!/bin/sh\nexec "{python}" "$@"\n', mode=0o755)
        return f"{made}:{own}"


def _not_shared(*_: object) -> bool:
    """A `Share` for nodes that fetch nothing from each other."""
    return False


def _share_checkpoint(
    bundles: Bundles, run: str, checkpoint: int, files: Sequence[CheckpointFile], folder: Path
) -> bool:
    """Fetch a large checkpoint's files into a folder, each node of a gang its share of them."""
    if not worth_sharing([file.size for file in files]):
        return False
    access = bundles.link.checkpoint_access(checkpoint, run, files)
    try:
        with bundles.staged("checkpoint", str(checkpoint), access, "the checkpoint") as data:
            for file in files:
                target = folder / file.target
                target.parent.mkdir(parents=True, exist_ok=True)
                code.copy_file(data / str(file.part) / file.path, target)
    except mover.Failed as error:
        # Whatever is wrong with it shows when this node fetches it alone.
        log.info("the checkpoint %s was not shared: %s", checkpoint, error)
        return False
    return True


@contextmanager
def _refusing(order: Order, paths: AttemptPaths) -> Iterator[None]:
    """Turn errors that keep an attempt from running into a Refusal with a code and a precise message."""
    try:
        yield
    except mover.Failed as failed:
        raise Refusal(failed.code, failed.message, failed.next) from failed
    except Failure as failure:
        raise Refusal(failure.code, failure.message, failure.next, failure.lines) from failure
    except (NotFound, tarfile.TarError) as trouble:
        message = f"the code snapshot {order.snapshot} could not be fetched: {trouble}. Submit the job again."
        raise Refusal("platform", message) from trouble
    except OSError as error:
        raise refusal_of(error, paths.root) from error


def _interpreter(python: str | None) -> str:
    if python is None:
        return sys.executable
    if not os.access(python, os.X_OK):
        message = f"the Python interpreter {python} is not on this node. Name one that is, or leave it out."
        raise Refusal("bad_input", message)
    return python
