"""Gangs whose nodes reach the server over a network that fails."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.chaos import processes
from tests.chaos.checks import Expected
from tests.chaos.stage import Stage
from tests.chaos.trial import Fault, Scene
from tests.chaos.waiting import until
from tests.sites.network import NetworkSite

_MOMENTS = ("begun", "flowing", "middle", "last")
_TWO = ((2, 1),)


@dataclass
class NetworkStage(Stage):
    """Agents in namespaces of their own, over TLS."""

    name: str = "network"
    engine: str = "local"
    compute: dict[str, str] = field(default_factory=lambda: {"compute": "farm"})  # type: ignore[assignment]

    def configure(self) -> None:
        super().configure()
        self.network = NetworkSite(3)
        self._stack.callback(self.network.close)
        self.network.start()
        config = self.folder / ".muster" / "workspace.json"
        engines = {"fake": "muster.testing.engine:FakeEngine"}
        config.write_text(json.dumps({**json.loads(config.read_text()), "engines": engines}))

    def join(self) -> None:
        switches = self.home / "switches"
        switches.mkdir()
        options = {
            "folder": str(switches),
            "max_nodes": 3,
            "addresses": self.network.addresses,
            "namespaces": self.network.hosts,
            "server_address": self.network.server_address,
        }
        self.client.create_cluster("farm", "fake", options)


def _site(scene: Scene) -> NetworkSite:
    assert isinstance(scene.stage, NetworkStage)
    return scene.stage.network


def _victim(scene: Scene) -> tuple[str, str]:
    """A node of the gang, and the namespace that it is in."""
    node = str(scene.stage.ranks(scene.run_id)[scene.any_rank()].node)
    return node, _site(scene).hosts[int(node.rpartition("-")[2])]


def _for_a_while(scene: Scene, spoil: Callable[[str], None], most_s: float = 6.0) -> Expected:
    site, (_, host) = _site(scene), _victim(scene)
    spoil(host)
    timer = threading.Timer(scene.chance.uniform(0.5, most_s), lambda: site.heal(host))
    timer.start()
    scene.undo.append(timer.join)
    return Expected()


def cut_shortly(scene: Scene) -> Expected:
    return _for_a_while(scene, _site(scene).cut)


def lost_one_way(scene: Scene) -> Expected:
    direction = scene.chance.choice(("in", "out"))
    return _for_a_while(scene, lambda host: _site(scene).lose(host, direction))


def lossy(scene: Scene) -> Expected:
    share = scene.chance.uniform(0.1, 0.5)
    return _for_a_while(scene, lambda host: _site(scene).lose(host, "both", share))


def slow(scene: Scene) -> Expected:
    kbit = scene.chance.choice((32, 128, 512))
    return _for_a_while(scene, lambda host: _site(scene).slow(host, kbit))


def cut_for_good(scene: Scene) -> Expected:
    """Until the server has given the node up; then it comes back, and has nothing to say."""
    site, (node, host) = _site(scene), _victim(scene)
    site.cut(host)
    until(lambda: scene.stage.client.run(scene.run_id).attempts[0].verdict, "the verdict on a node that was cut off")
    site.heal(host)
    return scene.fails("node_lost", node=node)


NETWORK = (
    Fault("a link cut for a while", cut_shortly, _MOMENTS, _TWO),
    Fault("a link that loses one direction", lost_one_way, _MOMENTS, _TWO),
    Fault("a lossy link", lossy, _MOMENTS, _TWO),
    Fault("a slow link", slow, _MOMENTS, _TWO),
    Fault("a node cut off", cut_for_good, ("begun", "middle"), _TWO),
    Fault("a rank killed", processes.rank_killed, _MOMENTS, _TWO),
    Fault("a keeper killed", processes.keeper_killed, _MOMENTS, _TWO),
)
