"""Jobs in containers, with podman and an image that has python3 and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import Any

import psutil
import pytest
from tests.conftest import MUSTER, wait_until
from tests.integration.containers.conftest import Site, containers

from muster.errors import JobError, NotFound

# Ranks that find each other as PyTorch's do, and add up their numbers.
GANG = """
import json, os, socket, sys, time
from muster import Run

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
master = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    server = socket.create_server(master)
    others = [server.accept()[0] for _ in range(world - 1)]
    total = sum(int(other.recv(10)) for other in others)
    for other in others:
        other.sendall(str(total).encode())
else:
    while True:
        try:
            line = socket.create_connection(master)
            break
        except OSError:
            time.sleep(0.05)
    line.sendall(str(rank).encode())
    total = int(line.recv(10))
Run.get_context().log("total", total)
os.makedirs("outputs", exist_ok=True)
shm = os.statvfs("/dev/shm")
with open(f"outputs/rank_{rank}.json", "w") as file:
    json.dump({"total": total, "parent": os.getppid(), "uid": os.getuid(), "host": open("/etc/hostname").read(),
               "shm": shm.f_blocks * shm.f_frsize, "input": open(os.environ["MUSTER_INPUT_data"]).read(),
               "prefix": sys.prefix, "home": os.path.isdir(os.environ["HOME"])}, file)
with open(os.path.join(os.environ["MUSTER_CHECKPOINT_DIR"], f"rank_{rank}"), "w") as file:
    file.write("kept")
print("total", total)
"""

WAITS = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("told to stop", flush=True), sys.exit(3)))
subprocess.Popen(["sleep", "1000"], start_new_session=True)
print("waiting", flush=True)
while True:
    time.sleep(0.1)
"""


def submit(site: Site, image: str, script: str, **job: Any) -> str:
    code = site.folder / "code"
    code.mkdir(exist_ok=True)
    (code / "train.py").write_text(script)
    return site.run(code="code", command="python train.py", environment={"image": image}, **job)


def children_inside(site: Site) -> list[psutil.Process]:
    """The processes of this site's only container."""
    (container,) = containers(site)
    return [psutil.Process(pid) for pid in _pids(container)]


def waits(site: Site, run: str) -> bool:
    try:
        return b"waiting" in site.log(run)
    except NotFound:
        return False


def test_a_gang_on_two_nodes_runs_in_containers(boxes: Site, image: str) -> None:
    (boxes.folder / "numbers.txt").write_text("1 2 3")
    run = submit(
        boxes,
        image,
        GANG,
        resources={"instance_count": 2, "shm_size": "32m"},
        distribution={"type": "pytorch", "process_count_per_instance": 2},
        inputs={"data": {"type": "uri_file", "path": "numbers.txt"}},
    )
    view = boxes.wait(run)
    assert view["status"] == "Completed", view["verdict"]
    found = json.loads(boxes.client.read_file(run, "outputs/rank_3.json"))
    assert found["total"] == 6
    assert found["parent"] == 1, "the keeper is process 1"
    assert found["uid"] == os.getuid()
    assert found["shm"] == 32 << 20
    assert found["input"] == "1 2 3"
    assert found["prefix"] == "/usr"
    assert found["home"] is True
    assert b"total 6" in boxes.log(run, "user_logs/std_log_process_2.txt")
    assert view["environment"]["python"].startswith("3.")
    assert "total" in {point.name for point in boxes.client.metrics(run)}


def test_a_cancelled_job_gets_its_grace_and_leaves_no_container(boxes: Site, image: str) -> None:
    run = submit(boxes, image, WAITS)
    wait_until(lambda: waits(boxes, run), 20.0, "its first line")
    assert len(containers(boxes)) == 1
    boxes.client.cancel(run)
    assert boxes.wait(run)["status"] == "Canceled"
    assert b"told to stop" in boxes.log(run)


def test_a_killed_agent_leaves_no_container(boxes: Site, image: str) -> None:
    run = submit(boxes, image, WAITS, retry={"node_loss": 0})
    wait_until(lambda: waits(boxes, run), 20.0, "its first line")
    inside = _pids(containers(boxes)[0])
    assert len(inside) >= 3
    boxes.agent().kill()
    wait_until(lambda: not any(map(psutil.pid_exists, inside)), 20.0, "every process of the container gone")
    assert boxes.wait(run)["verdict"]["code"] == "node_lost"


def test_a_killed_agent_with_nursery_and_keeper_leaves_no_container(boxes: Site, image: str) -> None:
    run = submit(boxes, image, WAITS, retry={"node_loss": 0, "platform": 0})
    wait_until(lambda: waits(boxes, run), 20.0, "its first line")
    inside = _pids(containers(boxes)[0])
    agent = boxes.agent()
    for process in [agent, *agent.children(recursive=True)]:
        # The container itself is left to what is inside it and to the next agent.
        if process.pid not in inside and "conmon" not in process.name():
            process.kill()
    wait_until(lambda: not any(map(psutil.pid_exists, inside)), 20.0, "every process of the container gone")
    boxes.wait(run)
    again = boxes.run(command="true")
    assert boxes.wait(again)["status"] == "Completed"
    wait_until(lambda: not containers(boxes), 20.0, "the next agent has removed it")


