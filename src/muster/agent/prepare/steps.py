"""Preparing an attempt: folders, code, inputs, outputs, ports, interpreter. Runs in a worker thread."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muster.agent import identity, mover
from muster.agent.prepare import code, mounts, ports, preflight
from muster.agent.prepare.code import Fetch
from muster.agent.run.container.describe import look as look_into
from muster.agent.run.mpi.find import Found, NoMpi, find, find_inside
from muster.agent.ship.outputs import places
from muster.environments.caller import Ready
from muster.environments.failures import Failure
from muster.errors import NotFound
from muster.host.files import PRIVATE, remove_aside, remove_tree, write_file, write_json
from muster.launch.model import needs_from_json
from muster.paths import AttemptPaths, NodePaths, shared_memory_dir, user_runtime_dir
from muster.protocol import Order, order_to_json

# multiprocessing puts sockets below TMPDIR, and a socket's path may have 107 bytes.
_LONGEST_TMP = 60

Resume = Callable[[Order, AttemptPaths], tuple[int | None, str | None, list[str]]]
"""Puts the checkpoint to resume from in place; which it is, where, and notices."""
MakeReady = Callable[[Order, AttemptPaths], Ready | None]
"""Puts the attempt's environment in place, where it has one of its own."""
PlaceInputs = Callable[[Order, AttemptPaths], dict[str, str]]
"""Puts the inputs in place; where the job finds each."""


