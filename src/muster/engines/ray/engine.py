"""The engine's methods on Ray: gangs go to a broker inside the Ray cluster, which is asked about all of them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from muster import errors
from muster.clusters.options import Options, unknown_size_notice
from muster.engines.base import (
    Allocation,
    AllocationState,
    Cluster,
    Connection,
    Ending,
    GangRequest,
    NodeLife,
    NodeOffer,
    QueueEngine,
)
from muster.engines.ray import explanations
from muster.engines.ray.admission import QueuedGang, next_gangs
from muster.engines.ray.bridge_client import Away, Bridge
from muster.engines.ray.cluster import RayNode, fits
from muster.engines.ray.messages import GROUP_PREFIX, GangOrder, GangReport, Site
from muster.engines.ray.options import WITHOUT_EFFECT, RayOptions
from muster.wire.codec import from_json, to_json
from muster.wire.queue_jobs import QueueJob

log = logging.getLogger("muster.server")

_ATTACH_S = 45.0
_AGAIN_S = 0.5
_ANSWER_S = 5.0
_POLL_S = 2.0
_FRESH_S = 3.0
_MOMENT_S = 1.0
_REMEMBERED_S = 600.0
_WAS_HERE = "Ray has lost it, and it may come back"


@dataclass(frozen=True)
class _Known:
    """The inputs from which a cluster's offers were made."""

    nodes: tuple[RayNode, ...]
    options: RayOptions
    gone: tuple[RayNode, ...]
    """Those that it had recently."""
    trouble: bool
    busy: frozenset[str]


@dataclass
class _Site:
    """One cluster on Ray, as this server knows it."""

    options: RayOptions
    bridge: Bridge
    lock: threading.RLock = field(default_factory=threading.RLock)
    gangs: dict[str, QueuedGang] = field(default_factory=dict)
    reports: dict[str, GangReport] = field(default_factory=dict)
    """The broker's latest report on each allocation."""
    to_release: set[str] = field(default_factory=set)
    nodes: list[RayNode] = field(default_factory=list)
    seen: dict[str, tuple[float, RayNode]] = field(default_factory=dict)
    """Every recent node, and when Ray last had it."""
    nodes_at: float = float("-inf")
    nodes_known: bool = False
    asking: threading.Thread | None = None
    trouble: str = "it is being attached to"
    """Why Ray does not answer."""
    offers: tuple[_Known | None, list[NodeOffer]] = (None, [])
    answered_at: float = float("-inf")


