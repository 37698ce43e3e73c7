"""One pass of the scheduler: which gangs start now, on which nodes, and who must make room.

In order of priority, arrival and fair shares; a gang starts whole or not at all. Behind the first gang that has to
wait, others start early where that is not expected to delay it by more than an allowance: on nodes that are not
reserved for it, or on reserved ones where they are likely to end in time. How often and for how long is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from muster.control.scheduling.capacity import Capacity
from muster.control.scheduling.model import (
    UNKNOWN,
    Decision,
    Gang,
    Head,
    Need,
    Node,
    Overtaking,
    Part,
    Place,
    Preempt,
    Rules,
    Running,
    Start,
)
from muster.control.scheduling.queue import Passed, Queue
from muster.control.scheduling.quota import Usage
from muster.control.scheduling.reservation import (
    is_pausable,
    is_worth_a_pause,
    reserve_for,
    victims_for,
    would_fit_first,
)
from muster.control.scheduling.shares import standings
from muster.defaults import DELAY_COUNTED_S, DELAY_S, DELAY_SHARE, START_MARGIN_S


def schedule(queues: Mapping[str, Queue], capacity: Capacity, rules: Mapping[str, Rules], now: float) -> Decision:
    """Decide for every cluster; what starts then holds its nodes in `capacity`, the queues are left unchanged."""
    starts: list[Start] = []
    preemptions: list[Preempt] = []
    heads: dict[str, Head] = {}
    overtakings: list[Overtaking] = []
    passed_over: dict[str, str] = {}
    for cluster, queue in queues.items():
        if not len(queue):
            continue
        cluster_pass = _Pass(cluster, queue, capacity, rules.get(cluster, Rules()), now)
        cluster_pass.run()
        starts += cluster_pass.starts
        preemptions += cluster_pass.preemptions
        overtakings += cluster_pass.overtakings
        passed_over |= cluster_pass.passed_over
        if cluster_pass.head is not None:
            heads[cluster] = cluster_pass.head
            capacity.reserve(cluster)
    return Decision(tuple(starts), tuple(preemptions), heads, tuple(overtakings), passed_over)


class _Pass:
    """The pass over one cluster's queue."""

    def __init__(self, cluster: str, queue: Queue, capacity: Capacity, rules: Rules, now: float) -> None:
        self._cluster = cluster
        self._queue = queue
        self._capacity = capacity
        self._rules = rules
        self._now = now
        mine = (item for item in capacity.running.values() if item.cluster == cluster)
        self._usage = Usage(rules, capacity.gpus_per_node(cluster), mine)
        self._standings = standings(rules.used)
        self._hopeless: set[Need] = set()
        """Shapes of which nothing more can start in this pass: free capacity only shrinks."""
        self._kept_alone: set[Need] = set()
        """Shapes that fit only on the nodes reserved for the head of the queue."""
        self.starts: list[Start] = []
        self.preemptions: list[Preempt] = []
        self.passed_over: dict[str, str] = {}
        self.overtakings: list[Overtaking] = []
        self.head: Head | None = None
        self._allowance_s = 0.0
        self._delays_s: dict[tuple[int, float | None], float] = {}

    def run(self) -> None:
        if self._rules.closed:
            return
        for waiting in self._queue.in_order(self._standings):
            gang = self._relax_exclusions(waiting)
            if self._must_wait(gang):
                continue
            if self._fits(gang):
                self._start(gang)
                continue
            self._wait(gang)
            if self.head is not None:
                break
        if self.head is not None and self._rules.backfill and self.head.likely_at != UNKNOWN:
            self._start_early()
            self._pause_for_short()

    def _relax_exclusions(self, gang: Gang) -> Gang:
        """Exclude nodes only where enough others are left."""
        if off := self._rules.kept_off.get(gang.run_id):
            gang = replace(gang, excluded=gang.excluded | off)
        taken = self._capacity.nodes_of(gang.apart) if gang.apart else frozenset()
        # Two parts on one node are lost together: better to reuse a node on which one has failed.
        for excluded in (gang.excluded | taken, taken, gang.excluded):
            if excluded and self._possible(relaxed := replace(gang, excluded=excluded)) >= gang.need.nodes:
                return relaxed
        return replace(gang, excluded=frozenset()) if gang.excluded else gang

    def _possible(self, gang: Gang) -> int:
        if self._rules.hands_on:
            return len(self._capacity.nodes(self._cluster))
        return self._capacity.ever(self._cluster, gang.need, gang.excluded) + self._rules.coming

    def _must_wait(self, gang: Gang) -> bool:
        """Whether it must wait for something other than nodes; the reason is recorded."""
        why = self._rules.held.get(gang.run_id, "")
        why = why or self._kept_apart(gang)
        why = why or ("" if gang.not_before > self._now else self._usage.exceeded_by(gang))
        if why or gang.not_before > self._now:
            self.passed_over[gang.run_id] = why
            return True
        return False

    def _kept_apart(self, gang: Gang) -> str:
        """Where an external scheduler chooses nodes, those to avoid are excluded by name, and so must be known."""
        if not gang.apart or not self._rules.hands_on:
            return ""
        for item in self._capacity.running.values():
            if item.apart == gang.apart and not all(part.host for part in item.parts):
                return f"waits until it is known on which node {item.title} runs, to keep off it"
        return ""

    def _start_early(self) -> None:
        """Shortest first: what ends soon delays others least, and most gangs are served."""
        assert self.head is not None
        self._capacity.reserve(self._cluster, self.head.pools)
        free = self._capacity
        # Checked per shape, of which there are few, rather than per gang.
        self._hopeless |= {need for need in self._queue.shapes if free.count(self._cluster, need) < need.nodes}
        done = {start.run_id for start in self.starts} | self.passed_over.keys()
        for waiting in self._queue.shortest_first(self._standings, self._hopeless):
            if waiting.run_id in done:
                continue
            gang = self._relax_exclusions(waiting)
            if not self._must_wait(gang):
                self._try_early(gang)

    def _pause_for_short(self) -> None:
        """Make room for a short gang that waits behind a long or a wide one; at most for one in a pass."""
        mine = [item for item in self._capacity.checkpointed.values() if item.cluster == self._cluster]
        if self.preemptions or not any(is_pausable(item, self._now) for item in mine):
            return
        if any(item.cluster == self._cluster for item in self._capacity.stopping.values()):
            return
        done = {start.run_id for start in self.starts} | self.passed_over.keys()
        tried: set[Need] = set()
        for gang in self._queue:
            if gang.need in tried or gang.run_id in done or not is_worth_a_pause(gang, self._now):
                continue
            tried.add(gang.need)
            if not self._must_wait(gang) and self._may_pass(gang):
                victims = victims_for(gang, self._capacity, self._rules.preemption, self._now, pauses_only=True)
                self.preemptions += [Preempt(item.run_id, gang.run_id, _why(item, gang)) for item in victims]
                if victims:
                    return

    def _may_pass(self, gang: Gang) -> bool:
        """Whether it could start before the head of the queue once there is room on the nodes reserved for the head."""
        return self._delay_s(gang) <= self._allowance_s

    def _fits(self, gang: Gang, reserved_too: bool = True) -> bool:
        if self._rules.hands_on:
            return self._possible(gang) >= gang.need.nodes
        return self._capacity.count(self._cluster, gang.need, reserved_too, gang.excluded) >= gang.need.nodes

    def _wait(self, gang: Gang) -> None:
        """The first gang that cannot start: nodes are reserved for it, and freed where that is allowed."""
        if self._possible(gang) < gang.need.nodes:
            self.passed_over[gang.run_id] = _too_few(gang, self._possible(gang))
            return
        victims = victims_for(gang, self._capacity, self._rules.preemption, self._now)
        self.preemptions += [Preempt(item.run_id, gang.run_id, _why(item, gang)) for item in victims]
        self.head = Head(gang, UNKNOWN)
        if self._rules.backfill:
            passed = self._queue.passed(gang.run_id)
            first = self._with_due(Head(gang, UNKNOWN), passed)
            found = reserve_for(first, self._capacity, self._now, victims, passed.pools)
            self.head = replace(found, first_at=first.first_at, due_at=first.due_at, passes_left=first.passes_left)
            self._allowance_s = allowance_s(self.head, self._now)
        if not gang.excluded:
            self._hopeless.add(gang.need)

    def _with_due(self, head: Head, passed: Passed) -> Head:
        """Add when it would have started first-in-first-out, once that is past, and how often it may be passed."""
        first_at = self._now if passed.first_at is None else passed.first_at
        due_at = passed.due_at
        if due_at == UNKNOWN and would_fit_first(head.gang, self._capacity, first_at):
            due_at = self._now
        passes_left = self._rules.max_passed_over * head.gang.need.nodes - passed.times
        return replace(head, first_at=first_at, due_at=due_at, passes_left=passes_left)

    def _try_early(self, gang: Gang) -> None:
        """On nodes that are not reserved for the head of the queue, or on those if the head is hardly delayed."""
        assert self.head is not None
        if gang.need not in self._kept_alone:
            if self._fits(gang, reserved_too=False):
                self._start(gang, reserved_too=False)
                return
            if not gang.excluded:
                self._kept_alone.add(gang.need)
        elif not self._may_pass(gang):
            return
        if not self._fits(gang):
            if not gang.excluded:
                self._hopeless.add(gang.need)
        elif self._may_pass(gang):
            self._note_passing(gang)
            self._start(gang, kept_first=True)

    def _note_passing(self, gang: Gang) -> None:
        """Count a pass; a gang whose limit ends in time delays nobody, and does not count."""
        assert self.head is not None
        if has_promised(gang, self.head, self._now):
            return
        self.overtakings.append(Overtaking(self.head.gang.run_id, gang.run_id, self._delay_s(gang)))
        self.head = replace(self.head, passes_left=self.head.passes_left - 1)
        if self.head.is_closed(self._now):
            self._allowance_s = 0.0
            self._delays_s.clear()

    def _delay_s(self, gang: Gang) -> float:
        """The expected delay of the head of the queue; the same for all gangs of this kind."""
        assert self.head is not None
        kind = (id(gang.length), gang.limit_s)
        if kind not in self._delays_s:
            self._delays_s[kind] = expected_delay_s(gang, self.head, self._now)
        return self._delays_s[kind]

    def _start(self, gang: Gang, reserved_too: bool = True, kept_first: bool = False) -> None:
        if self._rules.hands_on:
            places = _places_to_come(gang, self._capacity.gpus_per_node(self._cluster))
        else:
            places = self._capacity.pick(self._cluster, gang.need, reserved_too, gang.excluded, kept_first)
        start = Start(gang.run_id, places)
        self.starts.append(start)
        running = running_of(gang, start, self._now)
        self._capacity.hold(running, self._now)
        self._usage.add(running)


