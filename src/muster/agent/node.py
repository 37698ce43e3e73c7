"""A node's attempts: orders come in, each attempt goes through its stages (prepare, run, ship), events go out.

The state of attempts is changed only in the loop's one thread; slow work happens in workers, which post their results
to the loop.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from muster.agent import folder
from muster.agent.attempt import Attempt, Phase, PreparedAttempt, Step, may_leave, next_step
from muster.agent.mlflow.listener import Listeners
from muster.agent.prepare.prebuilds import Prebuilds
from muster.agent.prepare.preparation import Preparation
from muster.agent.refusal import Refusal, refusal_of
from muster.agent.run import journal
from muster.agent.run.journal import Moment
from muster.agent.run.keeper_pool import KeeperPool
from muster.agent.run.launch_file import LaunchFiles
from muster.agent.run.records import Entry
from muster.agent.run.sampler import Sampler
from muster.agent.services import NodeServices
from muster.agent.ship import checkpoints, files
from muster.agent.ship.eventfiles.reader import EventFiles
from muster.agent.ship.outputs import Sender, undelivered
from muster.agent.threads import Loop, Workers
from muster.agent.tunnels import Tunnels
from muster.defaults import GRACE_CANCEL_S, KILL_AFTER_TERM_S
from muster.environments.images import engines
from muster.host import mounts
from muster.paths import AttemptPaths
from muster.wire import verdicts
from muster.wire.node.agents import (
    AgentConfig,
    AttemptKey,
    Delivered,
    Ended,
    Heartbeat,
    Leaving,
    Order,
    Orders,
    Prepared,
    Refused,
    TimedOut,
)
from muster.wire.node.tunnels import TunnelOrder

log = logging.getLogger(__name__)

_TICK_S = 1.0
_TEND_S = 0.01
_LAST_DELIVERY_S = 10.0
_REMEMBERED = 10_000
_REMOVE_AGAIN_S = 5.0
_FILES_NAMED = 1_000
_CLEARED_UP = (
    "Find what clears up there (a cron job, systemd-tmpfiles, a quota script) and exempt it, or move the workspace."
)


class Node:
    """Runs the attempts that are ordered on this node."""

    def __init__(self, config: AgentConfig, services: NodeServices, loop: Loop, sampler: Sampler) -> None:
        self._config = config
        self._services = services
        self._loop = loop
        self._sampler = sampler
        self._paths = services.paths
        self._link = services.link
        self._shipper = services.shipper
        self._attempts: dict[AttemptKey, Attempt] = {}
        self._forgotten: deque[AttemptKey] = deque(maxlen=_REMEMBERED)
        self._unremoved: list[AttemptPaths] = []
        """Folders of forgotten attempts that could not be removed yet."""
        self._remove_again_at = 0.0
        self._had_any = False
        self._leave = False
        self._terminated_at: float | None = None
        self._greet: Callable[[], None] = lambda: None
        self._keepers = KeeperPool(loop.selector, services.mark, self._paths.root / "nursery.log", self)
        self._fetchers = Workers("prepare", 4)
        self._builders = Workers("environments", 16)
        self._prebuilds = Prebuilds(services, self._builders.submit)
        self._senders = Workers("files", 2)
        self._tunnels = Tunnels(self._link, loop, self._keepers.enter, config.address)
        self._listeners = Listeners(loop.selector, self._fetchers.submit)
        self._publisher = checkpoints.Publisher(self._link)
        self._outputs = Sender(services)
        self._event_files = EventFiles(services)
        self.holding: tuple[AttemptKey, ...] = ()
        """Read by other threads; replaced, never changed."""

    def run(self, greet: Callable[[], None]) -> None:
        """Work until the agent was asked to leave and nothing is left to do."""
        self._greet = greet
        self._loop.watch_signals(self._terminate)
        self._keepers.start()
        self._take_up()
        self._shipper.serve(self)
        self._sampler.start()
        self._publisher.start()
        self._outputs.start()
        self._event_files.start()
        busy = False
        while not self._may_leave():
            self._loop.turn(_TEND_S if busy else self._wait_s())
            busy = self._keepers.tend()
            self._check_clocks()
        self._close()

    # Orders in

    def apply_orders(self, answer: Orders) -> None:
        """Take the server's orders: the desired state of every attempt. Callable from any thread."""
        self._loop.post(partial(self._apply_all, answer))

    def _apply_all(self, answer: Orders) -> None:
        self._leave = answer.leave
        for order in sorted(answer.orders, key=lambda order: order.key):
            self._apply(order)
        self._prebuilds.apply(answer.builds)
        for tunnel in answer.tunnels:
            self._tunnels.open(tunnel, self._refusal_to_enter(tunnel))

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

    def _refusal_to_enter(self, tunnel: TunnelOrder) -> str:
        """Why nobody can enter an attempt; empty: it runs here."""
        attempt = self._attempts.get((tunnel.run, tunnel.attempt))
        if attempt is None or attempt.phase is not Phase.RUNNING:
            return f"attempt {tunnel.attempt} of {tunnel.run} does not run on {self._config.node}"
        return ""

    def _supersede(self, order: Order) -> None:
        """A newer attempt of a run has come: end older ones that are still here."""
        for other in list(self._attempts.values()):
            if other.order.run == order.run and other.order.attempt < order.attempt:
                self._stop_here(other, KILL_AFTER_TERM_S, "superseded")

    def _advance(self, attempt: Attempt) -> None:
        """Take the step that its order asks for."""
        order = attempt.order
        step = next_step(order, attempt.phase)
        if order.action in ("stop", "forget") and attempt.phase is Phase.PREPARING:
            attempt.unwanted.set()
        if step is Step.PREPARE:
            attempt.phase = Phase.PREPARING
            # A build takes minutes; other attempts must not wait for it.
            takes_long = order.environment is not None or order.container is not None
            workers = self._builders if takes_long else self._fetchers
            workers.submit(partial(self._prepare, attempt))
        elif step is Step.LAUNCH:
            self._launch(attempt)
        elif step is Step.STOP:
            self._stop(attempt, order.grace_s if order.action == "stop" else 0.0, order.stop_reason)
        elif step is Step.END:
            self._end(attempt, order.stop_reason or "done", time.time())
        elif step is Step.ABANDON:
            attempt.abandoned = True
            attempt.unwanted.set()
        elif step is Step.REMOVE:
            self._remove(attempt)

    def _stop_here(self, attempt: Attempt, grace_s: float, reason: str) -> None:
        """Stop an attempt for the node's own reasons, whatever its order says."""
        attempt.order = replace(attempt.order, action="stop", grace_s=grace_s, stop_reason=reason)
        self._advance(attempt)

    # Prepare

    def _prepare(self, attempt: Attempt) -> None:
        """In a worker: everything that may take long."""
        try:
            prepared = Preparation(attempt, self._services).run()
        except Refusal as refusal:
            self._loop.post(partial(self._refuse, attempt, refusal))
            return
        self._loop.post(partial(self._has_prepared, attempt, prepared))

    def _has_prepared(self, attempt: Attempt, prepared: PreparedAttempt | None) -> None:
        attempt.prepared = prepared
        if prepared is None or attempt.unwanted.is_set():
            self._end(attempt, attempt.order.stop_reason or "done", time.time())
            return
        attempt.phase = Phase.PREPARED
        folder.mark_reported(attempt.paths)
        built = prepared.environment.built if prepared.environment else None
        ports = tuple(held.port for held in prepared.ports)
        self._services.tell(attempt.key, Prepared(ports, self._config.address, prepared.resumed, prepared.facts, built))
        self._advance(attempt)

    def _refuse(self, attempt: Attempt, refusal: Refusal) -> None:
        log.warning("%s is refused: %s: %s", attempt.key, refusal.event.code, refusal)
        self._services.tell(attempt.key, refusal.event)
        self._end(attempt, "refused", time.time())

    # Run

    def _launch(self, attempt: Attempt) -> None:
        order, paths = attempt.order, attempt.paths
        try:
            LaunchFiles(attempt, self._services, self._listeners.open(attempt, self._services)).write()
        except Refusal as refusal:
            self._refuse(attempt, refusal)
            return
        except OSError as error:
            self._refuse(attempt, refusal_of(error, paths.root))
            return
        attempt.phase = Phase.RUNNING
        self._keepers.launch(attempt.key, paths.launch, [lock.descriptor for lock in attempt.locks])
        attempt.release()
        self._services.track(order, paths)
        self._sampler.add(attempt.key, paths.streams / "events" / f"node_{order.node_rank}.jsonl")
        self._publisher.watch(order, paths, attempt.unwanted)
        self._outputs.watch(order, paths, attempt.unwanted)
        self._event_files.watch(order, paths)

    def _stop(self, attempt: Attempt, grace_s: float, reason: str) -> None:
        before = attempt.stopped_with
        if before is not None and before[0] <= grace_s:
            return
        attempt.stopped_with = (grace_s, before[1] if before else reason)
        self._keepers.stop(attempt.key, grace_s, reason or "stopped")

    def keeper_said(self, key: AttemptKey, entry: Entry) -> None:
        """A keeper reports what happened to its ranks."""
        attempt = self._attempts.get(key)
        if attempt is None or attempt.phase is not Phase.RUNNING:
            return
        self._check_folder(attempt)
        if entry["kind"] == "running" and attempt.order.timeout_s is not None:
            attempt.deadline = time.monotonic() + attempt.order.timeout_s
        self._report_all(attempt, attempt.story.add(entry))
        if entry["kind"] == "ended":
            self._end(attempt, attempt.reason or entry["reason"], entry["at"])
        self._shipper.look()

    def _check_folder(self, attempt: Attempt) -> None:
        """A rank whose files were removed can fail in any way: report the removal first."""
        if attempt.folder_lost or folder.is_there(attempt.paths):
            return
        attempt.folder_lost = True
        self._services.tell(attempt.key, Refused("platform", f"{_removed(attempt)} while it ran", _CLEARED_UP))
        self._stop_here(attempt, KILL_AFTER_TERM_S, "refused")

    def keeper_closed(self, key: AttemptKey) -> None:
        """Nothing of the keeper is left; if it did not report how it ended, its journal may tell."""
        attempt = self._attempts.get(key)
        if attempt is None or attempt.phase is not Phase.RUNNING:
            return
        if attempt.paths.container.exists():
            # A keeper that was killed could not remove its container.
            services = self._services
            self._fetchers.submit(partial(engines.sweep, services.mark, services.environ, log.warning, attempt.key))
        self._conclude(attempt, "keeper")

    def _conclude(self, attempt: Attempt, lost_with: str) -> None:
        """Report an attempt from its journal; ranks whose end nobody saw are lost."""
        for entry in journal.read(attempt.paths.journal):
            self._report_all(attempt, attempt.story.add(entry))
        now = time.time()
        ended = attempt.story.ended
        if ended is not None and ended["reason"] != "agent_lost":
            self._end(attempt, attempt.reason or ended["reason"], ended["at"])
            return
        self._report_all(attempt, attempt.story.lose(now, lost_with))
        self._end(attempt, f"{lost_with}_lost", ended["at"] if ended else now)

    # Ship

    def _end(self, attempt: Attempt, reason: str, at: float) -> None:
        """No process of the attempt is left here, and none will start."""
        was_running = attempt.phase is Phase.RUNNING
        attempt.phase = Phase.ENDED
        attempt.deadline = None
        attempt.release()
        if attempt.inputs is not None:
            self._fetchers.submit(attempt.inputs.close)
        if attempt.shares is not None:
            self._fetchers.submit(attempt.shares.close)
        self._sampler.remove(attempt.key)
        self._listeners.close(attempt.key)
        self._services.tell(attempt.key, Ended(at, reason), at)
        if attempt.order.action == "forget":
            self._remove(attempt)
            return
        if was_running:
            self._senders.submit(partial(self._send_files, attempt))
        else:
            self._shipper.finish(attempt.key)
            self._services.tell(attempt.key, Delivered(), at)

    def _send_files(self, attempt: Attempt) -> None:
        """In a worker: send every file that the job left, as often as it takes."""
        order, paths, unwanted = attempt.order, attempt.paths, attempt.unwanted
        left_unread = self._event_files.finish(order, paths)
        self._shipper.finish(attempt.key)
        self._publisher.finish(order, paths, unwanted)
        notes, missed = self._outputs.finish(order, paths, unwanted, attempt.succeeded)
        sent = files.send_all(order, paths, self._link, unwanted, partial(self._services.doing, order.key))
        if unwanted.is_set() and not attempt.abandoned:
            return
        if not attempt.folder_lost and not folder.is_there(paths):
            text = f"{_removed(attempt)} before everything was delivered"
            missed.insert(0, verdicts.Refusal("platform", text, _CLEARED_UP, late=True))
        notes += [*sent.kept_too, *left_unread]
        notes += [f"not kept: {text}" for text in files.first_few(sent.left_out)]
        if sent.unsent:
            total = sent.unsent + len(sent.files)
            code = verdicts.CANCELLED if attempt.abandoned else "platform"
            missed.append(verdicts.Refusal(code, f"{sent.unsent:,} of {total:,} files", late=True))
        delivered = Delivered(tuple(sent.files[:_FILES_NAMED]), tuple(notes), undelivered(missed))
        self._loop.post(partial(self._services.tell, attempt.key, delivered))

    def delivered(self, key: AttemptKey) -> None:
        """The server has everything of an attempt. Callable from any thread, like the next two."""
        self._loop.post(partial(self._has_delivered, key))

    def forget(self, key: AttemptKey) -> None:
        self._loop.post(partial(self._forget, key))

    def introduce(self) -> None:
        """The server does not know this agent."""
        self._greet()

    def _has_delivered(self, key: AttemptKey) -> None:
        attempt = self._attempts.get(key)
        if attempt is not None:
            attempt.phase = Phase.DELIVERED
            self._advance(attempt)

    def _forget(self, key: AttemptKey) -> None:
        attempt = self._attempts.get(key)
        if attempt is not None:
            attempt.order = replace(attempt.order, action="forget")
            self._advance(attempt)

    def _remove(self, attempt: Attempt) -> None:
        attempt.unwanted.set()
        attempt.release()
        self._shipper.drop(attempt.key)
        del self._attempts[attempt.key]
        self._forgotten.append(attempt.key)
        self._update_holding()
        self._fetchers.submit(partial(self._remove_folder, attempt.paths))

    def _remove_folder(self, paths: AttemptPaths) -> None:
        """In a worker: what cannot be removed now, as when descriptors are used up, is removed later."""
        if not folder.remove(paths):
            self._loop.post(partial(self._unremoved.append, paths))

    # Events out

    def heartbeat(self) -> Heartbeat:
        """Callable from every thread."""
        doing = tuple((*key, text, since) for key, (text, since) in list(self._services.under_way.items()))
        return Heartbeat(self.holding, self._sampler.last, doing)

    def _report_all(self, attempt: Attempt, moments: Iterable[Moment]) -> None:
        for at, data in moments:
            self._services.tell(attempt.key, data, at)

    # Clocks, leaving, recovery

    def _terminate(self) -> None:
        """SIGTERM: stop everything with grace; a second one without."""
        grace_s = GRACE_CANCEL_S if self._terminated_at is None else 0.0
        self._terminated_at = time.monotonic() + grace_s
        log.info("asked to end; ranks get %g s", grace_s)
        for attempt in list(self._attempts.values()):
            # A signal to the whole node may have ended the ranks a moment before.
            if attempt.phase in (Phase.PREPARED, Phase.RUNNING) or (
                attempt.phase is Phase.ENDED and attempt.story.has_failed
            ):
                self._services.tell(attempt.key, Leaving())
            self._stop_here(attempt, grace_s, "agent_stopped")

    def _wait_s(self) -> float:
        deadlines = [attempt.deadline for attempt in self._attempts.values() if attempt.deadline is not None]
        nearest = min(deadlines, default=float("inf")) - time.monotonic()
        return max(0.0, min(_TICK_S, nearest))

    def _check_clocks(self) -> None:
        now = time.monotonic()
        self._prebuilds.tend()
        if self._terminated_at is None and not self._paths.lock.exists():
            log.error("the node's folder %s was removed", self._paths.root)
            self._terminate()
        if self._unremoved and now >= self._remove_again_at:
            self._remove_again_at = now + _REMOVE_AGAIN_S
            again, self._unremoved = self._unremoved, []
            for paths in again:
                self._fetchers.submit(partial(self._remove_folder, paths))
        stale = self._link.silence_s > self._config.stale_after_s
        for attempt in list(self._attempts.values()):
            if attempt.phase is Phase.RUNNING:
                self._check_folder(attempt)
            if attempt.deadline is not None and now >= attempt.deadline:
                attempt.deadline = None
                self._services.tell(attempt.key, TimedOut())
                self._stop_here(attempt, GRACE_CANCEL_S, "timeout")
            if stale and attempt.phase in (Phase.PREPARED, Phase.RUNNING) and attempt.stopped_with is None:
                log.error("no server for %g s: %s is stopped", self._link.silence_s, attempt.key)
                self._stop_here(attempt, GRACE_CANCEL_S, "stale")

    def _may_leave(self) -> bool:
        phases = {attempt.phase for attempt in self._attempts.values()}
        if self._terminated_at is not None:
            if not phases & {Phase.PREPARING, Phase.RUNNING}:
                self._terminated_at = min(self._terminated_at, time.monotonic())
            return phases <= {Phase.DELIVERED} or time.monotonic() > self._terminated_at + _LAST_DELIVERY_S
        linger_s = self._config.linger_s
        if linger_s is not None and self._link.silence_s > linger_s and phases <= {Phase.ENDED, Phase.DELIVERED}:
            # It only stays for a server that is away; a later agent will deliver what is here.
            log.warning("no server for %g s and nothing to do here: what is left is in %s", self._link.silence_s,
                        self._paths.attempts)  # fmt: skip
            return True
        return may_leave(phases, asked=self._leave, long_lived=self._config.long_lived, had_any=self._had_any)

    def _close(self) -> None:
        self._tunnels.close()
        self._prebuilds.close()
        self._sampler.close()
        self._listeners.close_all()
        self._publisher.close()
        self._outputs.close()
        self._event_files.close()
        for attempt in self._attempts.values():
            attempt.unwanted.set()
            attempt.release()
        self._shipper.close()
        self._shipper.join(2.0)
        self._keepers.close()
        self._fetchers.close(patience_s=10.0)
        self._builders.close(patience_s=10.0)
        self._senders.close(patience_s=1.0)

    def _take_up(self) -> None:
        """After a restart: deliver what an earlier agent of this node could not."""
        self._paths.attempts.mkdir(parents=True, exist_ok=True)
        mounts.release(self._paths.attempts)
        for found in sorted(self._paths.attempts.iterdir()):
            run, _, number = found.name.rpartition(".")
            paths = self._paths.attempt(run, int(number)) if run and number.isdigit() else None
            order = folder.read_order(paths) if paths else None
            if paths is None or order is None or not folder.was_reported(paths):
                # It was never reported as prepared, so it can be prepared again.
                log.warning("%s was not ready and is removed", found)
                folder.remove(AttemptPaths(found.with_name(found.name.removesuffix(".gone"))))
                continue
            attempt = Attempt(order, paths, phase=Phase.RUNNING)
            self._add(attempt)
            self._services.track(order, paths)
            self._conclude(attempt, "agent")

    def _add(self, attempt: Attempt) -> None:
        self._attempts[attempt.key] = attempt
        self._had_any = True
        self._update_holding()

    def _update_holding(self) -> None:
        self.holding = tuple(self._attempts)


def _removed(attempt: Attempt) -> str:
    lost = "with what its ranks had written and printed and the server did not have yet"
    return f"the attempt's folder {attempt.paths.root} was removed, {lost},"
