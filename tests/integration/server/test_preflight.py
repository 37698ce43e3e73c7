"""What a node lacks is said before ranks start, and nothing is left running."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

from tests.conftest import MUSTER
from tests.integration.server.conftest import Site

PER_PROCESS = {"type": "pytorch", "process_count_per_instance": 2}


def test_what_a_node_lacks_is_refused_before_anything_starts(site: Site) -> None:
    """A launcher that is not installed, a port that is taken, an interface that does not exist."""
    view = site.wait(site.run(command="horovodrun -np 2 python train.py"))
    assert view["verdict"]["code"] == "launcher_missing"
    assert "the command begins with horovodrun, which is not installed" in view["verdict"]["message"]
    assert "pip install horovod" in view["verdict"]["message"]
    assert all(rank["state"] == "waiting" for rank in view["attempts"][-1]["ranks"])

    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        variables = {"MASTER_PORT": str(port)}
        job = {"command": "echo started", "distribution": PER_PROCESS, "retry": {"platform": 0}}
        view = site.wait(site.run(**job, environment_variables=variables))
    assert view["verdict"]["code"] == "port_trouble"
    assert f"MASTER_PORT is {port} as the job asks, and another program listens there" in view["verdict"]["message"]
    assert view["attempts"][-1]["ranks"] == []

    variables = {"NCCL_SOCKET_IFNAME": "nosuch0"}
    view = site.wait(site.run(command="true", distribution=PER_PROCESS, environment_variables=variables))
    assert view["verdict"]["code"] == "bad_input"
    assert "NCCL_SOCKET_IFNAME is 'nosuch0'" in view["verdict"]["message"]


def test_a_plain_script_runs_where_the_framework_is_missing_and_says_so(site: Site, tmp_path: Path) -> None:
    (site.folder / "plain.py").write_text("print('no framework needed')")
    made = subprocess.run(["python3", "-m", "venv", "--without-pip", tmp_path / "bare"], check=False)
    assert made.returncode == 0
    done = subprocess.run(
        [MUSTER, "run", "job.yml"],
        cwd=_job(site.folder, tmp_path / "bare/bin/python"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "no framework needed" in done.stdout
    assert "has no torch (install it there with pip install torch" in done.stderr


def _job(folder: Path, python: Path) -> Path:
    (folder / "job.yml").write_text(
        "code: .\ncommand: python plain.py\n"
        f"environment: {{python: {python}}}\n"
        "distribution: {type: pytorch, process_count_per_instance: 2}\n"
    )
    return folder


def test_the_doctor_measures_simulated_nodes_and_says_when_it_cannot(site: Site) -> None:
    done = subprocess.run(
        [MUSTER, "doctor", "--nodes", "2"], cwd=site.folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "local-0 and local-1" in done.stdout
    assert "a second node adds nothing to its speed" in done.stdout
    command = [MUSTER, "doctor", "--nodes", "2", "--compute", "nowhere"]
    done = subprocess.run(command, cwd=site.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "nowhere" in done.stderr