def expected_delay_s(gang: Gang, head: Head, now: float) -> float:
    """The expected delay of the head of the queue if the gang starts on the nodes reserved for it."""
    if head.is_closed(now):
        # Estimates have failed it: from now on only declared limits count.
        return 0.0 if has_promised(gang, head, now) else UNKNOWN
    if gang.planned_until(now) <= head.likely_at:
        return 0.0
    # Where declared limits say when everybody ends, they count: a limit is better than an estimate.
    if gang.length is None or (gang.limit_s is not None and head.starts_by != UNKNOWN):
        return UNKNOWN
    starts = head.cases or (head.likely_at,)
    return sum(gang.length.excess_s(at - now, most_s=DELAY_COUNTED_S) for at in starts) / len(starts)


def has_promised(gang: Gang, head: Head, now: float) -> bool:
    """Whether its declared limit ends before those of all gangs on the nodes of the head of the queue."""
    return head.starts_by != UNKNOWN and gang.until(now) <= head.starts_by


def allowance_s(head: Head, now: float) -> float:
    """By how much one more overtaking gang may be expected to delay the head of the queue.

    A fraction of the wait that the head has anyway: while a long run holds its nodes, keeping the rest of them empty
    helps nobody, and as the end of that run comes near, fewer and fewer others are short enough. Until it is due others
    have cost it nothing, and may use a little more.
    """
    if head.is_closed(now):
        return 0.0
    cases = head.cases or (head.likely_at,)
    return (DELAY_S if now < head.due_at else START_MARGIN_S) + DELAY_SHARE * (sum(cases) / len(cases) - now)


