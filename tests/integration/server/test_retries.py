"""Further attempts: where they resume, when they stop, and what an old one may no longer do."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.integration.server.conftest import Site, on_both_databases

from muster.errors import Conflict, NotFound
from muster.host.server import ServerConnection
from muster.server.people.persons import login_name

TRAIN = Path(__file__).parents[3] / "bench" / "jobs" / "train.py"
COUNT = """
import json, os, signal, sys, time
from pathlib import Path
folder, resume = Path(os.environ["MUSTER_CHECKPOINT_DIR"]), os.environ.get("MUSTER_RESUME_DIR")
step = json.loads((Path(resume) / "state.json").read_text())["step"] if resume else 0
print(f"attempt {os.environ['MUSTER_ATTEMPT']} begins at {step}", flush=True)
ends = {int(k): v for k, v in json.loads(sys.argv[1]).items()}
while step < 12:
    step += 1
    unfinished = folder / "state.json.tmp"
    unfinished.write_text(json.dumps({"step": step}))
    unfinished.rename(folder / "state.json")
    print("step", step, flush=True)
    if ends.get(step) == int(os.environ["MUSTER_ATTEMPT"]):
        os.kill(os.getpid(), signal.SIGKILL)
"""


def count(site: Site, ends: dict[int, int], **more) -> str:
    """A job that counts to 12 and is killed after step N in attempt M."""
    (site.folder / "src").mkdir(exist_ok=True)
    (site.folder / "src" / "count.py").write_text(COUNT)
    return site.run(code="./src", command=["python", "count.py", json.dumps(ends)], **more)


def begins(site: Site, run_id: str) -> list[int]:
    """Where each attempt began."""
    view = site.view(run_id)
    found = []
    for attempt in view["attempts"]:
        prefix = "" if attempt is view["attempts"][-1] else f"attempts/{attempt['number']}/"
        log = site.log(run_id, prefix + attempt["ranks"][0]["log"]).decode()
        found.append(int(re.findall(r"begins at (\d+)", log)[0]))
    return found


@on_both_databases
def test_a_killed_run_goes_on_from_its_last_checkpoint(site: Site):
    run_id = count(site, {4: 1, 9: 2}, retry={"user_error": 2, "backoff_s": 0.05})
    view = site.wait(run_id)
    assert view["status"] == "Completed", view["verdict"]
    assert begins(site, run_id) == [0, 4, 9]
    assert [attempt["verdict"]["code"] for attempt in view["attempts"]] == ["signal", "signal", "completed"]
    assert "attempt 2: 1 of 2" in view["attempts"][0]["verdict"]["action"]
    assert len(view["checkpoints"]) == 2


def test_a_checkpoint_can_be_fetched_by_its_name(site: Site):
    (site.folder / "three.py").write_text(
        "import os\nfrom pathlib import Path\n"
        "folder = Path(os.environ['MUSTER_CHECKPOINT_DIR'])\n"
        "(folder / '.new' / 'below').mkdir(parents=True)\n(folder / '.new' / 'below' / 'weights').write_text('two')\n"
        "(folder / '.new').rename(folder / 'step_2')\n"
        "(folder / '.one.pt').write_text('three')\n(folder / '.one.pt').rename(folder / 'step_3.pt')\n"
    )
    run_id = site.run(command="python three.py", code=".")
    assert site.wait(run_id)["status"] == "Completed"
    assert not any("checkpoints" in file.path for file in site.client.files(run_id))
    found = {file.path: file.size for file in site.client.files(run_id, checkpoints=True)}
    assert found["checkpoints/step_2/below/weights"] == 3 and found["checkpoints/step_3.pt"] == 5
    assert site.client.read_file(run_id, "checkpoints/step_2/below/weights") == b"two"
    assert site.client.read_file(run_id, "checkpoints/step_3.pt", 1, 2) == b"hr"
    with pytest.raises(NotFound):
        site.client.read_file(run_id, "checkpoints/step_1")


def test_retries_stop_when_their_budget_is_used_up_and_say_so(site: Site):
    run_id = count(site, {3: 1, 5: 2, 7: 3}, retry={"user_error": 2, "backoff_s": 0})
    view = site.wait(run_id)
    assert (view["status"], len(view["attempts"])) == ("Failed", 3)
    assert "2 of 2 for errors of the job are used up" in view["verdict"]["action"]


def test_a_run_by_hand_resumes_and_has_its_budgets_again(site: Site):
    run_id = count(site, {3: 1, 5: 2}, retry={"user_error": 0})
    assert site.wait(run_id)["status"] == "Failed"
    with pytest.raises(Conflict):
        site.client.retry(site.run(command="true"))
    assert site.client.retry(run_id).status in ("Queued", "Provisioning", "Preparing", "Running")
    wait_until(lambda: len(site.view(run_id)["attempts"]) == 2 and site.view(run_id)["status"] == "Failed", 30)
    site.client.retry(run_id)
    view = wait_until(lambda: (v := site.view(run_id))["status"] == "Completed" and v, 30)
    assert begins(site, run_id) == [0, 3, 5]
    assert view["verdict"]["code"] == "completed"
    with pytest.raises(Conflict, match="has completed"):
        site.client.retry(run_id)


def test_attempts_never_meet_on_the_same_port(site: Site):
    (site.folder / "port.py").write_text(
        "import os, sys\nprint('port', os.environ['MASTER_PORT'], flush=True)\n"
        "sys.exit(int(os.environ['MUSTER_ATTEMPT']) < 3)\n"
    )
    run_id = site.run(
        command="python port.py",
        code=".",
        distribution={"type": "pytorch", "process_count_per_instance": 2},
        retry={"user_error": 2, "backoff_s": 0},
    )
    view = site.wait(run_id)
    assert view["status"] == "Completed"
    ports = set()
    for prefix in ("attempts/1/", "attempts/2/", ""):
        ports.add(site.log(run_id, f"{prefix}user_logs/std_log_process_0.txt"))
    assert len(ports) == 3


def test_a_run_that_waits_for_its_next_attempt_says_so_and_survives_the_server(site: Site):
    run_id = count(site, {3: 1}, retry={"user_error": 1, "backoff_s": 3})
    view = wait_until(lambda: (v := site.view(run_id))["status"] == "Queued" and v["retry_at"] and v, 30)
    assert "attempt 2 starts at" in view["reason"]
    site.server().kill()
    assert site.wait(run_id)["status"] == "Completed"
    assert begins(site, run_id) == [0, 3]


def test_a_cancel_ends_the_waiting_for_a_next_attempt(site: Site):
    run_id = count(site, {3: 1}, retry={"user_error": 1, "backoff_s": 600})
    wait_until(lambda: (v := site.view(run_id))["status"] == "Queued" and v["attempts"], 30)
    site.client.cancel(run_id)
    view = site.wait(run_id)
    assert (view["status"], view["verdict"]["message"]) == (
        "Canceled",
        f"cancelled by {login_name()} before attempt 2 started",
    )


def test_a_damaged_checkpoint_falls_back_to_the_one_before(site: Site):
    """Each is read with its hash; the store is damaged while the run waits."""
    (site.folder / "two.py").write_text(
        "import os, sys, time\nfrom pathlib import Path\n"
        "resume = os.environ.get('MUSTER_RESUME_DIR')\n"
        "if resume:\n    print(sorted(p.name for p in Path(resume).iterdir()), flush=True)\n    sys.exit()\n"
        "folder = Path(os.environ['MUSTER_CHECKPOINT_DIR'])\n"
        "for step in (1, 2):\n"
        "    (folder / '.new').mkdir()\n    (folder / '.new' / f'weights_{step}').write_text(str(step) * 100)\n"
        "    (folder / '.new').rename(folder / f'step_{step}')\n    time.sleep(0.01)\n"
        "sys.exit(1)\n"
    )
    run_id = site.run(command="python two.py", code=".", retry={"user_error": 1, "backoff_s": 2})
    view = wait_until(lambda: (v := site.view(run_id))["status"] == "Queued" and v["checkpoints"] and v, 30)
    assert [item["name"] for item in view["checkpoints"]] == ["step_2", "step_1"]
    store = site.folder / ".muster" / "store" / "runs" / run_id / "checkpoints"
    (newest,) = store.rglob("weights_2")
    newest.write_text("2" * 99 + "x")
    assert site.wait(run_id)["status"] == "Completed"
    assert site.log(run_id) == b"['weights_1']\n"


def test_what_was_not_finished_is_never_seen(site: Site):
    (site.folder / "half.py").write_text(
        "import os, signal, sys\nfrom pathlib import Path\nfrom muster import Run\n"
        "run = Run.get_context()\n"
        "if run.resume_dir:\n    print(sorted(p.name for p in run.resume_dir.iterdir()), flush=True)\n    sys.exit()\n"
        "(run.checkpoint_dir / 'whole.tmp').mkdir()\n"
        "(run.checkpoint_dir / 'whole.tmp' / 'weights').write_text('all')\n"
        "run.publish_checkpoint(run.checkpoint_dir / 'whole.tmp', step=1)\n"
        "(run.checkpoint_dir / 'later.tmp').mkdir()\n"
        "(run.checkpoint_dir / 'later.tmp' / 'weights').write_text('ha')\n"
        "(run.checkpoint_dir / 'direct.pt').write_text('ha')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    run_id = site.run(command="python half.py", code=".", retry={"user_error": 1, "backoff_s": 0})
    view = site.wait(run_id)
    assert view["status"] == "Completed", view["verdict"]
    assert site.log(run_id) == b"['weights']\n"
    assert [item["name"] for item in view["checkpoints"]] == ["step_1"]


def test_a_damaged_checkpoint_is_passed_over_and_named(site: Site):
    (site.folder / "src").mkdir(exist_ok=True)
    (site.folder / "src" / "steps.py").write_text(
        "import os, sys, time\nfrom pathlib import Path\n"
        "resume = os.environ.get('MUSTER_RESUME_DIR')\n"
        "if resume:\n    print((Path(resume) / 'state').read_text(), flush=True)\n    sys.exit()\n"
        "for step in (1, 2):\n"
        "    new = Path(os.environ['MUSTER_CHECKPOINT_DIR']) / f'.step_{step}.tmp'\n    new.mkdir()\n"
        "    (new / 'state').write_text(f'of step {step}')\n    new.rename(new.with_name(f'step_{step}'))\n"
        "sys.exit(1)\n"
    )
    run_id = site.run(code="./src", command="python steps.py")
    assert [item["name"] for item in site.wait(run_id)["checkpoints"]] == ["step_2", "step_1"]
    for path in (site.folder / ".muster" / "store").rglob("state"):
        if path.read_text() == "of step 2":
            path.chmod(0o644)
            path.write_text("of step X")
    site.client.retry(run_id)
    assert wait_until(lambda: site.view(run_id)["status"] == "Completed", 30)
    assert site.log(run_id) == b"of step 1\n"
    said = [event.text for event, _ in site.client.stream(run_id, follow=False) if event.kind == "note"]
    assert any("the newest checkpoint is damaged and passed over: state is not what was published" in t for t in said)


def test_every_node_gets_the_checkpoint_of_the_one_that_wrote_it(site: Site):
    (site.folder / "nodes.py").write_text(
        "import os, sys\nfrom pathlib import Path\n"
        "resume = os.environ.get('MUSTER_RESUME_DIR')\n"
        "if resume:\n    print((Path(resume) / 'state').read_text(), flush=True)\n    sys.exit()\n"
        "if os.environ['RANK'] == '0':\n"
        "    new = Path(os.environ['MUSTER_CHECKPOINT_DIR']) / '.state'\n    new.write_text('from node 0')\n"
        "    new.rename(new.with_name('state'))\n    sys.exit(1)\n"
        "import time; time.sleep(600)\n"
    )
    run_id = site.run(
        command="python nodes.py",
        code=".",
        distribution={"type": "pytorch", "process_count_per_instance": 1},
        resources={"instance_count": 2},
        retry={"user_error": 1, "backoff_s": 0},
    )
    assert site.wait(run_id)["status"] == "Completed"
    for rank in (0, 1):
        assert site.log(run_id, f"user_logs/std_log_process_{rank}.txt") == b"from node 0\n"


def test_an_old_attempt_can_publish_nothing(site: Site):
    run_id = count(site, {3: 1}, retry={"user_error": 1, "backoff_s": 0})
    assert site.wait(run_id)["status"] == "Completed"
    publication = {"run": run_id, "attempt": 1, "name": "late", "key": "0" * 64, "at": 1e12, "files": []}
    connection = ServerConnection(site.client.address)
    with pytest.raises(Conflict, match=r"attempt 1 of .* is over"):
        connection.request("POST", "/api/v1/agents/local-0/checkpoints", json_body=publication)
    connection.close()


NOTICED = """
import os, signal, sys, time
from muster import Run
run = Run.get_context()
if run.resume_dir:
    print("resumed", (run.resume_dir / "state").read_text(), flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, lambda *_: print("SIGTERM", flush=True))
