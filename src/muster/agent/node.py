"""The node's loop: orders in, events out. All that is known of attempts is changed in this one thread."""

from __future__ import annotations

import json
import logging
import os
import pwd
import queue
import selectors
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from muster.agent.attempt import Attempt, Phase, Step, next_step
from muster.agent.link import Link
from muster.agent.prepare import mounts, steps
from muster.agent.prepare.queue import Preparer
from muster.agent.prepare.steps import Prepared, Refusal
from muster.agent.run import journal, launch_file
from muster.agent.run.keeper_pool import Keepers
from muster.agent.run.sampler import Sampler
from muster.agent.ship import checkpoints, files
from muster.agent.ship.outputs import Sender
from muster.agent.ship.shipper import Drop, Finish, Look, Shipper, Tell, Track
from muster.agent.workers import Workers
from muster.defaults import GRACE_CANCEL_S, KILL_AFTER_TERM_S
from muster.environments.images import engines
from muster.host.files import PRIVATE, write_json
from muster.paths import AttemptPaths, NodePaths
from muster.protocol import AgentConfig, Event, Order, order_from_json
from muster.wire.codec import to_json

log = logging.getLogger(__name__)

Key = tuple[str, int]

_TICK_S = 1.0
_TEND_S = 0.01
_LAST_DELIVERY_S = 10.0
_REMEMBERED = 10_000


