"""Ray behind the six methods: gangs are handed to a broker inside the Ray cluster, which is asked about all of them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from muster import errors
from muster.clusters.options import Options, parse_options, unknown_size_notice
from muster.engines.base import Allocation, AllocationState, Cluster, Ending, Engine, NodeLife, NodeOffer
from muster.engines.ray import options as ray_options
from muster.engines.ray import words
from muster.engines.ray.admission import Waiting, admit
from muster.engines.ray.cluster import RayNode, fits
from muster.engines.ray.link import Away, Bridge
from muster.engines.ray.options import RayOptions
from muster.version import VERSION

log = logging.getLogger("muster.server")

_ATTACH_S = 45.0
_AGAIN_S = 0.5
_ANSWER_S = 5.0
_POLL_S = 2.0
_FRESH_S = 3.0
_UNKNOWN = 64


@dataclass
class _Gang:
    """An attempt that wants nodes."""

    allocation: Allocation
    since: float
    asked: bool = False
    placed: bool = False


@dataclass
class _Site:
    """One cluster on Ray, as this server knows it."""

    options: RayOptions
    bridge: Bridge
    lock: threading.RLock = field(default_factory=threading.RLock)
    gangs: dict[str, _Gang] = field(default_factory=dict)
    told: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What the broker said last of each allocation."""
    to_release: set[str] = field(default_factory=set)
    nodes: list[RayNode] = field(default_factory=list)
    nodes_at: float = float("-inf")
    nodes_known: bool = False
    asking: bool = False
    offers: tuple[Any, list[NodeOffer]] = (None, [])
    answered_at: float = float("-inf")


