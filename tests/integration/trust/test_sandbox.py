"""What a rank in a sandbox can reach, tried from inside; and that all else works there as it does outside."""

from __future__ import annotations

import json
import os
import shutil
import signal
import textwrap
from pathlib import Path

import pytest
from tests.conftest import processes_of, wait_until
from tests.integration.containers.ordinary_user import ID, ordinary_user
from tests.integration.trust.conftest import Site

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="not installed: bubblewrap")

LOOK = """
import json, os, signal, socket, sys, urllib.request
from muster import Run

def opens(path):
    try:
        return os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(64).hex()
    except OSError as error:
        return error.strerror

asked = json.loads(os.environ["ASKED"])
found = {path: opens(path) for path in asked["paths"]}
found["socket"] = socket.socket(socket.AF_UNIX).connect_ex(asked["socket"])
try:
    os.kill(asked["pid"], signal.SIGTERM)
    found["signal"] = "sent"
except OSError as error:
    found["signal"] = error.strerror
found["processes"] = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
found["uid"], found["home"] = os.getuid(), os.environ["HOME"]
found["parent"] = open("/proc/1/environ").read()
found["input"] = open(os.environ["MUSTER_INPUT_data"]).read()

def mlflow(path):
    address = os.environ["MLFLOW_TRACKING_URI"] + path
    headers = {"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]}
    return json.load(urllib.request.urlopen(urllib.request.Request(address, headers=headers)))

me = os.environ["MLFLOW_RUN_ID"]
found["mlflow"] = mlflow("/api/2.0/mlflow/runs/get?run_id=" + me)["run"]["info"]["run_id"]
run = Run.get_context()
run.log("loss", 0.5)
with open("outputs/found.json", "w") as file:
    json.dump(found, file)
run.upload_file("copy.json", "outputs/found.json")
os.makedirs("/tmp/scratch")
place = os.environ["MUSTER_CHECKPOINT_DIR"]
with open(place + "/.one.pt", "w") as file:
    file.write("weights")
os.rename(place + "/.one.pt", place + "/one.pt")
"""

STEAL = """
import json, os, urllib.error, urllib.request
key, folder, log = os.environ["KEY"], os.environ["FOLDER"], os.environ["MUSTER_EVENTS_FILE"]
streams = os.path.dirname(os.path.dirname(log))
print("before", flush=True)
for place in ("outputs", "logs", os.environ["MUSTER_UPLOADS_DIR"], os.environ["MUSTER_CHECKPOINT_DIR"]):
    os.symlink(key, f"{place}/key")
    os.symlink(folder, f"{place}/folder")
    os.symlink("../../order.json", f"{place}/order")

def artifact(method, name):
    run = os.environ["MLFLOW_RUN_ID"]
    address = f"{os.environ['MLFLOW_TRACKING_URI']}/api/2.0/mlflow-artifacts/artifacts/0/{run}/artifacts/{name}"
    headers = {"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]}
    data = b"overwritten" if method == "PUT" else None
    try:
        urllib.request.urlopen(urllib.request.Request(address, data, headers, method=method)).read()
    except urllib.error.HTTPError as error:
        return error.code
    raise SystemExit(f"{method} {name} was let through")

print([artifact("GET", "key"), artifact("GET", "folder/admin.token"), artifact("PUT", "folder/admin.token")])
os.makedirs(os.environ["MUSTER_CHECKPOINT_DIR"] + "/model")
os.symlink(key, os.environ["MUSTER_CHECKPOINT_DIR"] + "/model/key")
for name in ("user_logs/std_log.txt", "user_logs/more.txt", "events/rank_0.jsonl", "events/node_0.jsonl"):
    if os.path.lexists(f"{streams}/{name}"):
        os.unlink(f"{streams}/{name}")
    os.symlink(key, f"{streams}/{name}")
for own in ("work", "streams", "uploads"):
    try:
        os.rename(os.path.dirname(streams) + "/" + own, os.path.dirname(streams) + "/" + own + "-away")
    except OSError as error:
        pass
    else:
        raise SystemExit(f"{own} could be exchanged")
"""


