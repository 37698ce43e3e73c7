"""Many gangs as one job array: one call, whose each task is, and what happens where a site takes less."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.unit.engines.slurm.test_engine import Bed

from muster.engines.base import GangRequest
from muster.engines.slurm.arrays import MOST_TASKS, JobArray, ranges
from muster.engines.slurm.commands import Commands
from muster.engines.slurm.engine import SlurmEngine
from muster.testing.slurm import FakeSlurm


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    made = Bed(tmp_path, FakeSlurm())
    yield made
    made.engine.close()


def gangs(bed: Bed, count: int, nodes: int = 1, **options: object) -> list[GangRequest]:
    return [bed.allocation(f"ab-run{index}.1", nodes, **options) for index in range(count)]


def states(bed: Bed, requests: list[GangRequest]) -> list[str]:
    bed.now += 10.0
    found = bed.engine.poll(requests)
    return [found[request.id].reason for request in requests]


def all_queued(bed: Bed, requests: list[GangRequest]) -> list[str]:
    def reasons() -> list[str] | None:
        said = states(bed, requests)
        return said if all(text.startswith("in the queue of Slurm as job") for text in said) else None

    return wait_until(reasons, 20, "all jobs in the queue")


def test_a_thousand_gangs_are_one_sbatch_and_one_squeue_per_poll(bed: Bed):
    many = gangs(bed, 1000)
    scripts = bed.engine.submit_many(many)
    assert len(scripts) == 1000 and len(set(scripts.values())) == 1
    said = all_queued(bed, many)
    assert "job 1_999:" in said[999]
    assert bed.slurm.calls["sbatch"] == 1
    before = bed.slurm.calls["squeue"]
    states(bed, many)
    assert bed.slurm.calls["squeue"] == before + 1
    job = bed.engine.job(many[7])
    assert job is not None and (job.id, job.name) == ("1_7", "run7.1@muster-ab")
    assert (bed.folder / "nodes/run7.1.0/slurm.job").read_text() == "1_7"


def test_a_task_runs_and_ends_for_its_own_run_alone(bed: Bed):
    one, two, three = many = gangs(bed, 3)
    bed.engine.submit_many(many)
    all_queued(bed, many)
    bed.slurm.move("1_0", state="RUNNING", nodes="n1")
    bed.slurm.move("1_1", state="CANCELLED")
    assert "on n1" in bed.poll(one).reason
    ending = bed.poll(two).ending
    assert ending is not None and ending.code == "cancelled"
    bed.engine.release(three, followed=False)
    wait_until(lambda: bed.slurm.jobs["1_2"].state == "CANCELLED", 10, "the cancel")
    assert bed.slurm.jobs["1_0"].state == "RUNNING"


def test_a_task_that_was_cancelled_while_it_waited_and_left_no_record(bed: Bed):
    many = gangs(bed, 3)
    bed.engine.submit_many(many)
    all_queued(bed, many)
    bed.slurm.forget("1_1")
    for _ in range(2):
        ending = bed.poll(many[1]).ending
        assert ending is not None and ending.code == "cancelled"
    bed.engine.release(many[1], followed=False)
    bed.slurm.forget("1_0")
    bed.engine.release(many[0], followed=False)
    assert bed.poll(many[2]).ending is None
    assert [job.id for job in bed.engine._jobs.values()] == ["1_2"]


def test_a_task_that_slurm_requeued_is_the_next_attempt_of_its_run(bed: Bed):
    many = gangs(bed, 2)
    bed.engine.submit_many(many)
    all_queued(bed, many)
    bed.slurm.move("1_1", state="PENDING", restarts=1)
    assert bed.poll(bed.allocation("ab-run1.2", 1)).reason.startswith("in the queue of Slurm as job 1_1")


def test_gangs_that_ask_for_other_things_are_apart(bed: Bed):
    small, large = gangs(bed, 2), [bed.allocation(f"ab-wide{index}.1", 2) for index in range(2)]
    again = [bed.allocation("ab-late.2", 1)]
    keeps_off = [replace(item, gang=replace(item.gang, excluded=("n1",))) for item in gangs(bed, 1)]
    many = [*small, *large, *again, *[replace(item, id="ab-off.1") for item in keeps_off]]
    assert bed.engine.submit_many(many).keys() == {item.id for item in (*small, *large)}
    wait_until(lambda: len(bed.slurm.jobs) == 6, 10, "the submissions")
    assert bed.slurm.calls["sbatch"] == 4


def test_more_than_an_array_takes_are_several(bed: Bed):
    bed.engine.submit_many(gangs(bed, MOST_TASKS + 2))
    wait_until(lambda: len(bed.slurm.jobs) == MOST_TASKS + 2, 10, "the submissions")
    assert bed.slurm.calls["sbatch"] == 2


def test_the_next_server_knows_whose_each_task_is(bed: Bed):
    many = gangs(bed, 3)
    bed.engine.submit_many(many)
    all_queued(bed, many)
    bed.engine.close()
    bed.engine = bed.new_engine()
    # One came in between, so that the next server would put together others.
    late = bed.allocation("ab-late.1", 1)
    bed.engine.submit_many([*many, late])
    all_queued(bed, [*many, late])
    assert len(bed.slurm.jobs) == 4


def test_an_answer_that_was_lost_leads_to_no_second_array(bed: Bed):
    bed.slurm.lost_answers = 1
    many = gangs(bed, 3)
    bed.engine.submit_many(many)
    all_queued(bed, many)
    assert len(bed.slurm.jobs) == 3


def test_a_throttle_is_slurms_to_keep(bed: Bed):
    script = next(iter(bed.engine.submit_many(gangs(bed, 5, array_limit=2)).values()))
    assert "#SBATCH --array=0-4%2\n" in script


class Sparing(FakeSlurm):
    """Takes so many jobs, and no more; or no arrays at all."""

    room = 3
    arrays = True

    def _sbatch(self, command, stdin):
        tasks = next((word for word in command if word.startswith("--array=")), "")
        if tasks and not self.arrays:
            return 1, "", "sbatch: error: Batch job submission failed: Invalid job array specification"
        first, _, last = tasks.removeprefix("--array=").partition("-")
        wanted = int(last or first) - int(first) + 1 if tasks else 1
        open_jobs = [job for job in self.jobs.values() if job.state == "PENDING"]
        if len(open_jobs) + wanted > self.room:
            return 1, "", "sbatch: error: Job violates accounting/QOS policy (job submit limit)"
        return super()._sbatch(command, stdin)


def sparing(bed: Bed) -> Sparing:
    slurm = Sparing()
    bed.slurm = slurm
    bed.engine = SlurmEngine(Commands(slurm.run, wait=lambda _: None), clock=lambda: bed.now)
    return slurm


def test_where_a_site_takes_only_some_the_others_wait(bed: Bed):
    slurm = sparing(bed)
    many = gangs(bed, 8)
    bed.engine.submit_many(many)
    wait_until(lambda: len(slurm.jobs) == 3, 10, "as many as the site takes")
    wait_until(lambda: sum("takes no further job now" in text for text in states(bed, many)) == 5, 10, "the others")
    slurm.room = 100
    all_queued(bed, many)
    assert len({job.id for job in slurm.jobs.values()}) == 8


def test_where_a_site_takes_no_arrays_each_gets_a_job_of_its_own(bed: Bed):
    slurm = sparing(bed)
    slurm.arrays, slurm.room = False, 100
    many = gangs(bed, 3)
    bed.engine.submit_many(many)
    all_queued(bed, many)
    assert {job.name for job in slurm.jobs.values()} == {f"run{index}.1@muster-ab" for index in range(3)}


def test_one_that_was_given_up_on_its_way_does_not_stay(bed: Bed):
    many = gangs(bed, 3)
    bed.engine.nodes(many[0].cluster)
    bed.slurm.busy = 1
    bed.engine.submit_many(many)
    bed.engine.release(many[1], followed=False)

    def others_wait() -> bool:
        return {job.id for job in bed.slurm.jobs.values() if job.state == "PENDING"} == {"1_0", "1_2"}

    wait_until(others_wait, 10, "the others")


def test_the_script_finds_its_run_by_the_number_of_its_task(bed: Bed):
    script = next(iter(bed.engine.submit_many(gangs(bed, 3)).values()))
    chosen = "\n".join(line for line in script.splitlines() if line.startswith(("run=", "export MUSTER_NODES=")))
    shell = f"{chosen}\necho $MUSTER_NODES"
    environment = {"SLURM_ARRAY_TASK_ID": "2", "SLURM_RESTART_COUNT": "1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["bash", "-c", shell], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{bed.folder}/nodes/run2.2"


def test_arrays_of_other_runs_have_other_names(tmp_path: Path):
    one, two = (JobArray(runs, 1, "ab", tmp_path) for runs in (("a", "b"), ("a", "c")))
    assert one.name != two.name and one.name.startswith("a.1+1-") and one.name.endswith("@muster-ab")


def test_ranges():
    assert [ranges(numbers) for numbers in ([3], [0, 1, 2], [5, 1, 2, 9])] == ["3", "0-2", "1-2,5,9"]
