"""Who may enter a run, which node is meant, and how many tunnels there may be."""

from __future__ import annotations

import asyncio

import pytest

from muster import errors
from muster.control.access import Action, Caller, may
from muster.defaults import TUNNELS_MOST, TUNNELS_PER_NODE
from muster.server.tunnels import state
from muster.server.tunnels.lookup import Running, RunningNode, chosen_node
from muster.server.tunnels.state import Tunnels, refuse_too_many
from muster.wire.tunnels import NOT_STARTED_YET, NewTunnel, Terminal, TunnelTarget

RUN = "bert-1"
NODES = {0: RunningNode("n0", (0, 1)), 1: RunningNode("n1", (2, 3))}
SHELL = TunnelTarget("shell")
OWNER = Caller("admin", "owner")


@pytest.mark.parametrize(
    ("role", "name", "allowed"),
    [("admin", "bob", True), ("member", "ada", True), ("member", "bob", False), ("reader", "ada", False)],
)
def test_a_run_is_entered_by_its_owner_and_by_administrators(role: str, name: str, allowed: bool) -> None:
    assert may(Caller(role, name), Action.ENTER_RUN, "ada") is allowed  # type: ignore[arg-type]


def running(nodes: dict[int, RunningNode], status: str = "Running") -> Running:
    return Running(RUN, status, 1, 2, nodes)


def test_a_rank_is_on_its_node() -> None:
    assert chosen_node(running(NODES), NewTunnel(TunnelTarget("shell", 3))) == 1
    assert chosen_node(running(NODES), NewTunnel(SHELL)) == 0
    assert chosen_node(running(NODES), NewTunnel(TunnelTarget("stacks"), 1)) == 1
    with pytest.raises(errors.NotFound, match=r"has no rank 4[^$]*Its ranks are 0 to 3"):
        chosen_node(running(NODES), NewTunnel(TunnelTarget("shell", 4)))
    with pytest.raises(errors.NotFound, match="node 7"):
        chosen_node(running(NODES), NewTunnel(SHELL, 7))


@pytest.mark.parametrize(("status", "code"), [("Queued", NOT_STARTED_YET), ("Completed", "conflict")])
def test_a_run_without_ranks_says_how_it_stands(status: str, code: str) -> None:
    with pytest.raises(errors.Conflict, match=f"bert-1 is {status}") as caught:
        chosen_node(running({}, status), NewTunnel(SHELL))
    assert caught.value.code == code


def test_there_are_limits() -> None:
    refuse_too_many(TUNNELS_MOST - 1, TUNNELS_PER_NODE - 1, "n0")
    with pytest.raises(errors.Conflict, match="this server has"):
        refuse_too_many(TUNNELS_MOST, 0, "n0")
    with pytest.raises(errors.Conflict, match="lead to node n0"):
        refuse_too_many(TUNNELS_PER_NODE, TUNNELS_PER_NODE, "n0")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: TunnelTarget("port"),
        lambda: TunnelTarget("port", port=70_000),
        lambda: TunnelTarget("shell", -1),
        lambda: TunnelTarget("shell", command=("a\0b",)),
        lambda: TunnelTarget("shell", command=("x" * 40_000,)),
        lambda: Terminal(-1, 10),
    ],
)
def test_a_target_is_checked_at_the_border(wrong: object) -> None:
    with pytest.raises(ValueError):
        wrong()  # type: ignore[operator]


def test_a_tunnel_waits_for_its_node_alone_and_says_what_that_says() -> None:
    async def story() -> None:
        tunnels = Tunnels()
        tunnel = tunnels.open("bert-1", 1, "n0", SHELL, OWNER)
        assert [order.id for order in tunnels.waiting_for("n0")] == [tunnel.order.id]
        assert tunnels.waiting_for("n1") == ()
        with pytest.raises(errors.NotFound):
            tunnels.from_node(tunnel.order.id, "n1", lambda _: None)  # type: ignore[arg-type, return-value]
        with pytest.raises(errors.NotFound):
            await tunnels.node_end(tunnel.order.id, Caller("user", "somebody else"))
        tunnels.refuse(tunnel.order.id, "n1", "not yours", "")
        tunnels.refuse(tunnel.order.id, "n0", "no streams here", "a hint")
        assert tunnels.waiting_for("n0") == ()
        with pytest.raises(errors.Conflict, match="no streams here"):
            await tunnels.node_end(tunnel.order.id, OWNER)
        with pytest.raises(errors.NotFound):
            await tunnels.node_end(tunnel.order.id, OWNER)

    asyncio.run(story())


def test_a_tunnel_ends_with_the_token_that_it_was_opened_with() -> None:
    async def story() -> None:
        tunnels = Tunnels()
        hers = tunnels.open("bert-1", 1, "n0", SHELL, Caller("member", "ada", "t1"))
        others = tunnels.open("bert-1", 1, "n0", SHELL, OWNER)
        tunnels.keep(lambda caller: caller != hers.caller)
        assert [order.id for order in tunnels.waiting_for("n0")] == [others.order.id]
        tunnels.close()

    asyncio.run(story())


def test_a_node_that_does_not_come_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "TUNNEL_DIAL_S", 0.01)

    async def story() -> None:
        tunnels = Tunnels()
        tunnel = tunnels.open("bert-1", 1, "n0", SHELL, OWNER)
        with pytest.raises(errors.Conflict, match="node n0 did not answer"):
            await tunnels.node_end(tunnel.order.id, OWNER)
        assert tunnels.waiting_for("n0") == ()

    asyncio.run(story())