class RayEngine(QueueEngine):
    """Groups and agents outlive the server; the broker knows them by the names of their allocations."""

    name = "ray"
    takes_orders_from_ranks = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sites: dict[str, _Site] = {}

    def check(self, cluster: Cluster) -> list[str]:
        RayOptions.refuse_unknown(cluster.options)
        chosen = RayOptions.parse(cluster.options)
        site = self._site(cluster)
        said = [*unknown_size_notice(chosen)]
        try:
            self._attach(site)
            self._renew(site)
        except Away as error:
            said.append(f"Ray does not answer now, so the settings are not checked ({error})")
        except errors.JobError:
            self._drop(cluster.name)
            raise
        if not chosen.token_file:
            said.append(
                f"Ray at {chosen.address} is attached to without a token: anybody who can reach it can run "
                "commands on its nodes. Start it with RAY_AUTH_MODE=token, and give token_file"
            )
        if not chosen.tls_ca:
            said.append(f"what Ray's own processes say to {chosen.address} is not encrypted; Muster's agents use TLS")
        said += [f"{key} means nothing here: {why}" for key, why in WITHOUT_EFFECT.items() if cluster.options.get(key)]
        return said

    def nodes(self, cluster: Cluster) -> Sequence[NodeOffer]:
        """The machines that Ray has, and those that its autoscaler may still add."""
        site = self._site(cluster)
        self._refresh(site)
        with site.lock:
            busy = frozenset(host for report in site.reports.values() for host in report.hosts)
            here = {node.name for node in site.nodes}
            gone = tuple(node for name, (_, node) in sorted(site.seen.items()) if name not in here)
            known = _Known(tuple(site.nodes), site.options, gone, bool(site.trouble), busy)
            if site.offers[0] != known:
                site.offers = (known, _offers(cluster.name, known))
            return site.offers[1]

    def trouble(self, cluster: Cluster, patience_s: float = 0.0) -> str:
        site = self._site(cluster)
        if patience_s:
            self._refresh(site, _MOMENT_S)
            with site.lock:
                asking = site.asking
            if asking is not None:
                asking.join(patience_s)
                with site.lock:
                    if site.asking is asking and not site.trouble:
                        site.trouble = f"no answer for {patience_s:g} s"
        return f"Ray does not answer: {site.trouble}" if site.trouble else ""

    def about(self, cluster: Cluster) -> str:
        site = self._site(cluster)
        try:
            about = site.bridge.attach(_ANSWER_S)
        except (Away, errors.JobError) as error:
            return f"Ray: {error}"
        return f"Ray {about.ray} with Python {about.python} and Muster {about.muster} at {site.options.address}"

    def connection(self, cluster: Cluster) -> Connection:
        chosen = RayOptions.parse(cluster.options)
        head = urlsplit(chosen.address if "//" in chosen.address else f"//{chosen.address}").hostname
        near = (head,) if head else ()
        return Connection("tls", chosen.server_address, chosen.server_port, chosen.linger_seconds, near)

    def submit(self, request: GangRequest) -> None:
        site = self._site(request.cluster)
        with site.lock:
            site.gangs.setdefault(request.id, QueuedGang(request, time.time()))
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

    def job(self, allocation: Allocation) -> QueueJob | None:
        site = self._site(allocation.cluster)
        with site.lock:
            report, asked = site.reports.get(allocation.id), allocation.id in site.gangs
        name = f"{GROUP_PREFIX}{allocation.id}"
        if report is None:
            # Short ones end before Ray is asked about them.
            return QueueJob(name, link=site.bridge.dashboard) if asked else None
        return QueueJob(
            name, state=report.state, reason=report.reason, nodes=", ".join(report.hosts), link=site.bridge.dashboard
        )

    def release(self, allocation: Allocation, followed: bool) -> None:
        site = self._site(allocation.cluster)
        with site.lock:
            site.gangs.pop(allocation.id, None)
            site.reports.pop(allocation.id, None)
            site.to_release.add(allocation.id)
        self._give_back(site)
        self._ask_for_next(site)

    def close(self) -> None:
        with self._lock:
            sites = list(self._sites.values())
        for site in sites:
            site.bridge.close()

    # The broker

    def _site(self, cluster: Cluster) -> _Site:
        chosen = RayOptions.parse(cluster.options)
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
        """Tries again until the deadline where the reason may pass: a busy head fails in many ways."""
        until = time.monotonic() + _ATTACH_S
        last: explanations.NotNow | None = None
        while True:
            try:
                site.bridge.attach(max(0.0, until - time.monotonic()))
                return
            except explanations.NotNow as error:
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
        """Send gangs whose turn it is to the broker."""
        with site.lock:
            most = max(len(site.offers[1]), site.options.max_nodes or 0)
            chosen = next_gangs(site.gangs.values(), most)
            for gang in chosen:
                gang.asked = True
        for gang in chosen:
            try:
                if not site.nodes_known:
                    self._renew(site)
                wanted = to_json(_gang_order(gang.request, site.options, site.nodes))
                site.bridge.call("allocate", _ANSWER_S, name=gang.request.id, wanted=wanted)
            except Away as error:
                gang.asked = False
                log.debug("%s was not asked for yet: %s", gang.request.id, error)

    def _ask_about(self, site: _Site, items: Sequence[Allocation]) -> str:
        """Get the broker's reports; returns why it does not answer."""
        self._give_back(site)
        try:
            names = [item.id for item in items]
            answer = site.bridge.call("poll", _POLL_S, names=names, owner=_owner(items[0]))
        except Away as error:
            site.trouble = str(error)
            return site.trouble
        with site.lock:
            site.trouble = ""
            site.reports = from_json(dict[str, GangReport], answer)
            for name in site.reports.keys() & site.gangs.keys():
                site.reports[name] = _note(site.gangs[name], site.reports[name])
            for name in site.gangs.keys() & set(names):
                site.gangs[name].lost = site.gangs[name].placed and name not in site.reports
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

    def _refresh(self, site: _Site, fresh_s: float = _FRESH_S) -> None:
        """Refresh the list of nodes in the background where it is old."""
        with site.lock:
            if site.asking or time.monotonic() - site.nodes_at < fresh_s:
                return
            site.asking = threading.Thread(target=self._renew_quietly, args=(site,), name="ray-nodes", daemon=True)
            site.asking.start()

    def _renew_quietly(self, site: _Site) -> None:
        try:
            self._renew(site)
        except Away:
            with site.lock:
                site.nodes_at = time.monotonic()
        finally:
            site.asking = None

    def _renew(self, site: _Site) -> None:
        try:
            listed = from_json(tuple[RayNode, ...], site.bridge.call("nodes", _ANSWER_S))
        except Away as error:
            site.trouble = str(error)
            raise
        now = time.monotonic()
        with site.lock:
            site.trouble = ""
            site.nodes = [node for node in listed if node.alive]
            site.seen |= {node.name: (now, node) for node in site.nodes}
            site.seen = {name: item for name, item in site.seen.items() if now - item[0] < _REMEMBERED_S}
            site.nodes_known = True
            site.nodes_at = now

    # The state of an allocation

    def _state(self, site: _Site, allocation: Allocation, trouble: str) -> AllocationState:
        with site.lock:
            report, gang = site.reports.get(allocation.id), site.gangs.get(allocation.id)
        num_nodes = len(allocation.nodes)
        if trouble:
            life: NodeLife = "up" if report is not None and report.state in ("up", "lost") else "starting"
            if report is None and gang is None:
                # Neither this server nor, so far, the broker knows it: its agents decide.
                life = "up" if site.answered_at == float("-inf") else "gone"
            return _all(allocation, life, f"Ray does not answer: {trouble}")
        if report is not None:
            return _state_of(allocation, report)
        if gang is None or gang.placed:
            why = "Ray no longer has its nodes: its head was restarted"
            return _all(allocation, "gone", why, Ending("node_lost", why) if gang is not None else None)
        # The request was lost, or its turn has not come.
        gang.asked = False
        ahead = sum(item.num_nodes for item in site.gangs.values() if item.asked)
        return _all(allocation, "starting", f"waits for {num_nodes} nodes; gangs before it hold or want {ahead}")