def test_a_rank_sees_its_own_and_nothing_else_of_the_node(site: Site) -> None:
    first = site.run(command="sleep 600")
    site.wait(first, "Running")
    server, root = site.folder / ".muster" / "server", site.folder / ".muster"
    (site.folder / "data.txt").write_text("numbers")
    (site.folder / "look.py").write_text(LOOK)
    attempts = root / "nodes" / "local-0" / "attempts"
    hidden = [server / "workspace.key", server / "admin.token", server / "muster.db", root / "store", server]
    hidden += [attempts / f"{first}.1", Path(os.environ["HOME"]) / "x", Path("/etc/shadow"), Path("/root/.bashrc")]
    asked = {
        "paths": [str(path) for path in hidden],
        "socket": site.client.address.url.removeprefix("unix:"),
        "pid": site.rank(first).pid,
    }
    run = site.run(
        command="python look.py",
        code=".",
        isolation="sandbox",
        inputs={"data": {"type": "uri_file", "path": str(site.folder / "data.txt")}},
        environment_variables={"ASKED": json.dumps(asked)},
    )
    view = site.wait(run)
    assert view["status"] == "Completed", site.log(run)
    found = json.loads(site.client.read_file(run, "outputs/found.json"))
    for path in hidden:
        assert found[str(path)] in ("No such file or directory", "Permission denied"), path
    assert found["mlflow"] == run
    assert found["socket"] != 0 and found["signal"] != "sent"
    assert len(found["processes"]) == 2 and "TOKEN" not in found["parent"] and "HOME" not in found["parent"]
    assert found["uid"] != 0 and found["home"].endswith("/home") and found["input"] == "numbers"
    assert site.client.read_file(run, "copy.json") == site.client.read_file(run, "outputs/found.json")
    assert [point.value for point in site.client.metrics(run) if point.name == "loss"] == [0.5]
    assert [item.path for item in site.client.files(run, checkpoints=True) if item.path.endswith("one.pt")]
    assert site.view(first)["status"] == "Running"
    site.client.cancel(first, force=True)
    site.wait(first)


def test_links_that_a_rank_leaves_lead_the_agent_nowhere(site: Site) -> None:
    key = site.folder / ".muster" / "server" / "admin.token"
    before = key.read_bytes()
    (site.folder / "steal.py").write_text(STEAL)
    variables = {"KEY": str(key), "FOLDER": str(key.parent)}
    run = site.run(command="python steal.py && sleep 3", code=".", isolation="sandbox", environment_variables=variables)
    view = site.wait(run)
    assert view["status"] == "Completed", view
    names = [item.path for item in site.client.files(run, checkpoints=True)]
    kept = {name: site.client.read_file(run, name) for name in names}
    assert not [name for name, content in kept.items() if before.strip() in content]
    assert not [name for name, content in kept.items() if b"run_token" in content]
    assert not [name for name in names if "muster.db" in name or name.endswith("/order")]
    assert key.read_bytes() == before


def test_an_mpi_job_on_two_nodes_runs_in_sandboxes(site: Site) -> None:
    run = site.run(
        command="echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE uid $(id -u); ls -d /root/.ssh 2>&1; true",
        isolation="sandbox",
        resources={"instance_count": 2},
        distribution={"type": "mpi", "process_count_per_instance": 1},
    )
    view = site.wait(run)
    logs = b"".join(site.log(run, f"user_logs/std_log_process_{rank}.txt") for rank in range(2))
    assert view["status"] == "Completed" and b"rank 0 of 2" in logs and b"rank 1 of 2" in logs, logs
    assert b"uid 0\n" not in logs and logs.count(b"cannot access") == 2


@pytest.mark.parametrize("victim", ["keeper", "agent"])
def test_nothing_is_left_of_a_sandbox_whose_keeper_or_agent_is_killed(site: Site, victim: str) -> None:
    run = site.run(
        command="setsid sleep 12345 & sleep 12345", isolation="sandbox", retry={"platform": 0, "node_loss": 0}
    )
    site.wait(run, "Running")
    found = wait_until(lambda: [item for item in processes_of(site.folder) if "sleep" in " ".join(item.cmdline())], 20)
    below = site.agent().children(recursive=True)
    killed = site.agent() if victim == "agent" else next(item for item in below if item.name() == "muster-keeper")
    killed.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(item.is_running() and item.status() != "zombie" for item in found), 30.0, "their end")
    assert site.wait(run)["status"] == "Failed"


def test_an_ordinary_users_job_runs_in_a_sandbox() -> None:
    if os.getuid() != 0:
        pytest.skip("every other test is run by an ordinary user already")
    with ordinary_user(0, {}) as user:
        folder = user.home / "w"
        folder.mkdir()
        (folder / "look.py").write_text(
            textwrap.dedent("""
            import os
            print(os.getuid(), sorted(os.listdir(os.environ["WS"])), os.path.exists(os.path.expanduser("~trainer/key")))
        """)
        )
        job = f"code: .\ncommand: python look.py\nisolation: sandbox\nenvironment_variables: {{WS: {folder}/.muster}}\n"
        (folder / "job.yml").write_text(job)
        (user.home / "key").write_text("secret")
        for path in (folder, *folder.rglob("*"), user.home / "key"):
            os.chown(path, ID, ID)
        user.run("muster", "init", folder=folder, check=True)
        try:
            done = user.run("muster", "run", "job.yml", folder=folder)
            assert f"{ID} ['nodes'] False" in done.stdout, done.stdout + done.stderr
        finally:
            user.run("muster", "down", "--force", folder=folder)
            wait_until(lambda: not processes_of(folder), 20.0, "the end of the user's processes")