print("waiting", flush=True)
deadline = time.time() + 60
while not run.should_stop() and time.time() < deadline:
    time.sleep(0.01)
(run.checkpoint_dir / "state.tmp").write_text("what mattered")
run.publish_checkpoint(run.checkpoint_dir / "state.tmp")
print("saved", flush=True)
"""


def notice(site: Site, **more) -> str:
    (site.folder / "notice.py").write_text(NOTICED)
    run_id = site.run(command="python notice.py", code=".", **more)
    wait_until(lambda: any(file["size"] for file in site.view(run_id)["files"]), 30, "the first line")
    return run_id


def test_a_cancelled_run_is_told_and_may_save(site: Site):
    run_id = notice(site)
    site.client.cancel(run_id)
    view = site.wait(run_id)
    assert (view["status"], view["verdict"]["code"]) == ("Canceled", "cancelled")
    assert site.log(run_id) == b"waiting\nSIGTERM\nsaved\n"
    assert [item["name"] for item in view["checkpoints"]] == ["state"]


def test_a_run_out_of_time_is_told_and_goes_on_by_hand(site: Site):
    run_id = notice(site, limits={"timeout": 1})
    assert site.wait(run_id)["verdict"]["code"] == "timeout"
    site.client.retry(run_id)
    wait_until(lambda: site.view(run_id)["status"] == "Completed", 30)
    assert site.log(run_id) == b"resumed what mattered\n"


def test_a_preempted_run_is_told_and_resumes_by_itself(site: Site):
    run_id = notice(site, retry={"backoff_s": 0.1})
    site.agent().terminate()
    view = site.wait(run_id)
    assert view["status"] == "Completed", view["verdict"]
    assert view["attempts"][0]["verdict"]["code"] == "preempted"
    assert view["attempts"][0]["verdict"]["node"] == "local-0"
    assert site.log(run_id) == b"resumed what mattered\n"


def test_a_lost_node_is_retried_by_itself(site: Site):
    run_id = count(site, {}, retry={"backoff_s": 0.1})
    site.wait(run_id)
    (site.folder / "slow.py").write_text(
        "import os, sys, time\nprint('here', flush=True)\n"
        "sys.exit() if os.environ['MUSTER_ATTEMPT'] == '2' else time.sleep(600)\n"
    )
    run_id = site.run(command="python slow.py", code=".", retry={"backoff_s": 0.1})
    wait_until(lambda: any(file["size"] for file in site.view(run_id)["files"]), 30, "the first line")
    site.agent().kill()
    view = site.wait(run_id)
    assert (view["status"], view["attempts"][0]["verdict"]["code"]) == ("Completed", "node_lost")
    assert "1 of 3 for lost nodes" in view["attempts"][0]["verdict"]["action"]


def test_a_workspace_has_defaults_of_its_own(workspace: Path):
    from muster.client.connect import connect
    from muster.client.workspace import find_workspace

    config = workspace / ".muster" / "workspace.json"
    settings = json.loads(config.read_text())
    config.write_text(json.dumps({**settings, "retry": {"user_error": 1, "backoff_s": 0}}))
    site = Site(workspace, connect(find_workspace(workspace)))
    run_id = count(site, {3: 1})
    assert site.wait(run_id)["status"] == "Completed"
    assert begins(site, run_id) == [0, 3]
    site.client.close()


STEPS = 12


def losses(text: str) -> dict[tuple[int, int], str]:
    """What each rank computed in each step; a step that was done twice must have come out the same."""
    found: dict[tuple[int, int], str] = {}
    for step, rank, loss in re.findall(r"step (\d+) rank (\d+) loss (\S+) at", text):
        assert found.setdefault((int(step), int(rank)), loss) == loss, f"step {step} came out differently"
    return found


def unkilled(folder: Path) -> dict[tuple[int, int], str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(TRAIN)]
    command += ["--steps", str(STEPS), "--checkpoints", str(folder)]
    return losses(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_a_training_that_is_killed_again_and_again_has_the_losses_of_one_that_was_not(site: Site, tmp_path: Path):
    (site.folder / "src").mkdir()
    shutil.copy(TRAIN, site.folder / "src" / "train.py")
    run_id = site.run(
        code="./src",
        command=f"python train.py --steps {STEPS} --pause-s 0.1",
        distribution={"type": "pytorch", "process_count_per_instance": 2},
        environment_variables={"OMP_NUM_THREADS": "1"},
        retry={"user_error": 10, "backoff_s": 0},
    )
    for attempt, (step, rank) in enumerate([(2, 1), (5, 0), (9, 1)], 1):

        def reached(attempt: int = attempt, step: int = step) -> bool:
            view = site.view(run_id)
            assert view["status"] not in ("Completed", "Failed"), view["verdict"]
            ranks = view["attempts"][-1]["ranks"] if len(view["attempts"]) == attempt else []
            known = {file["path"] for file in view["files"]}
            return (
                bool(ranks)
                and ranks[0]["log"] in known
                and f"step {step} " in site.log(run_id, ranks[0]["log"]).decode()
            )

        wait_until(reached, 60, f"step {step} of attempt {attempt}")
        site.rank(run_id, rank).kill()
        wait_until(lambda attempt=attempt: len(site.view(run_id)["attempts"]) == attempt + 1, 60, "the next attempt")
    view = site.wait(run_id, timeout_s=120)
    assert view["status"] == "Completed", view["verdict"]
    assert [attempt["verdict"]["code"] for attempt in view["attempts"]] == ["signal"] * 3 + ["completed"]
    assert [attempt["verdict"]["rank"] for attempt in view["attempts"][:3]] == [1, 0, 1]
    logs = [file["path"] for file in view["files"] if "user_logs/" in file["path"]]
    assert losses("".join(site.log(run_id, log).decode() for log in logs)) == unkilled(tmp_path / "reference")