class Node:
    """Runs the attempts that are ordered on this node."""

    def __init__(self, config: AgentConfig, link: Link, runtime: Path, mark: str, sampler: Sampler) -> None:
        self._config = config
        self._paths = NodePaths(Path(config.root))
        self._link = link
        self._runtime = runtime
        self._mark = mark
        self._sampler = sampler
        self._environment = {**_identity(), **os.environ}
        self._attempts: dict[Key, Attempt] = {}
        self._forgotten: dict[Key, None] = {}
        self._doing: dict[Key, tuple[str, float]] = {}
        """What a preparation that takes long is at, and since when."""
        self._had_any = False
        self._leave = False
        self._terminated_at: float | None = None
        self._greet: Callable[[], None] = lambda: None
        self._mailbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake_read, self._wake_write = os.pipe()
        self._selector = selectors.DefaultSelector()
        self._keepers = Keepers(
            self._selector, mark, self._paths.root / "nursery.log", self._keeper_said, self._keeper_closed
        )
        self._fetchers = Workers("prepare", 4)
        self._builders = Workers("environments", 16)
        self._senders = Workers("files", 2)
        self._preparer = Preparer(
            self._paths,
            link,
            mark,
            self._environment,
            begins=lambda attempt: self.post(partial(self._track, attempt)),
            doing=self._is_doing,
            note=self._note,
        )
        self._publisher = checkpoints.Publisher(link)
        self._outputs = Sender(link, mark, self._is_doing, self._note)
        self._shipper = Shipper(
            link,
            heartbeat=self._heartbeat,
            delivered=lambda key: self.post(partial(self._delivered, key)),
            forget=lambda key: self.post(partial(self._forget, key)),
            unknown=lambda: self._greet(),
        )
        self.holding: tuple[Key, ...] = ()
        """Read by other threads; replaced, never changed."""

    def run(self, greet: Callable[[], None]) -> None:
        """Work until there is nothing left to do and somebody asked to leave."""
        self._greet = greet
        self._watch_signals()
        self._keepers.start()
        self._take_up()
        self._shipper.start()
        self._sampler.start()
        self._publisher.start()
        self._outputs.start()
        busy = False
        while not self._may_leave():
            for key, _ in self._selector.select(_TEND_S if busy else self._wait_s()):
                key.data()
            busy = self._keepers.tend()
            self._check_clocks()
        self._close()

    def post(self, action: Callable[[], None]) -> None:
        """Have something done in the loop; callable from every thread."""
        self._mailbox.put(action)
        try:
            os.write(self._wake_write, b"\0")
        except (BlockingIOError, OSError):
            pass

    def apply_orders(self, orders: Iterable[Mapping[str, Any]], leave: bool) -> None:
        """The server's orders: for every attempt the state that is wanted."""
        self._leave = leave
        for order in sorted(map(order_from_json, orders), key=lambda order: order.key):
            self._apply(order)

    # Signals, clocks, leaving

    def _watch_signals(self) -> None:
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._open_mailbox)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._mailbox.put(self._terminate))

    def _open_mailbox(self) -> None:
        os.read(self._wake_read, 65536)
        while True:
            try:
                action = self._mailbox.get_nowait()
            except queue.Empty:
                return
            action()

    def _terminate(self) -> None:
        """SIGTERM: stop everything with grace; a second one without."""
        grace_s = GRACE_CANCEL_S if self._terminated_at is None else 0.0
        self._terminated_at = time.monotonic() + grace_s
        log.info("asked to end; ranks get %g s", grace_s)
        for attempt in list(self._attempts.values()):
            # Whoever signals the whole node may have ended the ranks a moment before.
            if attempt.phase in (Phase.PREPARED, Phase.RUNNING) or (
                attempt.phase is Phase.ENDED and attempt.story.has_failed
            ):
                self._emit(attempt, "leaving", time.time(), {})
            self._stop_here(attempt, grace_s, "agent_stopped")

    def _wait_s(self) -> float:
        deadlines = [attempt.deadline for attempt in self._attempts.values() if attempt.deadline is not None]
        nearest = min(deadlines, default=float("inf")) - time.monotonic()
        return max(0.0, min(_TICK_S, nearest))

    def _check_clocks(self) -> None:
        now = time.monotonic()
        if self._terminated_at is None and not self._paths.lock.exists():
            log.error("the node's folder %s was removed", self._paths.root)
            self._terminate()
        stale = self._link.silence_s > self._config.stale_after_s
        for attempt in list(self._attempts.values()):
            if attempt.deadline is not None and now >= attempt.deadline:
                attempt.deadline = None
                self._emit(attempt, "timed_out", time.time(), {})
                self._stop_here(attempt, GRACE_CANCEL_S, "timeout")
            if stale and attempt.phase in (Phase.PREPARED, Phase.RUNNING) and attempt.stopped_with is None:
                log.error("no server for %g s: %s is stopped", self._link.silence_s, attempt.key)
                self._stop_here(attempt, GRACE_CANCEL_S, "stale")

    def _may_leave(self) -> bool:
        if self._terminated_at is not None:
            phases = {attempt.phase for attempt in self._attempts.values()}
            if not phases & {Phase.PREPARING, Phase.RUNNING}:
                self._terminated_at = min(self._terminated_at, time.monotonic())
            return phases <= {Phase.DELIVERED} or time.monotonic() > self._terminated_at + _LAST_DELIVERY_S
        if self._deserted():
            log.warning("no server for %g s and nothing to do here: what is left lies in %s", self._link.silence_s,
                        self._paths.attempts)  # fmt: skip
            return True
        if not self._config.long_lived:
            # What is delivered may be left behind: nobody comes back to this folder.
            delivered = all(attempt.phase is Phase.DELIVERED for attempt in self._attempts.values())
            return (self._leave and delivered) or (self._had_any and not self._attempts)
        return self._leave and not self._attempts

    def _deserted(self) -> bool:
        """Whether this node is only kept for a server that is away; somebody else will deliver what lies here."""
        idle = {attempt.phase for attempt in self._attempts.values()} <= {Phase.ENDED, Phase.DELIVERED}
        return idle and self._config.linger_s is not None and self._link.silence_s > self._config.linger_s

    def _close(self) -> None:
        self._sampler.close()
        self._publisher.close()
        self._outputs.close()
        for attempt in self._attempts.values():
            attempt.unwanted.set()
            attempt.release()
        self._shipper.close()
        self._shipper.join(2.0)
        self._keepers.close()
        self._fetchers.close(patience_s=10.0)
        self._builders.close(patience_s=10.0)
        self._senders.close(patience_s=1.0)

    # Orders

    def _apply(self, order: Order) -> None:
        attempt = self._attempts.get(order.key)
        if attempt is None:
            if order.action == "forget" or order.key in self._forgotten or self._terminated_at is not None:
                return
            attempt = Attempt(order, self._paths.attempt(order.run, order.attempt))
            self._add(attempt)
            self._supersede(order)
        attempt.order = order
        self._advance(attempt)

    def _supersede(self, order: Order) -> None:
        """A newer attempt of a run: an older one that still lives here has no business any more."""
        for other in list(self._attempts.values()):
            if other.order.run == order.run and other.order.attempt < order.attempt:
                self._stop_here(other, KILL_AFTER_TERM_S, "superseded")

    def _advance(self, attempt: Attempt) -> None:
        """Take the step that its order asks for."""
        step = next_step(attempt.order, attempt.phase)
        if attempt.order.action in ("stop", "forget") and attempt.phase is Phase.PREPARING:
            attempt.unwanted.set()
        if step is Step.PREPARE:
            attempt.phase = Phase.PREPARING
            # A build takes minutes; what others need must not wait for it.
            takes_long = attempt.order.environment is not None or attempt.order.container is not None
            workers = self._builders if takes_long else self._fetchers
            workers.submit(lambda: self._prepare(attempt))
        elif step is Step.LAUNCH:
            self._launch(attempt)
        elif step is Step.STOP:
            self._stop(
                attempt, attempt.order.grace_s if attempt.order.action == "stop" else 0.0, attempt.order.stop_reason
            )
        elif step is Step.END:
            self._end(attempt, attempt.order.stop_reason or "done", time.time())
        elif step is Step.REMOVE:
            self._remove(attempt)

    def _stop_here(self, attempt: Attempt, grace_s: float, reason: str) -> None:
        """Stop an attempt for the node's own reasons, whatever its order says."""
        attempt.order = replace(attempt.order, action="stop", grace_s=grace_s, stop_reason=reason)
        self._advance(attempt)

    def _stop(self, attempt: Attempt, grace_s: float, reason: str) -> None:
        told = attempt.stopped_with
        if told is not None and told[0] <= grace_s:
            return
        attempt.stopped_with = (grace_s, told[1] if told else reason)
        self._keepers.stop(attempt.key, grace_s, reason or "stopped")

    # Preparing and starting

    def _prepare(self, attempt: Attempt) -> None:
        """In a worker: everything that may take long."""
        try:
            prepared = self._preparer.prepare(attempt)
        except Refusal as refusal:
            self.post(partial(self._refuse, attempt, refusal))
            return
        if prepared is None:
            self.post(lambda: self._end(attempt, attempt.order.stop_reason or "done", time.time()))
        else:
            self.post(partial(self._prepared, attempt, prepared))

    def _is_doing(self, key: Key, text: str) -> None:
        """Remember what a preparation that takes long is at; empty when it is over."""
        if text:
            self._doing[key] = (text, self._doing.get(key, ("", time.time()))[1])
        else:
            self._doing.pop(key, None)

    def _note(self, order: Order, level: str, text: str) -> None:
        event = Event(order.run, order.attempt, "noted", time.time(), {"level": level, "text": text})
        self._shipper.send(Tell(event))

    def _track(self, attempt: Attempt) -> None:
        """Deliver its streams from now on."""
        if not attempt.tracked:
            attempt.tracked = True
            self._shipper.send(Track(attempt.key, attempt.paths, attempt.order.log_limit_bytes, attempt.order.masked))

    def _prepared(self, attempt: Attempt, prepared: Prepared) -> None:
        attempt.prepared = prepared
        if attempt.unwanted.is_set():
            self._end(attempt, attempt.order.stop_reason or "done", time.time())
            return
        attempt.phase = Phase.PREPARED
        steps.will_be_told(attempt.paths)
        ports = [held.port for held in prepared.ports]
        told: dict[str, Any] = {"ports": ports, "address": self._config.address, "resumed": prepared.resumed}
        if prepared.facts:
            told["facts"] = prepared.facts
        if prepared.environment is not None:
            told["environment"] = to_json(prepared.environment.built)
        self._emit(attempt, "prepared", time.time(), told)
        self._advance(attempt)

    def _refuse(self, attempt: Attempt, refusal: Refusal) -> None:
        log.warning("%s is refused: %s: %s", attempt.key, refusal.code, refusal.message)
        self._emit(attempt, "refused", time.time(), refusal.to_json())
        self._end(attempt, "refused", time.time())

    def _launch(self, attempt: Attempt) -> None:
        assert attempt.prepared is not None
        prepared, paths = attempt.prepared, attempt.paths
        try:
            launch = launch_file.make_launch(
                attempt.order, prepared, paths, self._runtime, self._mark, self._environment
            )
            if prepared.environment is not None and prepared.environment.container is not None:
                described = launch_file.describe_container(
                    attempt.order, prepared, paths, self._runtime, self._mark, self._environment
                )
                write_json(paths.container, described, mode=PRIVATE)
            write_json(paths.launch, launch, mode=PRIVATE)
        except Refusal as refusal:
            self._refuse(attempt, refusal)
            return
        except OSError as error:
            self._refuse(attempt, steps.refusal_of(error, paths.root))
            return
        attempt.phase = Phase.RUNNING
        locks = [held.lock for held in prepared.ports]
        if prepared.environment is not None:
            locks.append(prepared.environment.lock.descriptor)
        if attempt.inputs is not None:
            locks += [held.lock.descriptor for held in attempt.inputs.held]
        self._keepers.launch(attempt.key, paths.launch, locks)
        attempt.release()
        self._track(attempt)
        self._sampler.add(attempt.key, paths.streams / "events" / "node.jsonl")
        self._publisher.watch(attempt.order, paths, attempt.unwanted)
        self._outputs.watch(attempt.order, paths, attempt.unwanted)

    # What keepers say

    def _keeper_said(self, key: Key, entry: Mapping[str, Any]) -> None:
        attempt = self._attempts.get(key)
        if attempt is None or attempt.phase is not Phase.RUNNING:
            return
        if entry["kind"] == "running" and attempt.order.timeout_s is not None:
            attempt.deadline = time.monotonic() + attempt.order.timeout_s
        self._tell_all(attempt, attempt.story.add(entry))
        if entry["kind"] == "ended":
            self._end(attempt, attempt.reason or entry["reason"], entry["at"])
        self._shipper.send(Look())

    def _keeper_closed(self, key: Key) -> None:
        """Nothing of the keeper is left; if it did not say how it ended, its journal may."""
        attempt = self._attempts.get(key)
        if attempt is None or attempt.phase is not Phase.RUNNING:
            return
        if attempt.paths.container.exists():
            # A keeper that was killed could not remove its container.
            remove = partial(engines.sweep, self._mark, self._environment, log.warning, attempt.key)
            self._fetchers.submit(remove)
        self._conclude(attempt, "keeper")

    def _conclude(self, attempt: Attempt, lost_with: str) -> None:
        """Tell an attempt's story from its journal, and what nobody saw as lost."""
        for entry in journal.read(attempt.paths.journal):
            self._tell_all(attempt, attempt.story.add(entry))
        now = time.time()
        ended = attempt.story.ended
        if ended is not None and ended["reason"] != "agent_lost":
            self._end(attempt, attempt.reason or ended["reason"], ended["at"])
            return
        self._tell_all(attempt, attempt.story.lose(now, lost_with))
        self._end(attempt, f"{lost_with}_lost", ended["at"] if ended else now)

    # The end and what follows it

    def _end(self, attempt: Attempt, reason: str, at: float) -> None:
        """No process of the attempt is left here, and none will come."""
        was_running = attempt.phase is Phase.RUNNING
        attempt.phase = Phase.ENDED
        attempt.deadline = None
        attempt.release()
        if attempt.inputs is not None:
            self._fetchers.submit(attempt.inputs.close)
        self._sampler.remove(attempt.key)
        self._emit(attempt, "ended", at, {"at": at, "reason": reason})
        if attempt.order.action == "forget":
            self._remove(attempt)
            return
        if was_running:
            self._shipper.send(Finish(attempt.key))
            self._senders.submit(lambda: self._send_files(attempt))
        else:
            if attempt.tracked:
                self._shipper.send(Finish(attempt.key))
            self._emit(attempt, "delivered", at, {"files": []})

    def _send_files(self, attempt: Attempt) -> None:
        """In a worker: send every file that the job left, as often as it takes."""
        self._publisher.finish(attempt.order, attempt.paths, attempt.unwanted)
        notes = self._outputs.finish(attempt.order, attempt.paths, attempt.unwanted, attempt.succeeded)
        query = {"run": attempt.order.run, "attempt": attempt.order.attempt, "node_rank": attempt.order.node_rank}
        sent, left_out = files.send_all(attempt.paths, query, self._link.put_file, attempt.unwanted)
        if not attempt.unwanted.is_set():
            data = {"files": sent, "notes": [*notes, *(f"not kept: {text}" for text in left_out)]}
            self.post(lambda: self._emit(attempt, "delivered", time.time(), data))

    def _forget(self, key: Key) -> None:
        attempt = self._attempts.get(key)
        if attempt is not None:
            attempt.order = replace(attempt.order, action="forget")
            self._advance(attempt)

    def _delivered(self, key: Key) -> None:
        attempt = self._attempts.get(key)
        if attempt is not None:
            attempt.phase = Phase.DELIVERED
            self._advance(attempt)

    def _remove(self, attempt: Attempt) -> None:
        attempt.unwanted.set()
        attempt.release()
        self._shipper.send(Drop(attempt.key))
        del self._attempts[attempt.key]
        self._forgotten[attempt.key] = None
        while len(self._forgotten) > _REMEMBERED:
            del self._forgotten[next(iter(self._forgotten))]
        self._update_holding()
        self._fetchers.submit(lambda: steps.remove(attempt.paths))

    # After a restart

    def _take_up(self) -> None:
        """Deliver what an earlier agent of this node could not."""
        self._paths.attempts.mkdir(parents=True, exist_ok=True)
        mounts.release(self._paths.attempts)
        for folder in sorted(self._paths.attempts.iterdir()):
            run, _, number = folder.name.rpartition(".")
            paths = self._paths.attempt(run, int(number)) if run and number.isdigit() else None
            order = _read_order(paths.order) if paths else None
            if paths is None or order is None or not steps.was_told(paths):
                # The server has not heard that it was prepared, so it can be prepared again.
                log.warning("%s was not ready and is removed", folder)
                steps.remove(AttemptPaths(folder.with_name(folder.name.removesuffix(".gone"))))
                continue
            attempt = Attempt(order, paths, phase=Phase.RUNNING, tracked=True)
            self._add(attempt)
            self._shipper.send(Track(attempt.key, paths, order.log_limit_bytes, order.masked))
            self._conclude(attempt, "agent")

    # Small change

    def _add(self, attempt: Attempt) -> None:
        self._attempts[attempt.key] = attempt
        self._had_any = True
        self._update_holding()

    def _update_holding(self) -> None:
        self.holding = tuple(self._attempts)

    def _heartbeat(self) -> dict[str, Any]:
        beat = {"holding": [list(key) for key in self.holding], "sample": self._sampler.last}
        doing = [[*key, text, since] for key, (text, since) in list(self._doing.items())]
        return {**beat, "doing": doing} if doing else beat

    def _tell_all(self, attempt: Attempt, events: Iterable[tuple[str, float, dict[str, Any]]]) -> None:
        for kind, at, data in events:
            self._emit(attempt, kind, at, data)

    def _emit(self, attempt: Attempt, kind: str, at: float, data: Mapping[str, Any]) -> None:
        run, number = attempt.key
        self._shipper.send(Tell(Event(run, number, kind, at, data)))


def _identity() -> dict[str, str]:
    """Who the agent's user is, also where nothing in the environment says so."""
    try:
        user = pwd.getpwuid(os.getuid())
    except KeyError:
        return {}
    return {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name, "SHELL": user.pw_shell}


def _read_order(path: Path) -> Order | None:
    try:
        return order_from_json(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