class RayEngine(Engine):
    """Groups and agents outlive the server; the broker knows them by the names of their allocations."""

    name = "ray"
    queues = True
    remote = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sites: dict[str, _Site] = {}

    def check(self, cluster: Cluster) -> list[str]:
        ray_options.refuse_others(cluster.options)
        common, chosen = parse_options(cluster.options), ray_options.parse(cluster.options)
        site = self._site(cluster)
        said = [*unknown_size_notice(common)]
        try:
            self._attach(site)
            self._renew(site)
        except Away as error:
            said.append(f"Ray does not answer now, so the settings are not checked ({error})")
        except errors.JobError:
            self._drop(cluster.name)
            raise
        if not chosen.secured:
            said.append(
                f"Ray at {chosen.address} is attached to without a token: whoever reaches it can run commands on its "
                "nodes. Start it with RAY_AUTH_MODE=token, and give token_file"
            )
        if not chosen.tls_ca:
            said.append(f"what Ray's own processes say to {chosen.address} is not encrypted; Muster's agents use TLS")
        given = [key for key in ray_options.MEANINGLESS if cluster.options.get(key)]
        return [*said, *(f"{key} means nothing here: {ray_options.MEANINGLESS[key]}" for key in given)]

    def nodes(self, cluster: Cluster) -> Sequence[NodeOffer]:
        """The machines that Ray has, and those that its autoscaler may still bring."""
        site = self._site(cluster)
        self._refresh(site)
        common = parse_options(cluster.options)
        with site.lock:
            busy = frozenset(host for told in site.told.values() for host in told["hosts"])
            key = (tuple(site.nodes), common, site.nodes_known, busy)
            if site.offers[0] != key:
                known = site.nodes_known
                site.offers = (key, _offers(cluster.name, site.nodes, common, site.options, known, busy))
            return site.offers[1]

    def allocate(self, allocation: Allocation) -> None:
        site = self._site(allocation.cluster)
        with site.lock:
            site.gangs.setdefault(allocation.id, _Gang(allocation, time.time()))
        self._ask_for_next(site)

    def poll(self, allocations: Sequence[Allocation]) -> Mapping[str, AllocationState]:
        by_site: dict[str, list[Allocation]] = {}
        for item in allocations:
            by_site.setdefault(item.cluster.name, []).append(item)
        found: dict[str, AllocationState] = {}
        for items in by_site.values():
            site = self._site(items[0].cluster)
            trouble = self._ask_about(site, items)
            self._ask_for_next(site)
            found |= {item.id: self._state(site, item, trouble) for item in items}
        return found

    def release(self, allocation: Allocation) -> None:
        site = self._site(allocation.cluster)
        with site.lock:
            site.gangs.pop(allocation.id, None)
            site.told.pop(allocation.id, None)
            site.to_release.add(allocation.id)
        self._give_back(site)
        self._ask_for_next(site)

    def close(self, leave_agents: bool) -> None:
        with self._lock:
            sites = list(self._sites.values())
        for site in sites:
            site.bridge.close()

    # The broker

    def _site(self, cluster: Cluster) -> _Site:
        chosen = ray_options.parse(cluster.options)
        with self._lock:
            site = self._sites.get(cluster.name)
            if site is None:
                site = self._sites[cluster.name] = _Site(chosen, Bridge(chosen))
            elif site.options != chosen:
                same_way = (site.options.address, site.options.python) == (chosen.address, chosen.python)
                if not same_way or site.options.environment() != chosen.environment():
                    site.bridge.close()
                    site.bridge = Bridge(chosen)
                site.options = chosen
            return site

    def _attach(self, site: _Site) -> None:
        """Tries again until the deadline where the reason may pass: a head that is busy fails in many ways."""
        until = time.monotonic() + _ATTACH_S
        last: words.NotNow | None = None
        while True:
            try:
                site.bridge.attach(max(0.0, until - time.monotonic()))
                return
            except words.NotNow as error:
                last = error
                if time.monotonic() + _AGAIN_S > until:
                    raise
                time.sleep(_AGAIN_S)
            except Away:
                if last is not None:
                    raise last from None
                raise

    def _drop(self, name: str) -> None:
        with self._lock:
            site = self._sites.pop(name, None)
        if site is not None:
            site.bridge.close()

    def _ask_for_next(self, site: _Site) -> None:
        """Tell the broker of gangs whose turn it is."""
        with site.lock:
            waiting = [_waiting(gang) for gang in site.gangs.values() if not gang.asked]
            asked = [gang for gang in site.gangs.values() if gang.asked]
            pending = [len(gang.allocation.agents) for gang in asked if not gang.placed]
            placed = [len(gang.allocation.agents) for gang in asked if gang.placed]
            most = max(len(site.offers[1]), site.options.max_nodes or 0)
            chosen = [site.gangs[name] for name in admit(waiting, pending, placed, most)]
            for gang in chosen:
                gang.asked = True
        for gang in chosen:
            try:
                if not site.nodes_known:
                    self._renew(site)
                wanted = _wanted(gang.allocation, site.options, site.nodes)
                site.bridge.call("allocate", _ANSWER_S, name=gang.allocation.id, wanted=wanted)
            except Away as error:
                gang.asked = False
                log.debug("%s was not asked for yet: %s", gang.allocation.id, error)

    def _ask_about(self, site: _Site, items: Sequence[Allocation]) -> str:
        """Have the broker say what it knows; returns why it does not."""
        self._give_back(site)
        try:
            names = [item.id for item in items]
            told = site.bridge.call("poll", _POLL_S, names=names, owner=_owner(items[0]))
        except Away as error:
            return str(error)
        with site.lock:
            site.told = told
            for name, item in told.items():
                if item["state"] != "pending" and name in site.gangs:
                    site.gangs[name].placed = True
            site.answered_at = time.monotonic()
        return ""

    def _give_back(self, site: _Site) -> None:
        with site.lock:
            names = list(site.to_release)
        for name in names:
            try:
                site.bridge.call("release", _ANSWER_S, name=name)
            except Away:
                return
            with site.lock:
                site.to_release.discard(name)

    def _refresh(self, site: _Site) -> None:
        """Have the nodes listed anew in the background, where what is known is old."""
        with site.lock:
            if site.asking or time.monotonic() - site.nodes_at < _FRESH_S:
                return
            site.asking = True
        threading.Thread(target=self._renew_quietly, args=(site,), name="ray-nodes", daemon=True).start()

    def _renew_quietly(self, site: _Site) -> None:
        try:
            self._renew(site)
        except Away:
            with site.lock:
                site.nodes_at = time.monotonic()
        finally:
            site.asking = False

    def _renew(self, site: _Site) -> None:
        listed = [RayNode(**row) for row in site.bridge.call("nodes", _ANSWER_S)]
        with site.lock:
            site.nodes = [node for node in listed if node.alive]
            site.nodes_known = True
            site.nodes_at = time.monotonic()

    # What is told of an allocation

    def _state(self, site: _Site, allocation: Allocation, trouble: str) -> AllocationState:
        with site.lock:
            told, gang = site.told.get(allocation.id), site.gangs.get(allocation.id)
        num_nodes = len(allocation.agents)
        if trouble:
            life: NodeLife = "up" if told is not None and told["state"] in ("up", "lost") else "starting"
            if told is None and gang is None:
                # Neither this server nor, so far, anybody else knows of it: its agents have the word.
                life = "up" if site.answered_at == float("-inf") else "gone"
            return _all(allocation, life, f"Ray does not answer: {trouble}")
        if told is not None:
            return _state_of(allocation, told)
        if gang is None or gang.placed:
            why = "Ray no longer has its nodes: its head was started anew"
            return _all(allocation, "gone", why, Ending("node_lost", why) if gang is not None else None)
        # Asked for in vain, or not its turn yet.
        gang.asked = False
        ahead = sum(len(item.allocation.agents) for item in site.gangs.values() if item.asked)
        return _all(allocation, "starting", f"waits for {num_nodes} nodes; gangs before it hold or want {ahead}")