class Refusal(Exception):
    """The attempt cannot be prepared or started here; becomes a `refused` event."""

    def __init__(self, code: str, message: str, next: str = "", lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.next = next
        self.lines = tuple(lines)

    def to_json(self) -> dict[str, Any]:
        told = {"code": self.code, "message": self.message, "next": self.next, "lines": list(self.lines)}
        return {key: value for key, value in told.items() if value}


@dataclass(frozen=True)
class Prepared:
    """What preparation found and made."""

    ports: tuple[ports.HeldPort, ...]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    python: str
    python_bin: str
    tmp: str
    resumed: int | None = None
    """Which checkpoint was put in place."""
    resume: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the look at the node found."""
    environment: Ready | None = None
    """What the ranks run in, where the attempt has an environment of its own."""
    mpi: Found | None = None
    """The mpirun of an MPI job."""


def prepare(
    order: Order, node: NodePaths, fetch: Fetch, resume: Resume, make_ready: MakeReady, place_inputs: PlaceInputs
) -> Prepared:
    """Put everything in place; raises Refusal with a code and a message that names the thing."""
    paths = node.attempt(order.run, order.attempt)
    try:
        _make_folders(order, paths)
        needs = needs_from_json(order.needs)
        preflight.check_node(needs, order.user_env)
        environment = make_ready(order, paths)
        python = environment.python if environment else _interpreter(order.python)
        used = environment.container if environment else None
        if used is not None:
            python_bin = ""
            _place_code(order, node, paths, fetch)
            facts = look_into(used, needs, order, paths).to_json()
            mpi = find_inside(used) if order.mpi else None
        else:
            python_bin = _python_bin(python, node)
            look = preflight.Preflight(needs, python, python_bin, order.user_env)
            mpi = find(python, python_bin, order.user_env) if order.mpi else None
            _place_code(order, node, paths, fetch)
            # Before what may take long: a job that cannot run need not wait for its data.
            facts = look.result().to_json()
        resumed, resume_dir, about_resume = resume(order, paths)
        outputs = places(order, paths)
        inputs = place_inputs(order, paths)
        held = ports.hold(order.ports_count, order.ports_preferred, order.ports_avoid, chosen=needs.port)
    except mover.Failed as failed:
        raise Refusal(failed.code, failed.message) from failed
    except Failure as failure:
        raise Refusal(failure.code, failure.message, failure.next, failure.lines) from failure
    except ports.PortTrouble as trouble:
        raise Refusal("port_trouble", str(trouble)) from trouble
    except preflight.Problem as problem:
        raise Refusal(problem.code, str(problem)) from problem
    except NoMpi as trouble:
        raise Refusal("launcher_missing", str(trouble), trouble.next) from trouble
    except code.UnsafeArchive as trouble:
        raise Refusal("bad_input", str(trouble)) from trouble
    except (NotFound, tarfile.TarError) as trouble:
        message = f"the code snapshot {order.snapshot} could not be fetched: {trouble}. Submit the job again."
        raise Refusal("platform", message) from trouble
    except OSError as error:
        raise refusal_of(error, paths.root) from error
    notices = [*facts.get("notices", ()), *about_resume]
    facts = {**facts, "machine": identity.machine(), "notices": notices}
    tmp = str(short_tmp(paths))
    return Prepared(tuple(held), inputs, outputs, python, python_bin, tmp, resumed, resume_dir, facts, environment, mpi)


def refusal_of(error: OSError, place: Path) -> Refusal:
    """What an operating system error means for the job."""
    what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        message = f"the disk of {place} is full ({what}). Free some space there, or move the workspace."
        return Refusal("disk_full", message)
    return Refusal("platform", f"the attempt could not be prepared in {place}: {what}")


def _make_folders(order: Order, paths: AttemptPaths) -> None:
    paths.root.mkdir(parents=True, exist_ok=True)
    # First of all: a folder without an order holds nothing that anybody started.
    write_json(paths.order, order_to_json(order), mode=PRIVATE)
    for folder in (paths.work, paths.streams, paths.tmp, paths.uploads, paths.checkpoints):
        folder.mkdir(exist_ok=True)
    for folder in (paths.streams / "user_logs", paths.streams / "events", paths.work / "outputs", paths.work / "logs"):
        folder.mkdir(exist_ok=True)


def _interpreter(python: str | None) -> str:
    if python is None:
        return sys.executable
    if not os.access(python, os.X_OK):
        message = f"the Python interpreter {python} is not on this node. Name one that is, or leave it out."
        raise Refusal("bad_input", message)
    return python


def _python_bin(python: str, node: NodePaths) -> str:
    """A folder in which `python` is the interpreter: its own, or a small one made for it."""
    own = Path(python).parent
    if (own / "python").exists():
        return str(own)
    folder = node.root / "bin" / hashlib.sha256(python.encode()).hexdigest()[:12]
    if not (folder / "python").exists():
        folder.mkdir(parents=True, exist_ok=True)
        # A script, not a link: a virtual environment is recognised by the path it was started from.
        write_file(folder / "python", f'#!/bin/sh\nexec "{python}" "$@"\n', mode=0o755)
    return f"{folder}:{own}"


def _place_code(order: Order, node: NodePaths, paths: AttemptPaths, fetch: Fetch) -> None:
    if order.snapshot is not None:
        code.copy_snapshot(node.code_cache, order.snapshot, fetch, paths.work)


def will_be_told(paths: AttemptPaths) -> None:
    """Note that the server hears of this attempt from now on."""
    with suppress(OSError):
        _told(paths).touch(0o600)


def was_told(paths: AttemptPaths) -> bool:
    return _told(paths).exists() or paths.launch.exists()


def _told(paths: AttemptPaths) -> Path:
    return paths.root / "prepared"


def short_tmp(paths: AttemptPaths) -> Path:
    """The attempt's folder for temporary files, by a path short enough for sockets."""
    if len(str(paths.tmp)) <= _LONGEST_TMP:
        return paths.tmp
    link = _tmp_link(paths)
    link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if link.parent.stat().st_uid != os.getuid():
        return paths.tmp
    with suppress(FileExistsError):
        link.symlink_to(paths.tmp)
    return link


def remove(paths: AttemptPaths) -> None:
    """Remove an attempt's folder, also where the job left folders that may not be written to."""
    _tmp_link(paths).unlink(missing_ok=True)
    remove_tree(shared_memory_dir(paths.root))
    mounts.release(paths.root)
    # By another name first, so that a half-removed attempt is never taken for one.
    gone = paths.root.with_name(f"{paths.root.name}.gone")
    remove_tree(gone)
    with suppress(OSError):
        remove_aside(paths.root, gone)


def _tmp_link(paths: AttemptPaths) -> Path:
    return user_runtime_dir() / f"t-{hashlib.sha256(str(paths.root).encode()).hexdigest()[:12]}"