def _note(gang: QueuedGang, report: GangReport) -> GangReport:
    """Keep what a report says of a gang.

    A broker that was restarted before it had started the agents does not know whom to start: it is asked again, finds
    the group and goes on from there.
    """
    if report.recovered and not gang.started and not report.lost:
        gang.asked = False
        report = replace(report, state="starting" if report.hosts else "pending", reason="Ray's broker was restarted")
    gang.placed = gang.placed or report.state != "pending"
    gang.started = gang.started or report.state == "up"
    return report


def _state_of(allocation: Allocation, report: GangReport) -> AllocationState:
    """The run's state according to the broker's report."""
    if report.lost:
        lost = tuple(report.hosts[rank] for rank in report.lost)
        why = f"Ray lost the node {', '.join(lost)}"
        lives: dict[str, NodeLife] = {
            name: "gone" if rank in report.lost else "up" for rank, name in enumerate(allocation.nodes)
        }
        return AllocationState(lives, why, Ending("node_lost", why, lost))
    if report.draining:
        why = f"Ray takes the node {', '.join(report.hosts[rank] for rank in report.draining)} back"
        return _all(allocation, "up", why, Ending("preempted", why))
    if report.state == "failed":
        return _all(allocation, "gone", report.reason, Ending("platform", report.reason))
    if report.state == "up":
        return AllocationState(dict.fromkeys(allocation.nodes, "up"), unreached=report.unreached)
    return _all(allocation, "starting", explanations.why_it_waits(report, len(allocation.nodes)))


_all = AllocationState.of_all


