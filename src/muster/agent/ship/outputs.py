"""Outputs that go to a datastore: sent while the job runs where its mode allows, complete and verified at its end."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote

from muster.agent.link import Backoff, Link, Trouble
from muster.agent.mover import Failed, Mover, Rate, Renew, shown
from muster.agent.services import NodeServices
from muster.agent.ship.files import first_few, settle
from muster.defaults import OUTPUT_POLL_S, OUTPUT_RETRY_S
from muster.errors import UserError
from muster.host.children import Abandoned
from muster.host.files import read_json, write_json
from muster.paths import AttemptPaths
from muster.storage.connectors.credentials import FreshTokens
from muster.storage.staging.messages import FileFacts, Measure, Send, Sending
from muster.wire.codec import WireError, from_json, to_json
from muster.wire.data.access import Access, HashedFile
from muster.wire.node.agents import AttemptKey, Order, OutputOrder
from muster.wire.verdicts import CANCELLED, Refusal

log = logging.getLogger(__name__)

_LEFT_ALONE_S = 2.0
_WRITABLE = "See that the datastore is there and its credential may write, and fetch the files with `muster download`."
Files = dict[str, FileFacts]


@dataclass
class Watched:
    """The outputs of one attempt."""

    order: Order
    paths: AttemptPaths
    mover: Mover
    items: list[tuple[OutputOrder, Access]]
    sent: dict[str, Files] = field(default_factory=dict)
    """By output and path: what was sent before the job's end, and under which name."""
    undelivered: list[Refusal] = field(default_factory=list)
    """Outputs that were not delivered, and why."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def staging_folder(self) -> str:
        """The folder of an attempt's files until it has succeeded."""
        node = f"node_{self.order.node_rank}/" if self.order.num_nodes > 1 else ""
        return f"attempts/{self.order.run}.{self.order.attempt}/{node}"


