"""Verdicts with all that the server knows: whole logs, stacks, the job's files, and the runs before."""

from __future__ import annotations

from tests.integration.server.conftest import Site, on_both_databases

FLOOD = """
import atexit
atexit.register(lambda: [print("closing shard", n, "of the cache, and flushing it") for n in range(20000)])
raise ValueError("there is no column label")
"""


@on_both_databases
def test_an_exception_before_a_flood_is_found_and_its_likes_are_counted(site: Site) -> None:
    (site.folder / "train.py").write_text(FLOOD)
    first = site.wait(site.run(command="python train.py", code="."))
    assert first["verdict"]["code"] == "exception", first["verdict"]
    assert "ValueError: there is no column label" in first["verdict"]["message"]
    assert "similar" not in first["verdict"]
    second = site.wait(site.run(command="python train.py", code="."))
    assert second["verdict"]["similar"]["runs"] == [first["id"]]


@on_both_databases
def test_a_next_step_names_what_the_server_knows(site: Site) -> None:
    (site.folder / "helpers.py").write_text("def load(): pass\n")
    script = "import os\nif 'GOOD' not in os.environ:\n    from src.helpers import load\n"
    (site.folder / "train.py").write_text(script)
    good = site.run(command="python train.py", code=".", environment_variables={"GOOD": "1"})
    assert site.wait(good)["status"] == "Completed"
    verdict = site.wait(site.run(command="python train.py", code="."))["verdict"]
    assert verdict["code"] == "environment"
    assert "`helpers.py` is next to the script" in verdict["next"]
    assert f"completed in run {good}" in verdict["next"]


def test_a_port_that_the_script_fixes_is_not_retried_as_a_fault_of_the_platform(site: Site) -> None:
    script = "import socket\na = socket.create_server(('', 0))\nport = a.getsockname()[1]\n"
    script += "raise OSError(98, f'Address already in use: port: {port}')\n"
    (site.folder / "train.py").write_text(script)
    job = {"distribution": {"type": "pytorch", "process_count_per_instance": 1}, "retry": {"backoff_s": 0.05}}
    view = site.wait(site.run(command="python train.py", code=".", **job))
    assert view["verdict"]["code"] == "port_trouble"
    assert "fixes port" in view["verdict"]["next"]
    assert len(view["attempts"]) == 1


def test_at_a_time_limit_it_is_said_where_the_rank_was(site: Site) -> None:
    (site.folder / "train.py").write_text("import time\ndef load():\n    time.sleep(600)\nload()\n")
    view = site.wait(site.run(command="python train.py", code=".", limits={"timeout": 3}))
    assert view["verdict"]["code"] == "timeout"
    assert "was at train.py line 3, in load" in view["verdict"]["message"]


def test_a_rank_that_hangs_on_another_node_is_named(site: Site) -> None:
    """Rank 2 hangs; the others, on both nodes, wait in a collective until rank 0 has waited enough."""
    (site.folder / "horovod").mkdir()
    (site.folder / "horovod" / "wait.py").write_text("import time\ndef allreduce():\n    time.sleep(600)\n")
    (site.folder / "train.py").write_text(
        "import os, sys, time\nsys.path.insert(0, 'horovod')\nfrom wait import allreduce\n"
        "rank = int(os.environ['RANK'])\nprint('step 1', flush=True)\n"
        "if rank == 0:\n    time.sleep(2)\n    raise RuntimeError('gloo/transport: Timed out waiting 2000ms')\n"
        "if rank == 2:\n    time.sleep(600)\nallreduce()\n"
    )
    job = {"distribution": {"type": "pytorch", "process_count_per_instance": 2}, "resources": {"instance_count": 2}}
    verdict = site.wait(site.run(command="python train.py", code=".", **job))["verdict"]
    assert (verdict["code"], verdict["rank"]) == ("collective", 2), verdict["message"]
    assert "it was at train.py line 10" in verdict["message"]
    assert verdict["evidence"]["stop_reason"] == "rank_failed"
