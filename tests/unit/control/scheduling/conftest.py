"""Short ways to make clusters and gangs, and what hypothesis draws them from."""

from __future__ import annotations

from hypothesis import strategies as st

from muster.control.scheduling.capacity import Capacity
from muster.control.scheduling.model import Gang, Need, Node, Part, Running


def gang(name, nodes=1, ranks=1, gpus=None, seq=0, cluster="c", share=1.0, **more):
    return Gang(name, name, cluster, Need(nodes, ranks, 1 if share < 1 else gpus, share), seq=seq, **more)


def cluster(count=4, cpus=2, gpus=0):
    """Nodes with CPUs and GPUs of their own."""
    devices = tuple(str(index) for index in range(gpus))
    return [Node(f"c-{index}", f"h{index}", "10.0.0.1", cpus, devices) for index in range(count)]


def machine(count=4, cpus=2, gpus=""):
    """Simulated nodes that share one machine."""
    return [Node(f"c-{index}", "host", "127.0.0.1", cpus, tuple(gpus), "host") for index in range(count)]


def running(name, *nodes, ranks=1, gpus=(), until=float("inf"), share=1.0, **more):
    parts = tuple(Part(node.name, node.host, ranks, tuple(gpus), share) for node in nodes)
    return Running(name, name, "c", parts, until=until, **more)


def capacity(nodes, *held):
    found = Capacity({"c": nodes})
    for item in held:
        found.hold(item)
    return found


shapes = {"nodes": st.integers(1, 5), "ranks": st.integers(1, 4)}
needs = st.one_of(
    st.builds(Need, **shapes, gpus=st.one_of(st.none(), st.integers(0, 3)), share=st.just(1.0)),
    st.builds(Need, **shapes, gpus=st.just(1), share=st.sampled_from([0.0625, 0.25, 0.3, 0.5, 0.75])),
)


@st.composite
def gangs(draw, max_size=14, with_limits=True):
    """A queue: gangs of many shapes, priorities and limits, each with its own place."""
    found = []
    for number in range(draw(st.integers(0, max_size))):
        limit = draw(st.one_of(st.none(), st.integers(1, 20))) if with_limits else draw(st.integers(1, 20))
        found.append(
            Gang(
                f"g{number}",
                f"g{number}",
                "c",
                draw(needs),
                priority=draw(st.integers(0, 2)),
                queued_at=float(number),
                seq=number,
                limit_s=None if limit is None else limit * 600.0,
                excluded=frozenset(draw(st.sets(st.sampled_from(["c-0", "c-1"]), max_size=1))),
            )
        )
    return found


@st.composite
def busy_clusters(draw):
    """A cluster of either kind, some of whose nodes are held until a known or unknown time."""
    count = draw(st.integers(1, 6))
    cpus, gpus = draw(st.integers(1, 4)), draw(st.integers(0, 3))
    nodes = draw(st.sampled_from([cluster(count, cpus, gpus), machine(count, cpus, "012"[:gpus])]))
    found = capacity(nodes)
    for number in range(draw(st.integers(0, 3))):
        need = draw(needs)
        if found.count("c", need) >= need.nodes:
            until = draw(st.one_of(st.just(float("inf")), st.floats(1.0, 10_000.0)))
            places = found.pick("c", need)
            parts = tuple(
                Part(place.node.name, place.node.host, place.ranks, place.gpus, place.share) for place in places
            )
            found.hold(Running(f"r{number}", f"r{number}", "c", parts, until=until, priority=draw(st.integers(0, 2))))
    return nodes, found
