"""What an attempt's image is brought with: the node's engine, its commands with their output in the run's log."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from muster.agent.prepare.environment import log_file
from muster.agent.prepare.images import engines
from muster.environments.failures import Failure
from muster.environments.images import probe
from muster.environments.images.command import Engine, inspect_image_command, probe_command, pull_command, push_command
from muster.paths import AttemptPaths
from muster.wire.node.agents import Order
from muster.wire.stream import Level

_TAIL_BYTES = 16 << 10


@dataclass(frozen=True)
class Workshop:
    """Works on the image of one attempt."""

    engine: Engine
    environ: Mapping[str, str]
    mark: str
    order: Order
    paths: AttemptPaths
    begins: Callable[[], None]
    """Called when something begins that takes long: from then on its log grows."""
    doing: Callable[[str], None]
    note: Callable[[Level, str], None]
    """Tells those who follow the run: level and text."""
    unwanted: threading.Event

    def ask(self, command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
        return engines.ask(command, engines.environment(self.environ, self.mark))

    def present(self, reference: str) -> str | None:
        """An image's id; None where it is not here."""
        done = engines.ask(inspect_image_command(self.engine, reference), self.environ)
        return done.stdout.decode().strip() or None if done.returncode == 0 else None

    def made(self, reference: str) -> str:
        """The id of an image that was just made; Failure where the engine has lost it."""
        found = self.present(reference)
        if found is None:
            raise Failure("environment", f"the engine has no image {reference} after all", "Submit it again.")
        return found

    def look(self, label: str, image: str, script: str) -> str:
        """What a short Python program prints in an image; Failure where none starts there."""
        done = self.ask(probe_command(self.engine, image, engines.extra(self.environ), script))
        if done.returncode != 0:
            lines = done.stderr.decode(errors="replace").strip().splitlines()[-10:]
            raise probe.no_answer(label, self.engine.kind, done.returncode, lines)
        return done.stdout.decode(errors="replace")

    def perform(
        self, command: list[str], what: str, more: Mapping[str, str] | None = None, *, watched: bool = False
    ) -> tuple[int, list[str]]:
        """Run a command of the engine with its output in the run's log; its exit code and last lines.

        One that is watched has an open standard input, which closes with the agent.
        """
        self.begins()
        path = log_file(self.paths, self.order)
        environ = {**engines.environment(self.environ, self.mark), **(more or {})}
        with path.open("ab") as out:
            out.write(f"muster: {what}\n".encode())
            out.flush()
            start = out.tell()
            status = engines.perform(command, environ, out, self.unwanted, watched=watched)
        with path.open("rb") as printed:
            printed.seek(max(start, path.stat().st_size - _TAIL_BYTES))
            return status, printed.read().decode(errors="replace").splitlines()

    def pulled(self, reference: str, auth: str) -> bool:
        """Whether another node has made an image and the registry has it."""
        command = pull_command(self.engine, reference, auth)
        return self.perform(command, f"looking for {reference}")[0] == 0

    def push(self, reference: str, auth: str) -> None:
        """Keep an image for other nodes; where that fails the job runs, and its people are told."""
        self.doing(f"pushing the image {reference}")
        status, printed = self.perform(push_command(self.engine, reference, auth), f"pushing {reference}")
        if status != 0:
            last = next((line for line in reversed(printed) if line.strip()), f"code {status}")
            self.note("warning", f"the image {reference} was not pushed, and other nodes build it themselves: {last}")
