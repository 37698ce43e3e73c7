"""Traces of clusters: three formats, which part is taken, and what is left out."""

from __future__ import annotations

import pytest

from muster.cli.commands.simulate import command
from muster.control.scheduling.model import Need
from muster.errors import JobError
from muster.simulation.jobs import DAY_S
from muster.simulation.trace import Selection, nodes_for, read, select

SACCT = """JobID|User|Account|JobName|Partition|Submit|Start|End|Timelimit|NNodes|ReqTRES
7|ada|lab|train|gpu|2026-03-01T10:00:00|2026-03-01T10:30:00|2026-03-01T12:30:00|1-00:00:00|2|cpu=8,gres/gpu=16
7.0|||extern||2026-03-01T10:30:00|2026-03-01T10:30:00|2026-03-01T12:30:00||2|
8|bob|lab|test|gpu|2026-03-01T10:10:00|Unknown|Unknown|00:30:00|1|gres/gpu:a100=1
9|bob|lab|test|gpu|2026-03-01T09:00:00|2026-03-01T09:00:00|2026-03-01T09:05:00|30|1|gres/gpu:a100=1
"""
PODS = """name,num_gpu,gpu_milli,qos,creation_time,deletion_time
a,1,1000,LS,0,9000000
b,1,460,BE,8640000,8643600
c,8,1000,LS,8640060,8640120
"""


def test_a_slurm_export_gives_submission_length_gpus_limit_and_user():
    first, second = read(SACCT, "sacct")
    assert (second.run_s, second.num_gpus, second.num_nodes, second.limit_s) == (7200.0, 16, 2, DAY_S)
    assert (first.user, first.run_s, first.limit_s) == ("bob", 300.0, 1800.0)
    assert second.submitted_at - first.submitted_at == 3600.0
    assert second.traits == ("gpu", "ada", "train")


def test_the_columns_that_the_help_names_are_enough():
    line = "User|JobName|Partition|Submit|Start|End|Timelimit|NNodes|ReqTRES\n"
    told = line.strip().replace("|", ",")
    assert f"-o {told}" in (command.__doc__ or "")
    line += "ada|train|gpu|2026-03-01T10:00:00|2026-03-01T11:00:00|2026-03-01T13:00:00|UNLIMITED|2|gres/gpu=16\n"
    (found,) = read(line, "sacct")
    assert (found.run_s, found.num_gpus, found.num_nodes, found.limit_s) == (7200.0, 16, 2, None)


def test_a_plain_table_needs_three_columns_with_or_without_a_header():
    with_header = read("start,length,gpus,user,limit\n0,60,2,ada,01:00:00\n", "csv")[0]
    assert (with_header.run_s, with_header.num_gpus, with_header.limit_s) == (60.0, 2, 3600.0)
    assert [entry.run_s for entry in read("10,60,2\n0,30,1\n", "csv")] == [30.0, 60.0]


def test_pods_of_almost_empty_days_are_left_out_and_long_ones_are_cut():
    entries = read(PODS + "".join(f"d{n},1,1000,LS,{8640000 + n},{9640000 + n}\n" for n in range(30)), "pods")
    found = select(entries, Selection(), 8, 16)
    assert len(found.jobs) == 32 and found.jobs[0].gang.queued_at == 0.0
    assert max(job.run_s for job in found.jobs) == 7 * DAY_S
    assert any("almost empty days" in text for text in found.left_out)
    assert any("30 jobs did after 7 days" in text for text in found.left_out)
    assert {job.gang.need for job in found.jobs} == {Need(1, 1, 1), Need(1, 8, 8)}
    assert all(job.gang.limit_s >= job.run_s for job in found.jobs)


def test_a_job_wider_than_a_node_takes_several_and_one_wider_than_all_none():
    entries = read("0,60,16\n0,60,64\n", "csv")
    found = select(entries, Selection(), 8, 16)
    assert [job.gang.need for job in found.jobs] == [Need(2, 8, 8)]
    assert found.left_out == ("1 jobs with more than 16 GPUs",)
    assert nodes_for(entries, 8) == 8


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\ufffd\x00PK,b\n1,2\n", "is not a table of jobs"),
        ("a,b\n1,2\n", "has the columns a, b"),
        ("", "month.csv is empty"),
        ("start,length,gpus\n0,soon,1\n", "line 2: column length: 'soon' is not a number of seconds"),
        ("start,length,gpus\n0,10,1\n0,nan,1\n", "line 3: column length: 'nan'"),
        ("start,length,gpus\n1e999,10,1\n", "line 2: column start: '1e999'"),
        ("start,length,gpus\n0,10,-2\n", "line 2: column gpus: '-2' is not a number of 0 or more"),
        ("num_gpu,creation_time,deletion_time\n1,0,later\n", "line 2: column deletion_time: 'later'"),
        (SACCT.replace("2026-03-01T10:00:00", "then"), "line 2: column submit: 'then' is not a number of seconds or a"),
        ("start,length,gpus\n0,10,0\n", "has no job that used a GPU"),
    ],
)
def test_what_is_no_trace_is_refused_with_what_would_be_one(text, said):
    with pytest.raises(JobError, match=said) as error:
        read(text, "month.csv")
    assert "sacct" in error.value.hint
