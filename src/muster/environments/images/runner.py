"""Runs the commands of the node's container engine for one attempt, with their output in the run's log."""

from __future__ import annotations

import hashlib
import math
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster.environments.caller import Caller
from muster.environments.failures import Failure
from muster.environments.images import engines, probe
from muster.environments.images.command import Engine, inspect_image_command, probe_command, pull_command, push_command
from muster.environments.images.kept import images_dir
from muster.host.children import Abandoned
from muster.host.locks import FileLock, HeldLock

_TAIL_BYTES = 16 << 10


@dataclass(frozen=True)
class EngineRunner:
    """The engine, working on the image of one attempt."""

    engine: Engine
    caller: Caller

    def ask(self, command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
        return engines.ask(command, self.caller.environ)

    def present(self, reference: str) -> str | None:
        """An image's id; None if it is not here."""
        done = self.ask(inspect_image_command(self.engine, reference))
        return done.stdout.decode().strip() or None if done.returncode == 0 else None

    def made(self, reference: str) -> str:
        """The id of an image that was just made; raises Failure if the engine has lost it."""
        found = self.present(reference)
        if found is None:
            raise Failure("environment", f"the engine has no image {reference} after all", "Submit it again.")
        return found

    def alone(self, reference: str) -> HeldLock:
        """A lock for the only process of the host that may fetch this image; raises Abandoned."""
        name = hashlib.sha256(f"{self.engine.kind}-{reference}".encode()).hexdigest()[:24]
        lock = FileLock(images_dir() / f"{name}.lock")
        held = lock.acquire_within(math.inf, poll_s=0.1, pause=self.caller.unwanted.wait)
        if held is None:
            raise Abandoned("nobody wants the image any more")
        return held

    def look(self, label: str, image: str, script: str) -> str:
        """The output of a short Python program in an image; raises Failure if none starts there."""
        done = self.ask(probe_command(self.engine, image, engines.extra(self.caller.environ), script))
        if done.returncode != 0:
            lines = done.stderr.decode(errors="replace").strip().splitlines()[-10:]
            raise probe.no_answer(label, self.engine.kind, done.returncode, lines)
        return done.stdout.decode(errors="replace")

    def perform(
        self, command: list[str], what: str, more: Mapping[str, str] | None = None, *, watched: bool = False
    ) -> tuple[int, list[str]]:
        """Run a command of the engine with its output in the run's log; returns its exit code and last lines.

        With `watched` it has an open standard input, which closes with the agent.
        """
        self.caller.begins()
        path = self.caller.log
        environ = {**self.caller.environ, **(more or {})}
        with path.open("ab") as out:
            out.write(f"muster: {what}\n".encode())
            out.flush()
            start = out.tell()
            status = engines.perform(command, environ, out, self.caller.unwanted, watched=watched)
        with path.open("rb") as printed:
            printed.seek(max(start, path.stat().st_size - _TAIL_BYTES))
            return status, printed.read().decode(errors="replace").splitlines()

    def pulled(self, reference: str, auth: str) -> bool:
        """Whether another node has made an image and pushed it to the registry."""
        command = pull_command(self.engine, reference, auth)
        return self.perform(command, f"looking for {reference}")[0] == 0

    def push(self, reference: str, auth: str) -> None:
        """Push an image for other nodes; if that fails the job runs all the same, with a warning."""
        self.caller.doing(f"pushing the image {reference}")
        status, printed = self.perform(push_command(self.engine, reference, auth), f"pushing {reference}")
        if status != 0:
            last = next((line for line in reversed(printed) if line.strip()), f"code {status}")
            text = f"the image {reference} was not pushed, and other nodes build it themselves: {last}"
            self.caller.note("warning", text)