def running_of(gang: Gang, start: Start, now: float) -> Running:
    """A gang as it is once it has started."""
    return Running(
        run_id=gang.run_id,
        title=gang.title,
        cluster=gang.cluster,
        parts=tuple(
            Part(place.node.name, place.node.host, place.ranks, place.gpus, place.share) for place in start.places
        ),
        until=gang.until(now),
        since=now,
        priority=gang.priority,
        order=gang.order,
        preemptible=gang.preemptible,
        user=gang.user,
        experiment=gang.experiment,
        length=gang.length,
        apart=gang.apart,
    )


def _places_to_come(gang: Gang, most_gpus: int) -> tuple[Place, ...]:
    """As many places as the gang needs; the external scheduler decides which machines they are."""
    wanted = most_gpus if gang.need.gpus is None else gang.need.gpus
    gpus = tuple(str(index) for index in range(wanted))
    return tuple(
        Place(Node(f"{gang.run_id}-{index}", "", "", gang.need.ranks, gpus), gang.need.ranks, gpus, gang.need.share)
        for index in range(gang.need.nodes)
    )


def _why(victim: Running, gang: Gang) -> str:
    if victim.priority < gang.priority:
        return f"{gang.title} has a higher priority"
    return f"{gang.title} is expected to be short and has waited long"


def _too_few(gang: Gang, possible: int) -> str:
    return f"needs {gang.need.nodes} nodes; only {possible} of {gang.cluster} can be used now"
