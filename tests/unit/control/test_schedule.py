"""Which run starts where."""

from hypothesis import given
from hypothesis import strategies as st

from muster.control.schedule import Held, Node, Waiting, impossible, schedule


def job(name, nodes=1, ranks=1, gpus=None, cluster="local"):
    return Waiting(name, name, cluster, nodes, ranks, gpus)


def machine(nodes=4, cpus=2, gpus=()):
    return [Node(f"local-{index}", "host", "127.0.0.1", cpus, tuple(gpus)) for index in range(nodes)]


def test_starts_in_order_what_fits_and_says_why_the_rest_waits():
    decision = schedule([job("a"), job("b"), job("c"), job("d")], {"local": machine()}, [])
    assert [start.run_id for start in decision.starts] == ["a", "b"]
    assert decision.reasons["c"] == "needs 1 CPU slots for its ranks; 0 of 2 are free, the rest is held by a, b"
    assert decision.reasons["d"] == "waits behind c in the queue of local"


def test_a_gang_larger_than_the_machine_starts_when_the_machine_is_idle():
    assert schedule([job("big", ranks=8)], {"local": machine()}, []).starts
    held = [Held("x", "x", "host", 1, ())]
    assert not schedule([job("big", ranks=8)], {"local": machine()}, held).starts


def test_a_later_small_job_does_not_overtake_the_first():
    held = [Held("x", "x", "host", 1, ())]
    decision = schedule([job("big", ranks=2), job("small")], {"local": machine()}, held)
    assert decision.starts == ()


def test_simulated_nodes_share_out_the_gpus():
    decision = schedule([job("a", nodes=2)], {"local": machine(gpus="0123")}, [])
    assert [place.gpus for place in decision.starts[0].places] == [("0", "1"), ("2", "3")]


def test_gpus_are_a_hard_limit():
    held = [Held("x", "x", "host", 1, ("0", "1"))]
    decision = schedule([job("a", gpus=3)], {"local": machine(cpus=16, gpus="0123")}, held)
    assert decision.reasons["a"] == "needs 3 GPUs on local-0; 2 of 4 are free, the rest is held by x"
    placed = schedule([job("a", gpus=2)], {"local": machine(cpus=16, gpus="0123")}, held).starts[0]
    assert placed.places[0].gpus == ("2", "3")


def test_clusters_do_not_wait_for_each_other():
    nodes = {"local": machine(cpus=1), "other": [Node("other-0", "elsewhere", "10.0.0.2", 4, ())]}
    held = [Held("x", "x", "host", 1, ())]
    decision = schedule([job("a"), job("b", cluster="other")], nodes, held)
    assert [start.run_id for start in decision.starts] == ["b"]


def test_says_what_can_never_start():
    assert impossible(job("a", nodes=5), machine(4)) == "needs 5 nodes; local has at most 4"
    assert impossible(job("a", gpus=2), machine()) == "needs 2 GPUs on a node; the largest node of local has 0"
    shared = impossible(job("a", nodes=3, gpus=2), machine(gpus="0123"))
    assert shared == "needs 3 × 2 GPUs; local has 4 in all, shared by its simulated nodes"
    assert impossible(job("a", nodes=2, gpus=2), machine(gpus="0123")) is None


jobs = st.lists(
    st.builds(
        Waiting,
        run_id=st.uuids().map(str),
        title=st.just("job"),
        cluster=st.just("local"),
        num_nodes=st.integers(1, 4),
        ranks_per_node=st.integers(1, 4),
        gpus_per_node=st.one_of(st.none(), st.integers(0, 4)),
    ),
    max_size=12,
)


@given(jobs, st.integers(1, 8), st.integers(0, 4))
def test_no_gpu_is_given_twice_and_gangs_are_whole(queue, cpus, num_gpus):
    nodes = machine(4, cpus, [str(index) for index in range(num_gpus)])
    decision = schedule(queue, {"local": nodes}, [])
    given_out = [gpu for start in decision.starts for place in start.places for gpu in place.gpus]
    assert len(given_out) == len(set(given_out))
    wanted = {item.run_id: item for item in queue}
    for start in decision.starts:
        assert len(start.places) == wanted[start.run_id].num_nodes
    waits = [item.run_id for item in queue if item.run_id not in {start.run_id for start in decision.starts}]
    assert sorted(decision.reasons) == sorted(waits)
    assert all(decision.reasons.values())


@given(jobs, st.integers(1, 8))
def test_ranks_outnumber_cores_only_for_a_gang_that_is_alone(queue, cpus):
    decision = schedule(queue, {"local": machine(4, cpus)}, [])
    ranks = [sum(place.ranks for place in start.places) for start in decision.starts]
    assert len(ranks) <= 1 or sum(ranks) <= cpus


@given(jobs)
def test_the_head_of_the_queue_starts_on_an_idle_machine_or_never_can(queue):
    nodes = machine(4, 2, "01")
    decision = schedule(queue, {"local": nodes}, [])
    if queue and impossible(queue[0], nodes) is None:
        assert decision.starts and decision.starts[0].run_id == queue[0].run_id
