"""What a node finds out about itself where its engine could not know."""

from __future__ import annotations

import socket

from muster.agent.identity import filled_in, host_name, machine, own_address, visible_gpus
from muster.wire.node.agents import AgentConfig

CONFIG = AgentConfig("n", "c", "/root", ("https://127.0.0.1:8910",), "token", address="")


def test_the_address_is_the_one_from_which_the_server_is_reached():
    assert filled_in(CONFIG, {}).address == "127.0.0.1"
    assert own_address(("file:/shared",)) != ""


def test_what_the_engine_knows_stays():
    given = AgentConfig("n", "c", "/root", (), "token", address="10.1.2.3", gpus=("0",))
    assert filled_in(given, {"CUDA_VISIBLE_DEVICES": "4,5"}) == given


def test_gpus_are_those_that_the_node_was_given():
    assert filled_in(CONFIG, {"CUDA_VISIBLE_DEVICES": "2,3"}).gpus == ("2", "3")
    assert filled_in(CONFIG, {}).gpus is None
    assert [visible_gpus(text) for text in ("", "-1", "NoDevFiles", "GPU-a,MIG-b", "0,-1,1")] == [
        (), (), (), ("GPU-a", "MIG-b"), ("0",),
    ]  # fmt: skip


def test_the_managers_name_of_the_machine_goes_before_its_own():
    assert host_name({"MUSTER_AGENT_HOST": "gpu07"}) == "gpu07"


def test_agents_on_one_machine_with_one_host_name_say_the_same():
    assert machine() == machine()
    assert machine().endswith(f"/{socket.gethostname()}")