class Sender(threading.Thread):
    """Sends what the jobs of this node write."""

    def __init__(self, services: NodeServices) -> None:
        super().__init__(name="outputs", daemon=True)
        self._services = services
        self._link = services.link
        self._watched: dict[AttemptKey, Watched] = {}
        self._wake = threading.Event()
        self._closing = False

    def watch(self, order: Order, paths: AttemptPaths, unwanted: threading.Event) -> None:
        watched = self._of(order, paths, unwanted)
        if order.sandbox is not None:
            # A sandboxed rank may swap a path while it is read: its files are sent once it has ended.
            return
        if any(item.mode == "rw_mount" and access.folder for item, access in watched.items):
            self._watched[order.key] = watched
            self._wake.set()

    def close(self) -> None:
        self._closing = True
        self._wake.set()

    def run(self) -> None:
        took_s = 0.0
        while not self._closing:
            # Many files take long to scan: then it is done less often.
            self._wake.wait(max(OUTPUT_POLL_S, 20 * took_s) if self._watched else None)
            self._wake.clear()
            began = time.monotonic()
            for watched in list(self._watched.values()):
                try:
                    with watched.lock:
                        self._send_settled(watched)
                except (Failed, Abandoned, *Trouble) as error:
                    log.info("%s: outputs were not sent yet: %s", watched.order.key, error)
                    if isinstance(error, Failed) and error.final:
                        self._give_up_early(watched, error)
            took_s = time.monotonic() - began
        self._link.close()

    def _give_up_early(self, watched: Watched, error: Failed) -> None:
        """Report while the job can still be stopped; at its end it is tried once more."""
        self._watched.pop(watched.order.key, None)
        text = f"outputs cannot be sent while the job runs: {error.message}. They are tried once more at its end"
        self._services.note(watched.order, "warning", text)

    def finish(
        self, order: Order, paths: AttemptPaths, unwanted: threading.Event, succeeded: bool
    ) -> tuple[list[str], list[Refusal]]:
        """No process is left: deliver everything. Returns notes for the run, and what was not delivered."""
        watched = self._watched.pop(order.key, None) or self._of(order, paths, unwanted)
        notes: list[str] = []
        with watched.lock:
            for item, access in watched.items:
                notes += self._finish(watched, item, access, succeeded)
        self._services.doing(order.key, "")
        return notes, watched.undelivered

    def _of(self, order: Order, paths: AttemptPaths, unwanted: threading.Event) -> Watched:
        pairs = [(item, item.access) for item in order.output_orders if item.access]
        items = [(item, access) for item, access in pairs if item.mode != "direct" and access.kind != "refused"]
        return Watched(order, paths, Mover(self._services.mark, unwanted), items, _read(paths.sent_outputs))

    def _send_settled(self, watched: Watched) -> None:
        """While the job runs: send files that no longer change to the attempt's own folder in the datastore."""
        for item, access in watched.items:
            if item.mode != "rw_mount" or not access.folder or watched.mover.unwanted.is_set():
                continue
            folder, known = watched.paths.out / item.name, watched.sent.setdefault(item.name, {})
            if not _has_news(folder, known):
                continue
            now = time.time()
            found = self._measure(watched, folder, known)
            fresh = {
                path: facts
                for path, facts in found.items()
                if facts.name is None and now - facts.mtime_ns / 1e9 > _LEFT_ALONE_S
            }
            if fresh:
                names = {path: f"{watched.staging_folder}{path}" for path in fresh}
                self._send(watched, item, access, fresh, names)
                known.update({path: replace(facts, name=names[path]) for path, facts in fresh.items()})
                write_json(watched.paths.sent_outputs, to_json(watched.sent))

    def _finish(self, watched: Watched, item: OutputOrder, access: Access, succeeded: bool) -> list[str]:
        folder, label = watched.paths.out / item.name, access.label or access.url
        self._report_left_out(watched, item.name, settle(folder, watched.paths.root))
        deadline = time.monotonic() + OUTPUT_RETRY_S
        backoff = Backoff(most_s=30.0)
        while not watched.mover.unwanted.is_set():
            try:
                found = self._measure(watched, folder, watched.sent.get(item.name, {}))
                return self._deliver(watched, item, access, found, succeeded)
            except Abandoned:
                break
            except Trouble as error:
                # The server is away: waiting for it loses nothing.
                log.info("%s: output %s waits for the server: %s", watched.order.key, item.name, error)
            except Failed as error:
                log.warning("%s: output %s was not sent: %s", watched.order.key, item.name, error.message)
                if error.final or time.monotonic() > deadline or error.code in ("bad_input", "disk_full"):
                    _keep_with_run(folder, watched.paths, item.name)
                    why = f"output {item.name} could not be written to {label}: {error.message}".removesuffix(".")
                    kept = f"It is kept with the run, under outputs/{item.name}"
                    watched.undelivered.append(Refusal("data_unavailable", f"{why}. {kept}", _WRITABLE, late=True))
                    return [f"{why}. {kept}"]
                self._services.doing(
                    watched.order.key, f"output {item.name} is not sent yet, trying again: {error.message}"
                )
            watched.mover.unwanted.wait(backoff.next_s())
        watched.undelivered.append(Refusal(CANCELLED, f"output {item.name}", late=True))
        return []

    def _report_left_out(self, watched: Watched, name: str, left_out: list[str]) -> None:
        for what in first_few(left_out):
            self._services.note(watched.order, "warning", f"output {name}: left out {what}")

    def _deliver(self, watched: Watched, item: OutputOrder, access: Access, found: Files, succeeded: bool) -> list[str]:
        """Once it is known how the attempt ended: deliver to the output's folder, or apart from it."""
        order, label = watched.order, access.label or access.url
        if not found:
            return []
        if not access.folder:
            return self._deliver_file(watched, item, access, found, succeeded)
        names: Mapping[str, str | None] = {path: path for path in found}
        if order.num_nodes > 1:
            succeeded, names = self._claim(watched, item, found)
        if not succeeded:
            staged: dict[str, str] = {path: f"{watched.staging_folder}{path}" for path in found}
            self._send(watched, item, access, found, staged)
            return [f"output {item.name} of the failed attempt is kept apart: {_below(label, watched.staging_folder)}"]
        wanted = {path: name for path, name in names.items() if name is not None}
        self._send(watched, item, access, {path: found[path] for path in wanted}, wanted, at_end=True)
        size = shown(sum(found[path].size for path in wanted))
        self._services.note(order, "info", f"output {item.name}: {_files(len(wanted))}, {size}, at {label}")
        renamed = sum(1 for path, name in wanted.items() if name != path)
        if not renamed:
            return []
        where = _below(label, f"node_{order.node_rank}/")
        what = f"{_files(renamed)} whose name another node wrote too"
        return [f"output {item.name}: {what} now {'lies' if renamed == 1 else 'lie'} in {where}"]

    def _deliver_file(
        self, watched: Watched, item: OutputOrder, access: Access, found: Files, succeeded: bool
    ) -> list[str]:
        """Deliver an output that is one file; other files are kept with the run."""
        name = last_part(access)
        if watched.order.num_nodes > 1:
            own = {name: found[name]} if name in found else {}
            succeeded, names = self._claim(watched, item, own)
            succeeded = succeeded and names.get(name) == name
        if succeeded and name in found:
            self._send(watched, item, access, {name: found[name]}, {name: ""})
            found = {path: facts for path, facts in found.items() if path != name}
            (watched.paths.out / item.name / name).unlink(missing_ok=True)
        if not found:
            return []
        _keep_with_run(watched.paths.out / item.name, watched.paths, item.name)
        return [
            f"output {item.name}: what did not go to {access.label} is kept with the run, under outputs/{item.name}"
        ]

    def _claim(self, watched: Watched, item: OutputOrder, found: Files) -> tuple[bool, Mapping[str, str | None]]:
        """Wait until the whole gang has ended; the server gives every file a unique name."""
        files = [HashedFile(path, facts.size, facts.sha256) for path, facts in found.items()]
        backoff = Backoff()
        while not watched.mover.unwanted.is_set():
            answer = self._link.claim_outputs(watched.order, item.name, files)
            if answer.outcome != "running":
                return answer.outcome == "succeeded", dict(answer.names)
            watched.mover.unwanted.wait(backoff.next_s())
        raise Abandoned("nobody wants the outputs any more")

    def _measure(self, watched: Watched, folder: Path, known: Files) -> Files:
        with watched.mover.run(Measure(str(folder), known), lambda _: None, lambda _: FreshTokens()) as done:
            return dict(done.measured)

    def _send(
        self,
        watched: Watched,
        item: OutputOrder,
        access: Access,
        found: Files,
        names: Mapping[str, str],
        at_end: bool = False,
    ) -> None:
        folder = watched.paths.out / item.name
        early = {path: facts.name for path, facts in watched.sent.get(item.name, {}).items()}
        files = tuple(
            Sending(
                str(folder / path),
                names[path],
                facts.size,
                facts.sha256,
                facts.name if facts.name != names[path] else None,
            )
            for path, facts in found.items()
        )
        # Files that were sent early and then changed, removed or found to be another node's are deleted.
        stale = [name for path, name in early.items() if at_end and (path not in found or found[path].name != name)]
        request = Send(access, files, tuple(name for name in stale if name is not None), self._link.reached_at())
        rate = Rate(f"sending output {item.name}")

        renew = renewal(self._link, watched.order, item, access)
        with watched.mover.run(request, lambda p: self._services.doing(watched.order.key, rate.text(p)), renew) as done:
            log.info("%s: output %s: %s sent", watched.order.key, item.name, shown(done.bytes))
        self._services.doing(watched.order.key, "")


