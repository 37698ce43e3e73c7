"""From outside of a cluster's subnet no port of its nodes answers: namespaces as nodes, and a stranger beside them.

The stranger is on the same wire, with a way to every node and back, so that nothing but the ports keeps it out.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.conftest import MUSTER, wait_until
from tests.integration.server.conftest import Site
from tests.sites.network import NetworkSite

from muster.client.connect import connect
from muster.client.workspace import find_workspace

# Listens as torch's store does: on every interface, with both kinds of addresses.
RANK = """
import os, socket, sys, time
if os.environ["RANK"] == "0":
    store = socket.create_server(("::", int(os.environ["MASTER_PORT"])), family=socket.AF_INET6, dualstack_ipv6=True)
else:
    while True:
        try:
            socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 60).close()
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
print("together", flush=True)
time.sleep(600)
"""
DIAL = """
import json, socket, sys
def answers(target):
    try:
        socket.create_connection(target, 1.5).close()
    except TimeoutError:
        return False
    except ConnectionRefusedError:
        return None
    return True
print(json.dumps([answers(tuple(target)) for target in json.loads(sys.argv[1])]))
"""


@pytest.fixture(scope="module")
def network() -> Iterator[NetworkSite]:
    if os.getuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    made = NetworkSite(hosts=3)
    made.start()
    *nodes, stranger = made.hosts
    subnet = subnet_of(made)
    # Of another network, and different for every site on this machine.
    elsewhere = f"198.18.{made.server_address.split('.')[2]}.7/32"
    try:
        run("ip", "-n", stranger, "addr", "flush", "dev", "eth0")
        run("ip", "-n", stranger, "addr", "add", elsewhere, "dev", "eth0")
        run("ip", "-n", stranger, "route", "add", subnet, "dev", "eth0")
        for host in nodes:
            run("ip", "-n", host, "route", "add", elsewhere, "dev", "eth0")
        run("ip", "route", "add", elsewhere, "dev", f"{made.hosts[0][:-1]}0")
        yield made
    finally:
        made.close()


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def subnet_of(network: NetworkSite) -> str:
    return network.server_address.rpartition(".")[0] + ".0/24"


@pytest.fixture
def site(workspace: Path, network: NetworkSite) -> Iterator[Site]:
    config = workspace / ".muster" / "workspace.json"
    engines = {"fake": "muster.testing.engine:FakeEngine"}
    more = {"engines": engines, "grants": {"subnet": subnet_of(network)}}
    config.write_text(json.dumps({**json.loads(config.read_text()), **more}))
    client = connect(find_workspace(workspace))
    (workspace / "farm").mkdir()
    options = {
        "folder": str(workspace / "farm"), "max_nodes": 2, "addresses": network.addresses[:2],
        "namespaces": network.hosts[:2], "server_address": network.server_address, "subnet": subnet_of(network),
    }  # fmt: skip
    client.create_cluster("farm", "fake", options)
    yield Site(workspace, client)
    client.close()


def listening(host: str) -> set[int]:
    """Ports that something listens on in a namespace, on other addresses than loopback."""
    shown = subprocess.run(["ip", "netns", "exec", host, "ss", "-ltnH"], capture_output=True, text=True, check=True)
    places = [line.split()[3].rpartition(":") for line in shown.stdout.splitlines()]
    return {int(port) for place, _, port in places if not place.startswith(("127.", "[::1]"))}


def dial(host: str, targets: list[tuple[str, int]]) -> list[bool | None]:
    """Whether each answers, asked from a namespace; None: it says that nobody listens."""
    command = ["ip", "netns", "exec", host, sys.executable, "-c", DIAL, json.dumps(targets)]
    found: list[bool | None] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


def muster(site: Site, *words: str) -> str:
    done = subprocess.run([MUSTER, *words], cwd=site.folder, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


def start_gang(site: Site, source: str) -> str:
    """Two nodes that take their input from each other and have met at the rendezvous port."""
    gang = site.run(
        command=["python", "-c", RANK],
        compute="farm",
        distribution={"type": "pytorch"},
        resources={"instance_count": 2},
        inputs={"data": {"type": "uri_file", "path": source, "mode": "download"}},
    )
    wait_until(lambda: b"together" in log_of(site, gang), 120, "ranks that have met")
    return gang


def log_of(site: Site, run_id: str) -> bytes:
    view = site.view(run_id)
    assert view["status"] not in ("Failed", "Canceled"), view["verdict"]
    ranks = view["attempts"][-1]["ranks"] if view["attempts"] else []
    kept = {file.path for file in site.client.files(run_id)}
    return b"".join(site.log(run_id, rank["log"]) for rank in ranks[1:] if rank["log"] in kept)


def start_endpoint(site: Site, *more: str) -> dict[str, Any]:
    (site.folder / "src").mkdir()
    (site.folder / "src" / "score.py").write_text("def init():\n    pass\n\ndef run(data):\n    return 1\n")
    (site.folder / "blue.yml").write_text(
        "name: blue\nendpoint_name: digits\ncompute: farm\ncode_configuration: {code: src, scoring_script: score.py}\n"
    )
    muster(site, "endpoint", "create", "digits", "--compute", "farm", *more)
    muster(site, "endpoint", "deploy", "-f", "blue.yml", "--all-traffic")
    found: dict[str, Any] = json.loads(muster(site, "endpoint", "show", "digits", "--json"))
    return found


def test_no_port_of_a_node_answers_a_stranger(site: Site, network: NetworkSite) -> None:
    *nodes, stranger = network.hosts
    (site.folder / "x.bin").write_bytes(bytes(20 << 20))
    muster(site, "data", "cp", "x.bin", "azureml://datastores/workspaceblobstore/paths/x.bin")
    gang = start_gang(site, "azureml://datastores/workspaceblobstore/paths/x.bin")
    endpoint = start_endpoint(site)
    addresses = dict(zip(nodes, network.addresses, strict=False))
    places = [(addresses[node], port) for node in nodes for port in sorted(listening(node))]
    # A rendezvous port, what serves blocks on both nodes, a replica and a front door.
    assert len(places) >= 5 and len({address for address, _ in places}) == 2, places
    door = urlsplit(endpoint["scoring_uri"])
    assert (door.hostname, door.port) in places
    for node in nodes:
        others = [place for place in places if place[0] != addresses[node]]
        assert dial(node, others) == [True] * len(others), others
    # Nothing, not even that nobody is there.
    assert dial(stranger, places) == [False] * len(places)
    agents = [(network.server_address, port) for port in agents_ports(site)]
    assert agents and dial(stranger, agents) == [False] * len(agents)
    assert dial(nodes[0], agents) == [True] * len(agents)
    site.client.cancel(gang)


def agents_ports(site: Site) -> list[int]:
    """What the server listens on for agents of other machines."""
    server = site.server()
    return [item.laddr.port for item in server.net_connections("tcp") if item.status == "LISTEN"]
