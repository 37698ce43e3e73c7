"""The engine `ray` against a bridge that a test scripts: a program that answers what a file says."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from muster import errors
from muster.engines.base import Cluster, Gang, GangRequest
from muster.engines.ray.engine import RayEngine
from muster.paths import NodePaths
from muster.version import VERSION
from muster.wire.node.agents import AgentConfig

BRIDGE = """#!{python}
import json, sys
folder = {folder!r}
first, *later = json.load(open(folder + "/about.json"))
json.dump(later or [first], open(folder + "/about.json", "w"))
with open(folder + "/tries", "a") as tries:
    tries.write(".")
about = first
print(json.dumps(about), flush=True)
if "failed" in about:
    sys.exit(1)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["call"] == "die":
        sys.exit(1)
    with open(folder + "/calls.jsonl", "a") as calls:
        calls.write(line)
    answers = json.load(open(folder + "/answers.json"))
    print(json.dumps({{"id": asked["id"], "answer": answers.get(asked["call"])}}), flush=True)
"""


def node(number: int, **given: Any) -> dict[str, Any]:
    made = {"id": f"id{number}", "name": f"n{number}", "address": f"10.0.0.{number}", "alive": True, "cpus": 4}
    return {**made, "memory_bytes": 8 << 30, "gpus": 0, "head": number == 1, "draining": False, "labels": {}, **given}


class Fake:
    """A Ray cluster whose answers a test chooses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engine = RayEngine()
        self.program = folder / "python"
        self.program.write_text(BRIDGE.format(python=sys.executable, folder=str(folder)))
        self.program.chmod(0o700)
        self.is_attached()
        self.answers(nodes=[node(1), node(2), node(3)], poll={})
        self.cluster = Cluster("many", "ray", {"address": "ray://h:10001", "python": str(self.program)})

    def is_attached(self, **about: Any) -> None:
        found = {"attached": {"muster": VERSION, "ray": "2.60.0", "python": "3.11.2", **about}}
        self.says(found)

    def says(self, *about: dict[str, Any]) -> None:
        """What each try to attach is answered, the last for all that follow."""
        (self.folder / "about.json").write_text(json.dumps(about))

    def tries(self) -> int:
        return len((self.folder / "tries").read_text())

    def answers(self, **answers: Any) -> None:
        known = self.folder / "answers.json"
        old = json.loads(known.read_text()) if known.exists() else {}
        part = known.with_suffix(".part")
        part.write_text(json.dumps({**old, **answers}))
        part.rename(known)

    def calls(self, name: str) -> list[dict[str, Any]]:
        lines = (self.folder / "calls.jsonl").read_text().splitlines()
        return [item["arguments"] for item in map(json.loads, lines) if item["call"] == name]

    def allocation(self, run: str, nodes: int = 2, priority: int = 1, excluded: tuple[str, ...] = ()) -> GangRequest:
        server = ("https://10.0.0.9:1", "file:/shared")
        folders = {f"{run}.1.{rank}": NodePaths(Path(f"/w/{rank}")) for rank in range(nodes)}
        agents = tuple(AgentConfig(name, "many", str(paths.root), server, "secret") for name, paths in folders.items())
        gang = Gang(run, 1, run, "/w", priority=priority, excluded=excluded)
        return GangRequest(f"ws-{run}.1", self.cluster, folders, gang, agents)

    def report(self, state: str, **given: Any) -> dict[str, Any]:
        made = {"state": state, "reason": "", "hosts": ["n2", "n3"], "lost": [], "draining": [], "living": 3}
        return {**made, **given}


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Fake]:
    made = Fake(tmp_path)
    yield made
    made.engine.close()


def test_a_cluster_is_attached_to_and_its_lack_of_a_token_is_told(fake: Fake):
    notices = fake.engine.check(fake.cluster)
    assert any("attached to without a token" in text for text in notices)
    assert [offer.name for offer in fake.engine.nodes(fake.cluster)] == ["n1", "n2", "n3"]