def test_a_killed_keeper_inside_ends_the_container_with_a_verdict(boxes: Site, image: str) -> None:
    run = submit(boxes, image, WAITS)
    wait_until(lambda: waits(boxes, run), 20.0, "its first line")
    os.kill(min(_pids(containers(boxes)[0])), signal.SIGKILL)
    view = boxes.wait(run)
    assert view["status"] == "Failed"
    assert view["verdict"]["code"] == "signal", view["verdict"]


def test_a_killed_keeper_outside_ends_the_container(boxes: Site, image: str) -> None:
    run = submit(boxes, image, WAITS, retry={"platform": 0})
    wait_until(lambda: waits(boxes, run), 20.0, "its first line")
    inside = _pids(containers(boxes)[0])
    (keeper,) = boxes.nursery().children()
    keeper.kill()
    wait_until(lambda: not any(map(psutil.pid_exists, inside)), 20.0, "every process of the container gone")
    assert boxes.wait(run)["status"] == "Failed"
    wait_until(lambda: not containers(boxes), 20.0, "the agent has removed it")


def test_a_container_goes_with_its_run_though_the_engines_own_processes_were_killed(boxes: Site, image: str) -> None:
    script = "import os, time\nprint('waiting', flush=True)\nwhile not os.path.exists('go'):\n    time.sleep(0.05)\n"
    run = submit(boxes, image, script)
    wait_until(lambda: waits(boxes, run), 20.0, "its first line")
    (keeper,) = boxes.nursery().children()
    # The program that started the container, and the one that watches over it.
    killed = keeper.children()
    assert killed
    for process in killed:
        process.kill()
    (work,) = boxes.folder.glob(f".muster/nodes/*/attempts/{run}.1/work")
    (work / "go").touch()
    boxes.wait(run)
    wait_until(lambda: not containers(boxes), 20.0, "the container is removed")


def test_more_memory_than_the_limit_is_out_of_memory_and_not_of_others(boxes: Site, image: str) -> None:
    other = submit(boxes, image, WAITS)
    wait_until(lambda: waits(boxes, other), 20.0, "its first line")
    hungry = "block = []\nwhile True:\n    block.append(b'x' * (1 << 20))\n"
    run = submit(boxes, image, hungry, resources={"docker_args": "--memory 64m --memory-swap 64m"})
    view = boxes.wait(run)
    assert view["status"] == "Failed"
    assert view["verdict"]["code"] == "host_oom", view["verdict"]
    (rank,) = (process for process in children_inside(boxes) if "train.py" in process.cmdline())
    rank.kill()
    verdict = boxes.wait(other)["verdict"]
    assert verdict["code"] == "signal"
    assert verdict["message"].startswith("rank 0 on local-0 was ended by SIGKILL")


def test_an_image_without_mpi_is_told_before_an_mpi_job_starts(boxes: Site, image: str) -> None:
    run = submit(boxes, image, "print('never')", distribution={"type": "mpi"})
    verdict = boxes.wait(run)["verdict"]
    assert verdict["code"] == "launcher_missing"
    assert f"the image {image} has no mpirun" in json.dumps(verdict)


def test_an_image_that_is_nowhere_is_refused_at_submission(boxes: Site) -> None:
    with pytest.raises(JobError, match=r"127.0.0.1:9/none/such:1 cannot be used: .* cannot be reached") as refused:
        boxes.run(command="true", environment={"image": "127.0.0.1:9/none/such:1"})
    assert "Check its name and the network" in refused.value.hint


def _pids(name: str) -> set[int]:
    """Processes of a container, as the host numbers them."""
    first = subprocess.run(
        ["podman", "inspect", "--format", "{{.State.Pid}}", name], capture_output=True, text=True, check=True
    ).stdout
    keeper = psutil.Process(int(first))
    return {keeper.pid, *(child.pid for child in keeper.children(recursive=True))}


def test_somebody_enters_the_container(boxes: Site, image: str) -> None:
    """A shell has the image's files and the rank's folder; stacks come without py-spy, by the rank's own handler."""
    run = submit(boxes, image, WAITS)
    wait_until(lambda: waits(boxes, run), 30.0, "its first line")
    look = "import os, sys; print(sys.prefix, os.getcwd(), os.environ['MUSTER_RUN_ID'], os.getppid())"
    done = subprocess.run(
        [MUSTER, "shell", run, "--", "python3", "-c", look],
        cwd=boxes.folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    prefix, folder, named, _ = done.stdout.split()
    assert (prefix, named) == ("/usr", run) and folder.endswith(f"{run}.1/work"), done.stderr
    _, report = boxes.client.stacks(run)
    assert report.how == "faulthandler", "the image has no py-spy"
    assert report.processes[0].threads[0].frames[-1].function == "<module>"
    boxes.client.cancel(run, force=True)
    boxes.wait(run)
