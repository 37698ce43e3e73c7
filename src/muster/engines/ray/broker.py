"""The broker: an actor inside the Ray cluster that owns placement groups and agents, independent of the server.

All that matters is in Ray's own tables under names of Muster's making, so a broker that was killed and restarted
finds its groups again. Threads do the waiting: one for each gang that comes or goes, and one that checks them all.
"""

from __future__ import annotations

import contextlib
import platform
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util import placement_group, placement_group_table, remove_placement_group
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from muster.engines.ray import node_tasks
from muster.engines.ray.cluster import RayNode, read_nodes
from muster.engines.ray.messages import GROUP_PREFIX, About, AgentOrder, GangOrder, GangReport, GangState, Site
from muster.version import VERSION
from muster.wire.codec import Json, from_json, to_json
from muster.wire.node.agents import AgentConfig, ServerContact

NAMESPACE = "muster"
NAME = f"broker-{VERSION}"
_LOOK_S = 10.0
_TASK_S = 90.0
_PLACE_LOOK_S = 5.0
_FORGOTTEN_S = 60.0
_CONTACT_LOOK_S = 3.0
_CONTACT_LOOKS = 60


@dataclass
class _Gang:
    """One placement group and the agents in it."""

    group: PlacementGroup
    site: Site
    agents: tuple[AgentConfig, ...]
    num_gpus: float
    state: GangState = "pending"
    reason: str = ""
    nodes: list[RayNode] = field(default_factory=list)
    """The location of each agent, by node rank."""
    unwanted: threading.Event = field(default_factory=threading.Event)
    asked_at: float = field(default_factory=time.monotonic)
    missed: int = 0
    """How many checks in a row found no agent anywhere."""
    unreached: dict[str, ServerContact] = field(default_factory=dict)


class Broker:
    """Methods are called by bridges of Muster servers; each is safe to call again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._gangs: dict[str, _Gang] = {}
        threading.Thread(target=self._look_around, daemon=True).start()

    def about(self) -> Json:
        about: Json = to_json(About(VERSION, ray.__version__, platform.python_version(), _dashboard()))
        return about

    def nodes(self) -> Json:
        listed: Json = to_json(_nodes())
        return listed

    def allocate(self, name: str, wanted: Json) -> None:
        """Request the nodes of a gang (a GangOrder)."""
        order = from_json(GangOrder, wanted)
        with self._lock:
            if name in self._gangs:
                return
            group = _find(name) or placement_group(
                [dict(bundle) for bundle in order.bundles],
                strategy="STRICT_SPREAD",
                name=GROUP_PREFIX + name,
                lifetime="detached",
                bundle_label_selector=[dict(selector) for selector in order.selectors] or None,
            )
            num_gpus = order.bundles[0].get("GPU", 0)
            gang = _Gang(group, order.site, order.agents, num_gpus)
            self._gangs[name] = gang
        threading.Thread(target=self._bring, args=(gang,), daemon=True).start()

    def poll(self, names: Sequence[str], owner: str) -> Json:
        """What has become of gangs, a GangReport each; one that Ray has no group for is left out.

        Those of the same owner that it no longer asks about are given back: it was killed before it could say so.
        """
        for name in self._forgotten(names, owner):
            self.release(name)
        with self._lock:
            gangs = {name: self._gangs.get(name) or _recovered(name) for name in names}
        alive = {node.id: node for node in _nodes()} if any(gangs.values()) else {}
        reports: Json = to_json({name: _report(gang, alive) for name, gang in gangs.items() if gang is not None})
        return reports

    def release(self, name: str) -> None:
        """Give a gang's nodes back once its agents have left; those that stay are asked to go."""
        with self._lock:
            gang = self._gangs.pop(name, None)
        if gang is not None:
            gang.unwanted.set()
            threading.Thread(target=self._end, args=(gang,), daemon=True).start()
        elif (group := _find(name)) is not None:
            # Requested before this broker was restarted.
            remove_placement_group(group)

    def _forgotten(self, names: Sequence[str], owner: str) -> list[str]:
        before = time.monotonic() - _FORGOTTEN_S
        with self._lock:
            mine = [(name, gang) for name, gang in self._gangs.items() if gang.site.owner == owner]
        return [name for name, gang in mine if name not in names and gang.asked_at < before]

    def _bring(self, gang: _Gang) -> None:
        """Wait for the group's machines, and start an agent on each."""
        while not gang.group.wait(_PLACE_LOOK_S):
            if gang.unwanted.is_set():
                return
        try:
            by_id = {node.id: node for node in _nodes()}
            node_ids = placement_group_table(gang.group)["bundles_to_node_id"]
            gang.nodes = [by_id[node_ids[index]] for index in range(len(gang.agents))]
            gang.state = "starting"
            answers = self._on_each(gang, _start, lambda rank: (VERSION, _agent_order(gang, rank)), gang.num_gpus)
        except (RayError, KeyError) as error:
            gang.state, gang.reason = "failed", _words(error)
            return
        wrong = [f"{node.name}: {answer}" for node, answer in zip(gang.nodes, answers, strict=True) if answer]
        gang.state, gang.reason = ("failed", "; ".join(wrong)) if wrong else ("up", "")
        if not wrong:
            self._watch_contact(gang)

    def _watch_contact(self, gang: _Gang) -> None:
        """Until every agent has reached its server: record the errors of those that have not."""
        for _ in range(_CONTACT_LOOKS):
            if gang.unwanted.wait(_CONTACT_LOOK_S):
                return
            with contextlib.suppress(RayError):
                said = self._on_each(gang, _contact, partial(_agent_of, gang))
                known = {
                    agent.node: from_json(ServerContact, answer)
                    for agent, answer in zip(gang.agents, said, strict=True)
                    if isinstance(answer, Mapping)
                }
                gang.unreached = {node: contact for node, contact in known.items() if contact.trouble}
                if len(known) == len(gang.agents) and not gang.unreached:
                    return

    def _end(self, gang: _Gang) -> None:
        if gang.nodes:
            with contextlib.suppress(RayError):
                self._on_each(gang, _stop, partial(_agent_of, gang))
        remove_placement_group(gang.group)

    def _on_each(
        self, gang: _Gang, work: Any, arguments: Callable[[int], tuple[Any, ...]], num_gpus: float = 0
    ) -> list[Any]:
        """Run a task on every node; a node that does not answer does not delay the others."""
        references = []
        for rank, node in enumerate(gang.nodes):
            # Only a task in the bundle learns its GPUs; any other's worker outlives the group, warm for the next.
            strategy = (
                PlacementGroupSchedulingStrategy(gang.group, placement_group_bundle_index=rank)
                if num_gpus
                else NodeAffinitySchedulingStrategy(node.id, soft=False)
            )
            chosen = work.options(num_cpus=0, num_gpus=num_gpus, max_retries=0, scheduling_strategy=strategy)
            references.append(chosen.remote(*arguments(rank)))
        ray.wait(references, num_returns=len(references), timeout=_TASK_S)
        return [_answer(reference) for reference in references]

    def _look_around(self) -> None:
        """Give back groups whose agents have all left without an order: their server is gone for good."""
        while True:
            time.sleep(_LOOK_S)
            with self._lock:
                running = [(name, gang) for name, gang in self._gangs.items() if gang.state == "up"]
            for name, gang in running:
                with contextlib.suppress(RayError):
                    there = self._on_each(gang, _is_there, partial(_agent_of, gang))
                    gang.missed = 0 if any(answer is not False for answer in there) else gang.missed + 1
                if gang.missed >= 3:
                    self.release(name)


