"""The engine against a fake of Slurm's commands: what it asks, how often, and what it makes of the answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import wait_until

from muster import errors
from muster.engines.base import Allocation, AllocationState, Cluster, Gang, GangRequest
from muster.engines.slurm.commands import Busy, Commands, Refused
from muster.engines.slurm.engine import SlurmEngine
from muster.engines.slurm.names import job_name
from muster.engines.slurm.options import SlurmOptions
from muster.engines.slurm.sites import SlurmSites
from muster.host.locks import FileLock
from muster.paths import NodePaths
from muster.testing.slurm import FakeSlurm

HPC = Cluster("hpc", "slurm")


class Bed:
    """An engine on a fake Slurm, with a clock that the test moves."""

    def __init__(self, folder: Path, slurm: FakeSlurm) -> None:
        self.folder = folder
        self.slurm = slurm
        self.now = 0.0
        self.engine = self.new_engine()

    def new_engine(self) -> SlurmEngine:
        return SlurmEngine(Commands(self.slurm.run, wait=lambda _: None), clock=lambda: self.now)

    def allocation(self, name: str = "ab-run.1", nodes: int = 2, **options: Any) -> GangRequest:
        run, _, number = name.removeprefix("ab-").rpartition(".")
        roots = [self.folder / "nodes" / f"{run}.{number}.{rank}" for rank in range(nodes)]
        for root in roots:
            root.mkdir(parents=True, exist_ok=True)
        folders = {root.name: NodePaths(root) for root in roots}
        gang = Gang(run, int(number), run, str(self.folder / "handed-on"))
        return GangRequest(name, Cluster("hpc", "slurm", {"partition": "batch", **options}), folders, gang)

    def submitted(self, allocation: GangRequest) -> str:
        """Allocate, and wait until the fake has the job; returns its id."""
        self.engine.submit(allocation)
        return str(wait_until(lambda: self.job(allocation.id), 5, "the submission"))

    def job(self, name: str) -> str | None:
        return next((job.id for job in self.slurm.jobs.values() if job.name == job_name(name)), None)

    def poll(self, allocation: Allocation) -> AllocationState:
        self.now += 10.0
        return self.engine.poll([allocation])[allocation.id]


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    made = Bed(tmp_path, FakeSlurm())
    yield made
    made.engine.close()


def test_a_gang_is_submitted_once_however_often_it_is_asked_for(bed: Bed):
    allocation = bed.allocation()
    bed.submitted(allocation)
    for _ in range(3):
        bed.engine.submit(allocation)
        bed.poll(allocation)
    assert len(bed.slurm.jobs) == 1
    assert bed.slurm.calls["sbatch"] == 1


def test_two_hundred_gangs_cost_one_call_each_to_submit_and_one_squeue_per_poll(bed: Bed):
    gangs = [bed.allocation(f"ab-run{index}.1") for index in range(200)]
    bed.engine.nodes(gangs[0].cluster)
    for gang in gangs:
        bed.engine.submit(gang)
    wait_until(lambda: len(bed.slurm.jobs) == 200, 20, "the submissions")
    assert bed.slurm.calls["sbatch"] == 200
    before = bed.slurm.calls["squeue"]
    for _ in range(5):
        bed.now += 10.0
        assert len(bed.engine.poll(gangs)) == 200
    assert bed.slurm.calls["squeue"] - before == 5 + (1 if before == 0 else 0)
    assert bed.slurm.calls["sacct"] == bed.slurm.calls["scancel"] == 0


def test_polls_in_quick_succession_ask_slurm_once(bed: Bed):
    allocation = bed.allocation(poll_seconds=5)
    bed.submitted(allocation)
    bed.poll(allocation)
    before = bed.slurm.calls["squeue"]
    for _ in range(4):
        bed.now += 1.0
        bed.engine.poll([allocation])
    assert bed.slurm.calls["squeue"] == before


def test_a_job_whose_answer_was_lost_is_found_instead_of_submitted_again(bed: Bed):
    bed.slurm.lost_answers = 1
    allocation = bed.allocation()
    bed.submitted(allocation)
    wait_until(lambda: bed.poll(allocation).reason.startswith("in the queue"), 10, "the job")
    assert len(bed.slurm.jobs) == 1


def test_a_new_server_finds_the_job_of_the_old_one(bed: Bed):
    allocation = bed.allocation()
    bed.submitted(allocation)
    bed.engine.close()
    bed.engine = bed.new_engine()
    bed.engine.submit(allocation)
    wait_until(lambda: bed.poll(allocation).reason.startswith("in the queue"), 10, "the job")
    assert len(bed.slurm.jobs) == 1


def test_a_busy_controller_is_asked_again_and_the_run_says_so(bed: Bed):
    bed.engine.nodes(bed.allocation().cluster)
    bed.slurm.busy = 2
    allocation = bed.allocation()
    bed.engine.submit(allocation)
    wait_until(lambda: "Slurm does not answer" in bed.engine.poll([allocation])[allocation.id].reason, 5, "the reason")
    assert bed.engine.poll([allocation])[allocation.id].nodes["run.1.0"] == "starting"
    wait_until(lambda: bed.job(allocation.id), 10, "the submission")


def test_what_slurm_refuses_ends_the_attempt_with_its_words(bed: Bed):
    bed.slurm.refusal = "Invalid account or account/partition combination specified"
    allocation = bed.allocation()
    bed.engine.submit(allocation)
    state = wait_until(lambda: _if_over(bed.poll(allocation)), 5, "the refusal")
    assert state.ending.code == "bad_input"
    assert "Invalid account or account/partition combination" in state.ending.message


def test_a_full_quota_of_jobs_is_waited_for(bed: Bed):
    bed.slurm.refusal = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
    allocation = bed.allocation()
    bed.engine.submit(allocation)
    wait_until(lambda: "takes no further job now" in bed.poll(allocation).reason, 5, "the reason")
    bed.slurm.refusal = ""
    wait_until(lambda: bed.job(allocation.id), 10, "the submission")


def test_a_run_waits_with_slurms_reason_and_comes_up(bed: Bed):
    allocation = bed.allocation()
    job = bed.submitted(allocation)
    state = bed.poll(allocation)
    assert state.reason == f"in the queue of Slurm as job {job}: waits behind jobs of higher priority (Priority)"
    bed.slurm.move(job, state="RUNNING", used="0:05", nodes="n[1-2]")
    assert set(bed.poll(allocation).nodes.values()) == {"starting"}
    bed.slurm.move(job, used="2:00")
    assert set(bed.poll(allocation).nodes.values()) == {"up"}


def test_the_end_of_a_job_is_told(bed: Bed):
    allocation = bed.allocation()
    job = bed.submitted(allocation)
    bed.slurm.move(job, state="CANCELLED")
    state = bed.poll(allocation)
    assert state.ending is not None
    assert (set(state.nodes.values()), state.ending.code) == ({"gone"}, "cancelled")


def test_a_job_that_slurm_may_put_back_is_given_a_moment(bed: Bed):
    allocation = bed.allocation()
    job = bed.submitted(allocation)
    bed.slurm.move(job, state="NODE_FAIL", nodes="n[1-2]")
    assert bed.poll(allocation).ending is None
    state = bed.poll(allocation)
    assert state.ending is not None
    assert state.ending.code == "node_lost"


def test_a_job_that_comes_back_beside_its_successor_is_cancelled(bed: Bed):
    first, second = bed.allocation("ab-run.1"), bed.allocation("ab-run.2")
    old = bed.submitted(first)
    bed.slurm.move(old, state="NODE_FAIL")
    bed.poll(first)
    new = bed.submitted(second)
    bed.slurm.move(old, state="PENDING", restarts=1)
    bed.poll(second)
    wait_until(lambda: bed.slurm.jobs[old].state == "CANCELLED", 5, "the cancellation")
    assert bed.slurm.jobs[new].state == "PENDING"


def test_a_controller_that_is_away_makes_nobody_gone(bed: Bed):
    allocation = bed.allocation()
    job = bed.submitted(allocation)
    bed.slurm.move(job, state="RUNNING", used="2:00")
    bed.poll(allocation)
    bed.slurm.busy = 3
    state = bed.poll(allocation)
    assert "gone" not in state.nodes.values()
    assert "Slurm does not answer" in state.reason


def test_a_requeued_job_ends_one_attempt_and_is_the_next(bed: Bed):
    first, second = bed.allocation("ab-run.1"), bed.allocation("ab-run.2")
    job = bed.submitted(first)
    bed.slurm.move(job, state="PENDING", restarts=1, reason="BeginTime")
    state = bed.poll(first)
    assert state.ending is not None
    assert state.ending.code == "preempted"
    bed.engine.release(first, followed=True)
    bed.engine.submit(second)
    assert bed.poll(second).reason.startswith(f"in the queue of Slurm as job {job}")
    assert (len(bed.slurm.jobs), bed.slurm.jobs[job].state) == (1, "PENDING")


def test_a_requeued_job_that_nobody_follows_is_cancelled(bed: Bed):
    allocation = bed.allocation()
    job = bed.submitted(allocation)
    bed.slurm.move(job, state="PENDING", restarts=1)
    bed.poll(allocation)
    bed.engine.release(allocation, followed=False)
    wait_until(lambda: bed.slurm.jobs[job].state == "CANCELLED", 5, "the cancellation")


def test_a_job_whose_node_failed_does_not_come_back_after_its_run(bed: Bed):
    allocation = bed.allocation()
    job = bed.submitted(allocation)
    bed.slurm.move(job, state="NODE_FAIL")
    bed.poll(allocation)
    bed.engine.release(allocation, followed=False)
    bed.slurm.move(job, state="PENDING", restarts=1, reason="BeginTime")
    wait_until(lambda: bed.poll(allocation) and bed.slurm.jobs[job].state == "CANCELLED", 5, "the cancellation")


def test_a_requeued_job_that_nobody_follows_does_not_outlive_the_server(bed: Bed):
    allocation = bed.allocation()
    job = bed.submitted(allocation)
    next(iter(allocation.nodes.values())).log.touch()
    bed.slurm.move(job, state="PENDING", restarts=1)
    bed.poll(allocation)
    bed.engine.release(allocation, followed=False)
    bed.engine.close()
    assert bed.slurm.jobs[job].state == "CANCELLED"


def test_a_job_whose_agents_have_yet_to_leave_does_not_outlive_the_server(bed: Bed):
    allocation = bed.allocation()
    job = bed.submitted(allocation)
    next(iter(allocation.nodes.values())).log.touch()
    bed.slurm.move(job, state="RUNNING", used="2:00", nodes="n[1-2]")
    bed.poll(allocation)
    bed.engine.release(allocation, followed=False)
    bed.engine.close()
    assert bed.slurm.jobs[job].state == "CANCELLED"


def test_a_run_that_ends_after_the_engine_was_closed_leaves_no_job(bed: Bed):
    allocation = bed.allocation()
    job = bed.submitted(allocation)
    bed.poll(allocation)
    bed.engine.close()
    bed.engine.release(allocation, followed=False)
    assert bed.slurm.jobs[job].state == "CANCELLED"


def test_a_job_that_waits_is_cancelled_at_once_when_its_run_is(bed: Bed):
    allocation = bed.allocation()
    job = bed.submitted(allocation)
    bed.poll(allocation)
    bed.engine.release(allocation, followed=False)
    wait_until(lambda: bed.slurm.jobs[job].state == "CANCELLED", 5, "the cancellation")


def test_a_job_that_slurm_has_forgotten_is_looked_up_in_the_accounting(bed: Bed):
    allocation = bed.allocation()
    job = bed.submitted(allocation)
    bed.poll(allocation)
    bed.slurm.accounting = {job_name("ab-run.1"): "CANCELLED by 1000"}
    bed.slurm.forget(job)
    state = bed.poll(allocation)
    assert state.ending is not None
    assert state.ending.code == "cancelled"


def test_without_accounting_a_forgotten_job_has_simply_ended(bed: Bed):
    allocation = bed.allocation()
    job = bed.submitted(allocation)
    bed.poll(allocation)
    bed.slurm.forget(job)
    state = bed.poll(allocation)
    assert state.ending is not None
    assert (state.ending.code, set(state.nodes.values())) == ("", {"gone"})
    assert "no longer knows job" in state.ending.message


def test_one_that_was_never_handed_on_is_gone_without_an_end(bed: Bed):
    allocation = bed.allocation()
    state = bed.poll(allocation)
    assert (set(state.nodes.values()), state.ending) == ({"gone"}, None)


def test_the_nodes_of_a_cluster_are_those_of_its_partition(bed: Bed):
    offers = bed.engine.nodes(Cluster("hpc", "slurm", {"partition": "batch"}))
    assert [(offer.name, offer.cpus, offer.state) for offer in offers] == [("n1", 4, "idle"), ("n2", 4, "idle")]
    assert bed.engine.nodes(Cluster("hpc", "slurm", {"partition": "batch"})) is offers


def test_a_partition_that_is_not_there_is_refused_with_those_that_are(bed: Bed, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("muster.engines.slurm.engine.require_installed", lambda: None)
    with pytest.raises(errors.JobError, match="no partition 'night'") as told:
        bed.engine.check(Cluster("hpc", "slurm", {"partition": "night"}))
    assert told.value.hint == "Its partitions: batch, gpu."
    with pytest.raises(errors.JobError, match="no setting 'partitoin'"):
        bed.engine.check(Cluster("hpc", "slurm", {"partitoin": "batch"}))


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ((1, "", "sinfo: error: Unable to contact slurm controller (connect failure)"), Busy),
        ((1, "", "slurm_load_jobs error: Socket timed out on send/recv operation"), Busy),
        ((1, "", "sbatch: error: Batch job submission failed: Invalid partition name specified"), Refused),
    ],
)
def test_errors_are_told_apart(answer: tuple[int, str, str], kind: type[Exception]):
    asked: list[str] = []

    def run(command: Any, _stdin: str | None, _deadline_s: float) -> tuple[int, str, str]:
        asked.append(command[0])
        return answer

    commands = Commands(run, wait=lambda _: None)
    with pytest.raises(kind):
        commands.call("sinfo")
    assert len(asked) == (3 if kind is Busy else 1)


def _if_over(state: AllocationState) -> AllocationState | None:
    return state if state.ending is not None else None


def test_srun_as_the_starter_of_mpi_ranks_is_refused_where_this_slurm_cannot(bed: Bed, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("muster.engines.slurm.engine.require_installed", lambda: None)
    cluster = Cluster("hpc", "slurm", {"partition": "batch", "mpi": "pmix"})
    with pytest.raises(errors.JobError, match="srun does not know --mpi=pmix; it has no PMIx") as refused:
        bed.engine.check(cluster)
    assert "Leave mpi out" in refused.value.hint
    bed.slurm.mpi_plugins = ("pmix", "pmix_v4")
    assert bed.engine.check(cluster) == []
    with pytest.raises(errors.JobError, match="'hydra' starts no MPI ranks; give mpirun, or pmix"):
        bed.engine.check(Cluster("hpc", "slurm", {"mpi": "hydra"}))
    bed.slurm.version, bed.engine = "20.02.7", bed.new_engine()
    with pytest.raises(errors.JobError, match=r"pmix needs Slurm 20\.11 or newer, and this is 20\.02"):
        bed.engine.check(cluster)


def test_a_node_whose_agent_has_come_is_up_and_may_be_missed(bed: Bed):
    allocation = bed.allocation()
    job = bed.submitted(allocation)
    bed.slurm.move(job, state="RUNNING", used="0:05", nodes="n[1-2]")
    list(allocation.nodes.values())[1].log.touch()
    assert bed.poll(allocation).nodes == {"run.1.0": "starting", "run.1.1": "up"}


def test_a_controller_that_forgot_a_cancel_is_told_again(bed: Bed):
    allocation = bed.allocation()
    job = bed.submitted(allocation)
    bed.poll(allocation)
    bed.engine.release(allocation, followed=False)
    wait_until(lambda: bed.slurm.jobs[job].state == "CANCELLED", 5, "the cancel")
    bed.slurm.move(job, state="RUNNING", restarts=1)
    bed.now += 30.0
    bed.poll(bed.allocation("ab-other.1"))
    wait_until(lambda: bed.slurm.jobs[job].state == "CANCELLED", 5, "the second cancel")


def test_a_lost_node_is_named_as_slurm_names_it_and_the_healthy_one_is_not(bed: Bed):
    allocation = bed.allocation(poll_seconds=1)
    job = bed.submitted(allocation)
    bed.slurm.move(job, state="RUNNING", used="2:00", nodes="n[1-2]")
    bed.poll(allocation)
    bed.slurm.node_states["n2"] = "down*"
    bed.slurm.move(job, state="PENDING", restarts=1, nodes="")
    ending = bed.poll(allocation).ending
    assert ending is not None
    assert (ending.code, ending.lost) == ("node_lost", ("n2",))
    assert ending.message == f"node n2 (down*) failed, and Slurm put job {job} back into its queue"


def test_a_lost_node_is_named_though_the_job_was_seen_while_it_was_cleared_away(bed: Bed):
    allocation = bed.allocation(poll_seconds=1)
    job = bed.submitted(allocation)
    bed.slurm.move(job, state="RUNNING", used="2:00", nodes="n[1-2]")
    bed.poll(allocation)
    bed.slurm.node_states["n2"] = "down*"
    bed.slurm.move(job, state="COMPLETING", nodes="n1")
    bed.poll(allocation)
    bed.slurm.move(job, state="PENDING", restarts=1, nodes="")
    ending = bed.poll(allocation).ending
    assert ending is not None
    assert (ending.code, ending.lost) == ("node_lost", ("n2",))


def test_a_job_put_back_while_a_node_of_others_is_down_was_preempted(bed: Bed):
    allocation = bed.allocation(nodes=1)
    job = bed.submitted(allocation)
    bed.slurm.move(job, state="RUNNING", used="2:00", nodes="n1")
    bed.poll(allocation)
    bed.slurm.node_states["n2"] = "down*"
    bed.slurm.move(job, state="PENDING", restarts=1, nodes="")
    ending = bed.poll(allocation).ending
    assert ending is not None
    assert ending.code == "preempted"


def test_a_job_that_waits_stops_keeping_off_a_node_once_the_others_are_too_few(tmp_path: Path):
    bed = Bed(tmp_path, FakeSlurm(nodes=("n1", "n2", "n3")))
    made = bed.allocation()
    allocation = replace(made, gang=replace(made.gang, excluded=("n1",)))
    job = bed.submitted(allocation)
    assert "#SBATCH --exclude=n1\n" in bed.slurm.jobs[job].script
    bed.poll(allocation)
    assert bed.slurm.updates == []
    bed.slurm.node_states["n2"] = "down*"
    wait_until(lambda: bed.poll(allocation) and bed.slurm.updates, 10, "the change of the job")
    assert bed.slurm.updates[0] == (f"JobId={job}", "ExcNodeList=")
    bed.engine.close()


def test_a_job_that_could_not_be_launched_is_released_some_times_and_then_left_to_a_person(bed: Bed):
    allocation = bed.allocation()
    job = bed.submitted(allocation)
    bed.slurm.move(job, reason="launch_failed_requeued_held")
    wait_until(lambda: bed.poll(allocation) and bed.slurm.updates, 10, "the release")
    for _ in range(5):
        state = bed.poll(allocation)
    assert bed.slurm.updates == [(job,)] * 3
    assert "could not be launched and is held" in state.reason


def test_an_attempt_that_slurm_could_not_launch_says_so(bed: Bed):
    allocation = bed.allocation()
    job = bed.submitted(allocation)
    bed.slurm.move(job, state="PENDING", restarts=1, reason="launch failed requeued held")
    state = bed.poll(allocation)
    assert state.ending is not None
    assert state.ending.message == f"Slurm could not launch job {job} and put it back into its queue"


def test_a_site_that_lacks_a_setting_refuses_the_cluster_by_its_name(bed: Bed, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("muster.engines.slurm.engine.require_installed", lambda: None)
    bed.slurm.test_refusals = {"--gres=gpu:9": "Requested node configuration is not available"}
    with pytest.raises(errors.JobError, match=r"^gres: Slurm would refuse every job with gpu:9: .*not available"):
        bed.engine.check(Cluster("hpc", "slurm", {"gres": "gpu:9", "constraint": "fast"}))
    with pytest.raises(errors.JobError, match=r"time: 2 h is more than the partition batch allows, 1 h"):
        bed.engine.check(Cluster("hpc", "slurm", {"partition": "batch", "time": 120}))
    bed.slurm.accounts = ["nlp", "vision"]
    with pytest.raises(errors.JobError, match="you may not charge 'nip'") as refused:
        bed.engine.check(Cluster("hpc", "slurm", {"account": "nip"}))
    assert refused.value.hint == "Your accounts: nlp, vision."
    assert bed.engine.check(Cluster("hpc", "slurm", {"account": "nlp", "time": 60})) == []


def test_what_a_dead_agent_left_is_delivered_while_its_job_still_runs(bed: Bed):
    allocation = bed.allocation()
    job = bed.submitted(allocation)
    bed.slurm.move(job, state="RUNNING", used="2:00", nodes="n[1-2]")
    paths = allocation.nodes["run.1.0"]
    (paths.attempts / "run.1").mkdir(parents=True)
    assert set(bed.poll(allocation).nodes.values()) == {"up"}, "a lock that was never seen says nothing"
    with FileLock(paths.lock).acquire():
        assert set(bed.poll(allocation).nodes.values()) == {"up"}
    assert bed.poll(allocation).nodes == {"run.1.0": "starting", "run.1.1": "up"}
    assert paths.log.exists(), "an agent was started on this machine for what lies in the folder"
    # It finds no configuration and ends; nobody tries for ever.
    wait_until(lambda: set(bed.poll(allocation).nodes.values()) == {"up"}, 20, "the last try")


def test_a_job_is_shown_with_what_its_people_ask_slurm_for(bed: Bed):
    allocation = bed.allocation()
    job = bed.submitted(allocation)
    bed.slurm.move(job, account="nlp", qos="long", reason="Resources", starts="2026-01-31T10:00:00")
    bed.poll(allocation)
    shown = bed.engine.job(allocation)
    assert shown is not None
    assert (shown.id, shown.partition, shown.account, shown.qos) == (job, "batch", "nlp", "long")
    assert (shown.state, shown.reason) == ("PENDING", "Resources")
    assert shown.starts_at is not None
    bed.slurm.move(job, state="RUNNING", reason="None", nodes="n[1-2]")
    bed.poll(allocation)
    shown = bed.engine.job(allocation)
    assert shown is not None
    assert (shown.reason, shown.nodes, shown.starts_at) == ("", "n[1-2]", None)


def test_what_jobs_used_is_asked_of_the_accounting_and_its_absence_is_said(bed: Bed):
    assert "Slurm accounting storage is disabled" in bed.engine.usage(HPC, ["1"])
    bed.slurm.no_accounting = "sacct: error: Problem talking to the database: No such file or directory"
    assert bed.engine.usage(HPC, ["1"]) == {}
    bed.slurm.usage = "1|COMPLETED|0:0|62|00:58||0\n"
    used = bed.engine.usage(HPC, ["1", "2"])
    assert not isinstance(used, str)
    assert list(used) == ["1"]
    bed.slurm.busy = 1
    assert bed.engine.usage(HPC, ["1"]) == {}


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"partition": "batch,nowhere"}, "no partition 'nowhere'", "Its partitions: batch, gpu."),
        ({"reservation": "monday"}, "reservation: Slurm would refuse every job", "reservations of this site: friday"),
        ({"licenses": "matlab:9"}, "licenses: Slurm would refuse every job", "licences of this site: matlab."),
        ({"qos": "fast"}, "qos: Slurm would refuse every job with fast", "QOS of this site: long, normal."),
        ({"mail_type": "SOMETIMES"}, "mail_type: 'SOMETIMES' is no event", "docs/slurm.md"),
        ({"comment": 'a "quote"'}, "comment: ", "docs/slurm.md"),
        ({"container": "a image"}, "container: 'a image' is no image", "docs/slurm.md"),
        ({"container": "x", "container_mounts": ["a:b"]}, "'a:b' is no folder", "docs/slurm.md"),
        ({"container": "x"}, "container: this Slurm's srun does not know --container-image", "apptainer or enroot"),
        ({"sbatch": ["hetjob"]}, "asks for a heterogeneous job, and the nodes of a run are alike", "docs/slurm.md"),
    ],
)  # fmt: skip
def test_what_the_site_lacks_is_refused_with_what_it_has(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str, hint: str
):
    monkeypatch.setattr("muster.engines.slurm.engine.require_installed", lambda: None)
    bed.slurm.test_refusals = {"--reservation=": "invalid", "--licenses=": "invalid", "--qos=": "Invalid qos"}
    bed.slurm.site_lists = {
        "reservation": "ReservationName=friday StartTime=x\n",
        "licenses": "LicenseName=matlab Total=4\n",
        "qos": "normal\nlong\n",
    }
    with pytest.raises(errors.JobError) as refused:
        bed.engine.check(Cluster("hpc", "slurm", options))
    assert message in refused.value.message
    assert hint in refused.value.hint


def test_each_login_node_is_asked_alone_and_commands_are_quoted_for_its_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked: list[tuple[str, ...]] = []

    def run(command: Any, stdin: str | None, deadline_s: float, kept: Any) -> tuple[int, str, str]:
        asked.append(tuple(command))
        return 255, "", "ssh: Could not resolve hostname"

    monkeypatch.setattr("muster.engines.slurm.commands.run_command", run)
    far = Commands(ssh="ada@login.site", wait=lambda _: None)
    with pytest.raises(Busy, match="Unable to establish a connection to ada@login"):
        far.call("scontrol", "update", "Name=a b; rm -rf /", tries=1)
    assert asked[-1][-3:] == ("ada@login.site", "--", "scontrol update 'Name=a b; rm -rf /'")
    fakes = {None: FakeSlurm(), "far": FakeSlurm(nodes=("f1",))}
    sites = SlurmSites(lambda host: SlurmEngine(Commands(fakes[host].run, wait=lambda _: None)))
    near_nodes = sites.nodes(Cluster("a", "slurm"))
    far_nodes = sites.nodes(Cluster("b", "slurm", {"ssh": "far"}))
    assert [node.name for node in near_nodes] == ["n1", "n2"]
    assert [node.name for node in far_nodes] == ["f1"]
    sites.close()


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "a b", "host;ls", "user@", "$(id)"])
def test_a_login_node_is_a_host_and_nothing_else(host: str):
    with pytest.raises(errors.JobError, match="is no host"):
        SlurmOptions.parse({"ssh": host})


def test_a_job_that_a_crashed_controller_forgot_before_anybody_saw_it_is_submitted_again(bed: Bed):
    allocation = bed.allocation()
    job = bed.submitted(allocation)
    wait_until(lambda: bed.engine.job(allocation), 5, "the answer of sbatch")
    bed.slurm.forget(job)
    bed.poll(allocation)
    assert bed.slurm.calls["sbatch"] == 1

    def again() -> bool:
        bed.poll(allocation)
        return bed.slurm.calls["sbatch"] == 2

    wait_until(again, 10, "the second submission")
    state = bed.poll(allocation)
    assert "in the queue of Slurm as job" in state.reason
    for _ in range(3):
        bed.poll(allocation)
    assert bed.slurm.calls["sbatch"] == 2