def _gang_order(request: GangRequest, chosen: RayOptions, nodes: Sequence[RayNode]) -> GangOrder:
    """The broker's order for a gang: bundles, labels, configurations."""
    gang = request.gang
    bundle = bundle_for(gang.ranks_per_node, gang.gpus_per_node, chosen, nodes) | chosen.resources
    if gang.gpu_share < 1:
        bundle["GPU"] = gang.gpu_share
    elif chosen.gpu_share and gang.gpus_per_node in (None, 1):
        bundle["GPU"] = chosen.gpu_share
    agents = tuple(
        replace(
            agent,
            server=tuple(url for url in agent.server if url.startswith("https://")),
            stale_after_s=chosen.stale_seconds,
        )
        for agent in request.agents
    )
    selector = dict(chosen.labels)
    failed = {node.id for node in nodes if node.name in gang.excluded}
    usable = [node for node in nodes if fits(node, selector, bundle)]
    if failed and len([node for node in usable if node.id not in failed]) >= len(agents):
        selector["ray.io/node-id"] = f"!in({','.join(sorted(failed))})"
    return GangOrder(
        bundles=(bundle,) * len(agents),
        selectors=(selector,) * len(agents) if selector else (),
        agents=agents,
        site=Site(_owner(request), chosen.node_folder, chosen.cut_off_seconds),
    )


def _owner(allocation: Allocation) -> str:
    """A unique name for a workspace's cluster: several may use one Ray cluster."""
    return f"{allocation.id.partition('-')[0]}/{allocation.cluster.name}"


def bundle_for(ranks: int, gpus: int | None, common: Options, nodes: Sequence[RayNode]) -> dict[str, float]:
    """One node's share of its machine: a CPU for each rank as far as there are enough, and its GPUs."""
    cpus_of_node = min((node.cpus for node in nodes if node.cpus), default=0) or common.cpus_of_node
    cpus = common.cpus or (min(ranks, cpus_of_node) if cpus_of_node else ranks)
    if gpus is None:
        gpus = common.gpus
    if gpus is None:
        known = [node.gpus for node in nodes if node.gpus] if nodes else [common.gpus_of_node or 0]
        gpus = min(known, default=0)
    return {"CPU": float(cpus), **({"GPU": float(gpus)} if gpus else {})}


def _offers(cluster: str, known: _Known) -> list[NodeOffer]:
    """What Ray has, then what may come: up to the largest size, or what it had until a short while ago."""
    chosen = known.options
    here = [
        node
        for node in known.nodes
        if node.cpus and fits(replace(node, draining=False), chosen.labels, chosen.resources)
    ]
    found = [
        NodeOffer.of_machine(
            node.name,
            node.address,
            min(chosen.cpus, node.cpus) if chosen.cpus else node.cpus,
            node.memory_bytes,
            node.gpus,
            *_state_of_node(node, known),
        )
        for node in here
    ]
    if not chosen.max_nodes:
        found += [
            NodeOffer.of_machine(node.name, node.address, node.cpus, node.memory_bytes, node.gpus, "away", _WAS_HERE)
            for node in known.gone
            if fits(replace(node, draining=False), chosen.labels, chosen.resources)
        ]
    size, like = chosen.size, here[0] if here else None
    cpus = chosen.cpus_of_node or (like.cpus if like else 1)
    gpus = chosen.gpus_of_node if chosen.gpus_of_node is not None else like.gpus if like else 0
    memory = int((chosen.memory_gb or (size.memory_gb if size else 0)) * 1e9) or (like.memory_bytes if like else 0)
    why = "comes when a job needs it"
    for number in range(len(found), chosen.max_nodes or 0):
        found.append(NodeOffer.of_machine(f"{cluster}-{number}", "", cpus, memory, gpus, "away", why))
    return found[: chosen.max_nodes] if chosen.max_nodes else found


def _state_of_node(node: RayNode, known: _Known) -> tuple[str, str]:
    """A node's state, and why."""
    if known.trouble:
        return "unknown", "Ray does not answer"
    if node.draining:
        return "leaving", "Ray takes it back"
    return ("running" if node.name in known.busy else "idle"), ""