def test_another_muster_on_the_nodes_is_refused(fake: Fake):
    fake.is_attached(muster="0.0.1")
    with pytest.raises(errors.JobError, match=r"nodes have Muster 0\.0\.1"):
        fake.engine.check(fake.cluster)


def test_a_bridge_that_speaks_otherwise_is_refused_at_once(fake: Fake, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("muster.engines.ray.engine._ATTACH_S", 0.4)
    fake.says({"welcome": True})
    with pytest.raises(errors.JobError, match="another Muster answers there: welcome: BridgeMessage has no such field"):
        fake.engine.check(fake.cluster)


def test_other_versions_of_ray_are_refused_with_what_to_change(fake: Fake):
    said = (
        "Version mismatch: The cluster was started with:\n    Ray: 2.9.0\n    Python: 3.11.2\n"
        "This process on Ray Client was started with:\n    Ray: 2.60.0\n    Python: 3.11.2\n"
    )
    fake.says({"failed": said, "kind": "RuntimeError"})
    with pytest.raises(errors.JobError, match=r"the cluster has Ray 2\.9\.0") as refused:
        fake.engine.check(fake.cluster)
    assert "ray==2.9.0" in str(refused.value.hint)
    assert fake.tries() == 1


def test_a_head_that_fails_for_a_passing_reason_is_asked_again(fake: Fake, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("muster.engines.ray.engine._AGAIN_S", 0.0)
    passing = {"failed": "psutil.ZombieProcess: PID still exists but it's a zombie", "kind": "RuntimeError"}
    attached = json.loads((fake.folder / "about.json").read_text())[0]
    fake.says(passing, {"failed": "Starting Ray client server failed.", "kind": "RuntimeError"}, attached)
    assert not any("does not answer" in text for text in fake.engine.check(fake.cluster))
    assert fake.tries() == 3


def test_a_head_that_keeps_failing_is_given_up_with_its_last_reason(fake: Fake, monkeypatch: pytest.MonkeyPatch):
    # The second failure leaves no time for a third try.
    ticks = iter([0.0, 0.0, 0.0, 44.0, 44.9])
    monkeypatch.setattr("muster.engines.ray.engine.time", SimpleNamespace(monotonic=lambda: next(ticks), sleep=print))
    fake.says({"failed": "first", "kind": "RuntimeError"}, {"failed": "second", "kind": "RuntimeError"})
    with pytest.raises(errors.JobError, match="cannot be attached to: second"):
        fake.engine.check(fake.cluster)
    assert fake.tries() == 2


def test_a_gang_is_a_group_of_bundles_with_configurations_that_only_use_tls(fake: Fake):
    fake.engine.check(fake.cluster)
    fake.engine.submit(fake.allocation("a", excluded=("n1",)))
    (call,) = fake.calls("allocate")
    assert call["name"] == "ws-a.1"
    assert call["wanted"]["bundles"] == [{"CPU": 1.0}] * 2
    assert call["wanted"]["selectors"] == [{"ray.io/node-id": "!in(id1)"}] * 2
    assert [agent["server"] for agent in call["wanted"]["agents"]] == [["https://10.0.0.9:1"]] * 2


def test_nodes_are_not_kept_off_where_too_few_others_are_left(fake: Fake):
    fake.engine.check(fake.cluster)
    fake.engine.submit(fake.allocation("a", nodes=3, excluded=("n1",)))
    assert fake.calls("allocate")[0]["wanted"]["selectors"] == []


def test_ray_hears_of_the_next_gang_only_when_it_is_its_turn(fake: Fake):
    fake.engine.check(fake.cluster)
    fake.engine.nodes(fake.cluster)
    first, second = fake.allocation("a"), fake.allocation("b")
    fake.engine.submit(first)
    fake.engine.submit(second)
    fake.answers(poll={first.id: fake.report("pending")})
    states = fake.engine.poll([first, second])
    assert "waits until Ray has 2 nodes free" in states[first.id].reason
    assert "gangs before it hold or want 2" in states[second.id].reason
    assert [call["name"] for call in fake.calls("allocate")] == [first.id]
    fake.answers(poll={first.id: fake.report("up")})
    fake.engine.poll([first, second])
    assert [call["name"] for call in fake.calls("allocate")] == [first.id, second.id]


def test_a_lost_node_is_the_end_of_the_attempt_and_is_named(fake: Fake):
    fake.engine.check(fake.cluster)
    item = fake.allocation("a")
    fake.engine.submit(item)
    fake.answers(poll={item.id: fake.report("lost", lost=[1])})
    state = fake.engine.poll([item])[item.id]
    assert state.nodes == {"a.1.0": "up", "a.1.1": "gone"}
    assert state.ending is not None
    assert (state.ending.code, state.ending.message) == ("node_lost", "Ray lost the node n3")


def test_a_node_that_is_drained_is_a_preemption_with_its_ranks_still_there(fake: Fake):
    fake.engine.check(fake.cluster)
    item = fake.allocation("a")
    fake.engine.submit(item)
    fake.answers(poll={item.id: fake.report("up", draining=[0])})
    state = fake.engine.poll([item])[item.id]
    assert set(state.nodes.values()) == {"up"}
    assert state.ending is not None and state.ending.code == "preempted"


def test_agents_that_do_not_stay_are_told_with_their_last_words(fake: Fake):
    fake.engine.check(fake.cluster)
    item = fake.allocation("a")
    fake.engine.submit(item)
    fake.answers(poll={item.id: fake.report("failed", reason="n2: no space")})
    state = fake.engine.poll([item])[item.id]
    assert set(state.nodes.values()) == {"gone"}
    assert state.reason == "n2: no space"


def test_a_bridge_that_died_is_started_again_and_nobody_is_given_up_meanwhile(fake: Fake):
    fake.engine.check(fake.cluster)
    item = fake.allocation("a")
    fake.engine.submit(item)
    fake.answers(poll={item.id: fake.report("up")})
    fake.engine.poll([item])
    bridge = fake.engine._site(fake.cluster).bridge
    with pytest.raises(Exception, match="ended"):
        bridge.call("die", 5.0)
    state = fake.engine.poll([item])[item.id]
    assert set(state.nodes.values()) == {"up"}
    assert "Ray does not answer" in state.reason
    deadline = time.monotonic() + 10
    while fake.engine.poll([item])[item.id].reason and time.monotonic() < deadline:
        time.sleep(0.05)
    assert fake.engine.poll([item])[item.id].reason == ""


def test_a_head_that_was_started_anew_has_lost_the_gangs_that_had_nodes(fake: Fake):
    fake.engine.check(fake.cluster)
    item = fake.allocation("a")
    fake.engine.submit(item)
    fake.answers(poll={item.id: fake.report("up")})
    fake.engine.poll([item])
    fake.answers(poll={})
    state = fake.engine.poll([item])[item.id]
    assert set(state.nodes.values()) == {"gone"}
    assert state.ending is not None and state.ending.code == "node_lost"


@pytest.mark.parametrize("state", ["pending", "up"])
def test_a_broker_that_was_restarted_before_it_started_the_agents_is_asked_again(fake: Fake, state: str):
    fake.engine.check(fake.cluster)
    asked = fake.allocation("a")
    fake.engine.submit(asked)
    hosts = [] if state == "pending" else ["n2", "n3"]
    fake.answers(poll={asked.id: fake.report(state, hosts=hosts, recovered=True)})
    assert set(fake.engine.poll([asked])[asked.id].nodes.values()) == {"starting"}
    assert [call["name"] for call in fake.calls("allocate")] == [asked.id] * 2
    # It has started them, and is restarted once more: they run on.
    fake.answers(poll={asked.id: fake.report("up")})
    fake.engine.poll([asked])
    fake.answers(poll={asked.id: fake.report("up", recovered=True)})
    assert set(fake.engine.poll([asked])[asked.id].nodes.values()) == {"up"}
    assert len(fake.calls("allocate")) == 2


def test_a_cluster_that_may_grow_offers_machines_that_are_not_there(fake: Fake):
    grown = Cluster("many", "ray", {**fake.cluster.options, "max_nodes": 5, "vm_size": "Standard_NC6s_v3"})
    fake.engine.check(grown)
    offers = fake.engine.nodes(grown)
    assert [offer.state for offer in offers] == ["idle"] * 3 + ["away"] * 2
    assert offers[-1].gpus == ("0",)


def test_what_is_released_is_given_back(fake: Fake):
    fake.engine.check(fake.cluster)
    item = fake.allocation("a")
    fake.engine.submit(item)
    fake.engine.release(item, followed=False)
    assert fake.calls("release") == [{"name": item.id}]


def test_nodes_that_ray_had_a_while_ago_may_come_back(fake: Fake):
    fake.engine.check(fake.cluster)
    assert fake.engine.trouble(fake.cluster) == ""
    fake.answers(nodes=[node(1)])
    fake.engine._renew(fake.engine._site(fake.cluster))
    offers = fake.engine.nodes(fake.cluster)
    assert [(offer.name, offer.state) for offer in offers] == [("n1", "idle"), ("n2", "away"), ("n3", "away")]


def test_a_gang_whose_nodes_went_with_the_head_holds_up_nobody(fake: Fake):
    fake.engine.check(fake.cluster)
    lost, other = fake.allocation("a", nodes=3), fake.allocation("b", nodes=3)
    fake.engine.submit(lost)
    fake.answers(poll={lost.id: fake.report("up", hosts=["n1", "n2", "n3"])})
    fake.engine.poll([lost])
    waiting = fake.allocation("c", nodes=1)
    fake.answers(poll={})
    fake.engine.poll([lost])
    fake.engine.submit(other)
    fake.engine.submit(waiting)
    assert [call["name"] for call in fake.calls("allocate")] == [lost.id, other.id]


def test_an_agent_that_cannot_reach_the_server_is_told_of(fake: Fake):
    fake.engine.check(fake.cluster)
    item = fake.allocation("a")
    fake.engine.submit(item)
    met = {"host": "n2", "reached": False, "met": {"https://10.0.0.9:1": "refused"}}
    fake.answers(poll={item.id: fake.report("up", unreached={"a.1.0": met})})
    state = fake.engine.poll([item])[item.id]
    assert state.unreached["a.1.0"].trouble == "https://10.0.0.9:1: refused"


def test_a_gang_takes_what_the_cluster_says_and_its_group_is_on_the_run(fake: Fake):
    fake.is_attached(dashboard="http://10.0.0.1:8265")
    fake.answers(nodes=[node(1, resources={"fast_disk": 1}), node(2, resources={"fast_disk": 1}), node(3)])
    options = {**fake.cluster.options, "resources": {"fast_disk": 1}, "gpu_share": 0.25}
    fake.cluster = Cluster("many", "ray", options)
    fake.engine.check(fake.cluster)
    assert [offer.name for offer in fake.engine.nodes(fake.cluster)] == ["n1", "n2"]
    wanted = fake.allocation("a")
    fake.engine.submit(wanted)
    (call,) = fake.calls("allocate")
    assert call["wanted"]["bundles"] == [{"CPU": 1.0, "fast_disk": 1.0, "GPU": 0.25}] * 2
    assert fake.engine.job(fake.allocation("b")) is None
    asked = fake.engine.job(wanted)
    assert asked is not None and asked.id == f"muster:{wanted.id}"
    fake.answers(poll={wanted.id: fake.report("up")})
    fake.engine.poll([wanted])
    job = fake.engine.job(wanted)
    assert job is not None
    assert (job.id, job.state, job.nodes) == (f"muster:{wanted.id}", "up", "n2, n3")
    assert job.link == "http://10.0.0.1:8265"


def test_a_part_of_a_gpu_goes_on_to_ray(fake: Fake):
    fake.is_attached()
    fake.answers(nodes=[node(1), node(2), node(3)])
    fake.engine.check(fake.cluster)
    wanted = fake.allocation("a", nodes=1)
    fake.engine.submit(replace(wanted, gang=replace(wanted.gang, gpus_per_node=1, gpu_share=0.5)))
    (call,) = fake.calls("allocate")
    assert call["wanted"]["bundles"] == [{"CPU": 1.0, "GPU": 0.5}]