def _state_of(allocation: Allocation, told: Mapping[str, Any]) -> AllocationState:
    """What the broker's words mean for the run."""
    if told["lost"]:
        hosts = ", ".join(told["hosts"][rank] for rank in told["lost"])
        why = f"Ray lost the node {hosts}"
        lives: dict[str, NodeLife] = {
            agent.node: "gone" if rank in told["lost"] else "up" for rank, agent in enumerate(allocation.agents)
        }
        return AllocationState(lives, why, Ending("node_lost", why))
    if told["draining"]:
        hosts = ", ".join(told["hosts"][rank] for rank in told["draining"])
        why = f"Ray takes the node {hosts} back"
        return AllocationState({agent.node: "up" for agent in allocation.agents}, why, Ending("preempted", why))
    if told["state"] == "failed":
        return _all(allocation, "gone", told["reason"], Ending("platform", told["reason"]))
    if told["state"] == "up":
        return _all(allocation, "up")
    return _all(allocation, "starting", words.why_it_waits(told, len(allocation.agents)))


def _all(allocation: Allocation, life: NodeLife, reason: str = "", ending: Ending | None = None) -> AllocationState:
    return AllocationState({agent.node: life for agent in allocation.agents}, reason, ending)


def _waiting(gang: _Gang) -> Waiting:
    allocation = gang.allocation
    priority = allocation.gang.priority if allocation.gang is not None else 1
    return Waiting(allocation.id, len(allocation.agents), priority, gang.since)


def _wanted(allocation: Allocation, chosen: RayOptions, nodes: Sequence[RayNode]) -> dict[str, Any]:
    """What the broker is told of a gang: bundles, labels, configurations."""
    assert allocation.gang is not None
    common = parse_options(allocation.cluster.options)
    bundle = bundle_for(allocation.gang.ranks_per_node, allocation.gang.gpus_per_node, common, nodes)
    agents = [
        replace(
            agent,
            server=tuple(url for url in agent.server if url.startswith("https://")),
            stale_after_s=chosen.stale_seconds,
        )
        for agent in allocation.agents
    ]
    selector = dict(chosen.labels)
    failed = {node.id for node in nodes if node.name in allocation.gang.excluded}
    usable = [node for node in nodes if fits(node, selector, bundle)]
    if failed and len([node for node in usable if node.id not in failed]) >= len(agents):
        selector["ray.io/node-id"] = f"!in({','.join(sorted(failed))})"
    return {
        "bundles": [bundle] * len(agents),
        "selectors": [selector] * len(agents) if selector else [],
        "agents": [vars(agent) for agent in agents],
        "setting": {
            "version": VERSION,
            "owner": _owner(allocation),
            "folder": chosen.node_folder,
            "cut_off_s": chosen.cut_off_seconds,
        },
    }


def _owner(allocation: Allocation) -> str:
    """A cluster of a workspace: several may use one Ray cluster."""
    return f"{allocation.id.partition('-')[0]}/{allocation.cluster.name}"


def bundle_for(ranks: int, gpus: int | None, common: Options, nodes: Sequence[RayNode]) -> dict[str, float]:
    """What one node of a gang takes of its machine: a CPU for each rank as far as there are, and its GPUs."""
    size = common.size
    cpus_of_node = (
        min((node.cpus for node in nodes if node.cpus), default=0) or common.cpus or (size.cpus if size else 0)
    )
    cpus = common.cpus or (min(ranks, cpus_of_node) if cpus_of_node else ranks)
    if gpus is None:
        with_gpus = [node.gpus for node in nodes if node.gpus]
        gpus = (
            common.gpus if common.gpus is not None else min(with_gpus, default=size.gpus if size and not nodes else 0)
        )
    return {"CPU": float(cpus), **({"GPU": float(gpus)} if gpus else {})}


def _offers(
    cluster: str, nodes: Sequence[RayNode], common: Options, chosen: RayOptions, known: bool, busy: frozenset[str]
) -> list[NodeOffer]:
    """What Ray has, then what may come; while Ray has not answered yet, no job is refused for want of nodes."""
    here = [node for node in nodes if node.cpus and fits(replace(node, draining=False), chosen.labels, {})]
    found = [
        NodeOffer(
            node.name,
            node.name,
            node.address,
            node.cpus,
            node.memory_bytes,
            tuple(str(index) for index in range(node.gpus)),
            own_share=True,
            state="leaving" if node.draining else "running" if node.name in busy else "idle",
            reason="Ray takes it back" if node.draining else "",
        )
        for node in here
    ]
    size = common.size
    cpus = common.cpus or (size.cpus if size else here[0].cpus if here else 1)
    gpus = common.gpus if common.gpus is not None else size.gpus if size else here[0].gpus if here else 0
    memory = int((common.memory_gb or (size.memory_gb if size else 0)) * 1e9) or (here[0].memory_bytes if here else 0)
    for number in range(len(found), chosen.max_nodes or (0 if known else _UNKNOWN)):
        found.append(
            NodeOffer(
                f"{cluster}-{number}", f"{cluster}-{number}", "", cpus, memory,
                tuple(str(index) for index in range(gpus)), own_share=True,
                state="away", reason="comes when a job needs it" if known else "Ray does not answer yet",
            )
        )  # fmt: skip
    return found[: chosen.max_nodes] if chosen.max_nodes else found
