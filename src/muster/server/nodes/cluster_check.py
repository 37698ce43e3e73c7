"""What the server can check on the way to a cluster before a job goes there."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence

from muster import errors
from muster.engines.base import Cluster, Engine, NodeOffer
from muster.server.context import Context
from muster.server.database.reserve import Room
from muster.wire.clusters import ClusterCheck, Finding, FindingLevel

_ENOUGH_BYTES = 5 << 30
_PATIENCE_S = 10.0


async def check(context: Context, cluster: Cluster) -> ClusterCheck:
    """Manager, settings, nodes, the way back, and the workspace's folder, in the order in which a job meets them."""
    try:
        engine = context.nodes.engines.get(cluster.engine)
    except errors.JobError as error:
        return ClusterCheck((Finding("engine", "fail", error.message, error.hint),))
    asked = await asyncio.to_thread(lambda: list(_check_manager(engine, cluster)))
    return ClusterCheck((*asked, *_way_back(context, engine, cluster), _disk(Room.of(context.paths.server_dir))))


def _check_manager(engine: Engine, cluster: Cluster) -> Iterator[Finding]:
    trouble = engine.trouble(cluster, _PATIENCE_S)
    if trouble:
        yield Finding("reach", "fail", trouble, "The lines below are checked once it answers.")
        return
    try:
        notices = engine.check(cluster)
    except errors.JobError as error:
        yield Finding("settings", "fail", error.message, error.hint)
        return
    about = engine.about(cluster)
    yield Finding("reach", "ok", about or f"the engine {cluster.engine} answers")
    yield from (Finding("settings", "warn", notice) for notice in notices)
    if not notices:
        yield Finding("settings", "ok", "the manager would take jobs with them")
    yield nodes(engine.nodes(cluster))


def nodes(offers: Sequence[NodeOffer]) -> Finding:
    """Report how many nodes there are, and what is wrong with those that take no jobs."""
    if not offers:
        return Finding("nodes", "fail", "there are none", "See `muster cluster show`.")
    out = [offer for offer in offers if offer.state in ("unusable", "unknown")]
    counts = Counter(offer.state or "there" for offer in offers)
    text = ", ".join(f"{count} {state}" for state, count in counts.most_common())
    if not out:
        return Finding("nodes", "ok", text)
    which = "; ".join(f"{offer.name}: {offer.reason or offer.state}" for offer in out[:5])
    return Finding("nodes", "fail" if len(out) == len(offers) else "warn", f"{text} ({which})")


def _way_back(context: Context, engine: Engine, cluster: Cluster) -> Iterator[Finding]:
    """How nodes will reach this server."""
    try:
        reach = engine.connection(cluster)
    except errors.JobError as error:
        yield Finding("way back", "fail", error.message, error.hint)
        return
    if reach is None:
        return
    urls = context.remote.urls(reach)
    folder = reach.mode != "tls" and f"the folder {context.paths.spool}"
    ways = [*(urls if reach.mode != "files" else ()), *([folder] if folder else [])]
    if not ways:
        advice = f"Give the address: `muster cluster set {cluster.name} server_address=ADDRESS`."
        yield Finding("way back", "fail", "the server listens for no other machine", advice)
        return
    yield Finding("way back", "ok", f"nodes reach the server by {' or '.join(ways)}")


def _disk(room: Room) -> Finding:
    text = f"{room.free / 1e9:.0f} GB are free in {room.folder}"
    level: FindingLevel = "fail" if room.is_full else "warn" if room.free < _ENOUGH_BYTES else "ok"
    return Finding("disk", level, text, "" if level == "ok" else "Make room: `muster gc` removes what is old.")