def _recovered(name: str) -> _Gang | None:
    """A gang that was requested before this broker was restarted, from Ray's tables."""
    group = _find(name)
    if group is None:
        return None
    by_id = {node.id: node for node in _nodes()}
    table = placement_group_table(group)
    nodes = [by_id[node_id] for _, node_id in sorted(table["bundles_to_node_id"].items()) if node_id in by_id]
    return _Gang(group, Site(), (), 0, "up" if table["state"] != "PENDING" else "pending", nodes=nodes)


def _agent_order(gang: _Gang, rank: int) -> Json:
    head = str(ray.get_runtime_context().gcs_address)
    order: Json = to_json(AgentOrder(gang.agents[rank], gang.site, gang.nodes[rank].name, head))
    return order


def _agent_of(gang: _Gang, rank: int) -> tuple[str, Json]:
    return gang.agents[rank].node, to_json(gang.site)


def _report(gang: _Gang, alive: Mapping[str, RayNode]) -> GangReport:
    ranked = list(enumerate(gang.nodes))
    lost = tuple(rank for rank, node in ranked if node.id not in alive or not alive[node.id].alive)
    return GangReport(
        state="lost" if lost else gang.state,
        reason=gang.reason,
        hosts=tuple(node.name for node in gang.nodes),
        lost=lost,
        draining=tuple(rank for rank, node in ranked if rank not in lost and alive[node.id].draining),
        living=sum(node.alive for node in alive.values()),
        unreached=gang.unreached,
        recovered=not gang.agents,
    )


def _nodes() -> list[RayNode]:
    # The public list of nodes does not say which are being drained.
    draining = ray._private.state.state.get_draining_nodes()
    return read_nodes(ray.nodes(), draining)


def _dashboard() -> str:
    """The address of Ray's dashboard, which its head keeps in its own table; empty: there is none."""
    try:
        from ray._private import ray_constants
        from ray.experimental.internal_kv import _internal_kv_get

        kept = _internal_kv_get(ray_constants.DASHBOARD_ADDRESS, namespace=ray_constants.KV_NAMESPACE_DASHBOARD)
    except Exception:
        # There is no public interface for this, and another version of Ray may keep it elsewhere.
        return ""
    return f"http://{kept.decode()}" if kept else ""


def _find(name: str) -> PlacementGroup | None:
    try:
        return ray.util.get_placement_group(GROUP_PREFIX + name)
    except ValueError:
        return None


def _answer(reference: Any) -> Any:
    try:
        return ray.get(reference, timeout=0)
    except GetTimeoutError:
        return "it did not answer"
    except RayError as error:
        return _words(error)


def _words(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__


def _start_agent(version: str, order: Json) -> str:
    gpus = [str(item) for item in ray.get_runtime_context().get_accelerator_ids().get("GPU", [])]
    return node_tasks.start_agent(version, order, gpus)


_start, _stop, _is_there, _contact = map(
    ray.remote, (_start_agent, node_tasks.end_agent, node_tasks.agent_is_there, node_tasks.contact)
)