def undelivered(missed: Sequence[Refusal]) -> Refusal | None:
    """The refusal for what was not delivered; a storage's reason says more than a cancelled delivery."""
    if not missed:
        return None
    worst = next((item for item in missed if item.code != CANCELLED), None)
    return worst or Refusal(CANCELLED, f"not delivered: {', '.join(item.message for item in missed)}", late=True)


def renewal(link: Link, order: Order, item: OutputOrder, access: Access) -> Renew:
    """The callback by which a mover gets fresh tokens for an output."""

    def renew(paths: tuple[str, ...]) -> FreshTokens:
        wanted = {item.name: paths} if access.per_file else {}
        try:
            fresh = link.grants(order, wanted)
        except UserError as error:
            raise Failed("data_unavailable", f"no fresh grant for output {item.name!r}: {error}", True) from error
        output = fresh.outputs.get(item.name)
        return FreshTokens(output.token if output is not None else None, fresh.tokens.get(item.name, {}))

    return renew


def _has_news(folder: Path, known: Files) -> bool:
    """Whether any file has not been sent; cheap, so that an idle output starts no process."""
    for path in folder.rglob("*"):
        facts = known.get(path.relative_to(folder).as_posix())
        try:
            status = path.lstat()
        except OSError:
            continue
        if path.is_file() and (facts is None or facts.mtime_ns != status.st_mtime_ns):
            return True
    return False


def _keep_with_run(folder: Path, paths: AttemptPaths, name: str) -> None:
    """Move an output to where the run's own files are collected."""
    target = paths.work / "outputs" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(folder, target, dirs_exist_ok=True, symlinks=True)


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count:,} files"


def last_part(access: Access) -> str:
    name = access.url.rstrip("/").rpartition("/")[2]
    return name if access.kind in ("file", "fsspec") else unquote(name)


def _below(label: str, path: str) -> str:
    return f"{label.rstrip('/')}/{path}"


def _read(path: Path) -> dict[str, Files]:
    try:
        return from_json(dict[str, Files], read_json(path))
    except WireError:
        return {}
