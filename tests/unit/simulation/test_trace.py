"""Traces of clusters: three formats, which part is taken, and what is left out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.cli.commands.simulate import command
from muster.control.scheduling.model import Need
from muster.errors import JobError
from muster.simulation.columns import Entry
from muster.simulation.jobs import DAY_S, Machines
from muster.simulation.lines import decoded
from muster.simulation.simulator import POLICIES, WITHOUT_LIMITS, simulate
from muster.simulation.trace import Selection, nodes_for, part, read, select

SACCT = """JobID|User|Account|JobName|Partition|Submit|Start|End|Timelimit|NNodes|ReqTRES
7|ada|lab|train|gpu|2026-03-01T10:00:00|2026-03-01T10:30:00|2026-03-01T12:30:00|1-00:00:00|2|cpu=8,gres/gpu=16
7.0|||extern||2026-03-01T10:30:00|2026-03-01T10:30:00|2026-03-01T12:30:00||2|
8|bob|lab|test|gpu|2026-03-01T10:10:00|Unknown|Unknown|00:30:00|1|gres/gpu:a100=1
9|bob|lab|test|gpu|2026-03-01T09:00:00|2026-03-01T09:00:00|2026-03-01T09:05:00|30|1|gres/gpu:a100=1
"""
STEPS = """7.batch||lab|batch||2026-03-01T10:30:00|2026-03-01T10:30:00|2026-03-01T12:30:00||1|gres/gpu=8
7.0||lab|python||2026-03-01T10:30:00|2026-03-01T10:30:00|2026-03-01T12:30:00||1|gres/gpu=8
"""
HEADER, JOB, *_ = SACCT.splitlines()
PODS = """name,num_gpu,gpu_milli,qos,creation_time,deletion_time
a,1,1000,LS,0,9000000
b,1,460,BE,8640000,8643600
c,8,1000,LS,8640060,8640120
"""


def test_a_slurm_export_gives_submission_length_gpus_limit_and_user():
    first, second = read(SACCT, "sacct").entries
    assert (second.run_s, second.num_gpus, second.num_nodes, second.limit_s) == (7200.0, 16, 2, DAY_S)
    assert (first.user, first.run_s, first.limit_s) == ("bob", 300.0, 1800.0)
    assert second.submitted_at - first.submitted_at == 3600.0
    assert second.traits == ("gpu", "ada", "train")


def test_the_columns_that_the_help_names_are_enough():
    line = "User|JobName|Partition|Submit|Start|End|Timelimit|NNodes|ReqTRES\n"
    told = line.strip().replace("|", ",")
    assert f"-o {told}" in (command.__doc__ or "")
    line += "ada|train|gpu|2026-03-01T10:00:00|2026-03-01T11:00:00|2026-03-01T13:00:00|UNLIMITED|2|gres/gpu=16\n"
    (found,) = read(line, "sacct").entries
    assert (found.run_s, found.num_gpus, found.num_nodes, found.limit_s) == (7200.0, 16, 2, None)


def test_a_plain_table_needs_three_columns_with_or_without_a_header():
    with_header = read("start,length,gpus,user,limit\n0,60,2,ada,01:00:00\n", "csv").entries[0]
    assert (with_header.run_s, with_header.num_gpus, with_header.limit_s) == (60.0, 2, 3600.0)
    assert [entry.run_s for entry in read("10,60,2\n0,30,1\n", "csv").entries] == [30.0, 60.0]


def test_pods_of_almost_empty_days_are_left_out_and_long_ones_are_cut():
    entries = read(PODS + "".join(f"d{n},1,1000,LS,{8640000 + n},{9640000 + n}\n" for n in range(30)), "pods").entries
    found = select(entries, Selection(), 8, 16)
    assert len(found.jobs) == 32 and found.jobs[0].gang.queued_at == 0.0
    assert max(job.run_s for job in found.jobs) == 7 * DAY_S
    assert any("almost empty days" in text for text in found.left_out)
    assert any("30 jobs did after 7 days" in text for text in found.left_out)
    assert {job.gang.need for job in found.jobs} == {Need(1, 1, 1), Need(1, 8, 8)}
    assert all(job.gang.limit_s >= job.run_s for job in found.jobs)


def test_a_job_wider_than_a_node_takes_several_and_one_wider_than_all_none():
    entries = read("0,60,16\n0,60,64\n", "csv").entries
    found = select(entries, Selection(), 8, 16)
    assert [job.gang.need for job in found.jobs] == [Need(2, 8, 8)]
    assert found.left_out == ("1 job with more than 16 GPUs",)
    assert nodes_for(entries, 8) == 8


def test_nodes_are_counted_for_the_part_that_is_taken():
    quiet = [f"{day * DAY_S},3600,1" for day in range(100)]
    busy = [f"{100 * DAY_S + n * 60},36000,8" for n in range(2000)]
    entries = read("start,length,gpus\n" + "\n".join(quiet + busy), "month.csv").entries
    assert nodes_for(part(entries, Selection()), 8) > 20 * nodes_for(entries, 8)
    assert part(entries, Selection(from_day=1000)) == []


def test_steps_are_no_jobs_even_where_their_numbers_are_not_exported():
    without_numbers = "".join(line.split("|", 1)[1] + "\n" for line in (HEADER, JOB, *STEPS.splitlines()))
    assert len(read(without_numbers, "sacct").entries) == 1
    assert len(read(f"{HEADER}\n{JOB}\n{STEPS}", "sacct").entries) == 1


def test_a_quotation_mark_in_the_name_of_a_job_swallows_no_lines():
    lines = [JOB.replace("train", '"my'), JOB, JOB.replace("train", "a|b")] + [JOB] * 200
    found = read("\n".join([HEADER, *lines]), "sacct")
    assert len(found.entries) == 202
    assert found.left_out == (
        "lines that cannot be read: 1 (the first is line 4: 12 fields, but there are 11 columns "
        "(does a value contain the separator?))",
    )


@pytest.mark.parametrize(
    ("column", "value", "gpus"),
    [
        ("ReqTRES", "cpu=1,gres/gpu:a100=2,gres/gpu:v100=1", 3),
        ("ReqTRES", "gres/gpu:a100=2,gres/gpu=2,gres/gpumem=80G", 2),
        ("AllocTRES", "billing=8,gres/gpu=8", 8),
        ("ReqGRES", "gpu:tesla:2", 4),
        ("AllocGRES", "gres:gpu:2", 4),
        ("AllocGRES", "gpu:a100:2(IDX:0-1),craynetwork:1", 4),
    ],
)
def test_gpus_are_found_wherever_a_slurm_names_them(column, value, gpus):
    """Those of GRES are of each of the two nodes."""
    text = f"{HEADER.replace('ReqTRES', column)}\n{JOB.rsplit('|', 1)[0]}|{value}\n"
    assert read(text, "sacct").entries[0].num_gpus == gpus


def test_gpus_that_nobody_asked_for_but_the_job_held_count():
    text = f"{HEADER}|AllocTRES\n{JOB.rsplit('|', 1)[0]}|billing=1,cpu=1|billing=8,gres/gpu=8\n"
    assert read(text, "sacct").entries[0].num_gpus == 8


def test_what_never_ran_is_counted_and_what_still_runs_counts_as_long_as_it_has():
    never = [
        JOB.replace("2026-03-01T10:30:00", "None"),
        JOB.replace("2026-03-01T10:30:00|2026-03-01T12:30:00", "Unknown|Unknown"),
        JOB.replace("2026-03-01T12:30:00", "2026-03-01T10:30:00"),
        JOB.replace("2026-03-01T12:30:00", "Unknown"),
    ]
    found = read("\n".join([HEADER, JOB.replace("gres/gpu=16", ""), *never, JOB]), "sacct")
    assert len(found.entries) == 1
    assert found.left_out == ("4 jobs that had not started or not ended", "1 job without GPUs")
    still = "\n".join([HEADER + "|ElapsedRaw", never[3] + "|600"])
    assert read(still, "sacct").entries[0].run_s == 600.0


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffstart,length,gpus\n60,120,2\n",
        "# our month\n\nstart;length;gpus\r\n60;120;2\r\n",
        "start\tlength\tgpus\n60\t2m\t2\n",
        "GPUs, Start, Length, Notes\n2, 60, 00:02:00,\n",
        "submit_time,duration,num_gpus\n60,120,2\n",
        "submit,start,end,gpus,limit\n60,100,220,2,UNLIMITED\n",
        "start,length,gpus,gpu\n1970-01-01T01:01:00+01:00,120,1.5,A100\n",
        "60;120;2\n",
        "start,length,gpus\n1970-01-01 00:01:00 UTC,2 minutes,2\n",
        "start,length,gpus\n60,1m 60s,2\n",
        "start,length,gpus\n60,0 days 00:02:00.5,2\n",
    ],
)
def test_tables_are_read_as_people_and_spreadsheets_write_them(text):
    (found,) = read(text, "month.csv").entries
    assert (found.submitted_at, found.run_s, found.num_gpus, found.limit_s) == (60.0, 120.0, 2, None)


def test_files_of_other_systems_are_decoded():
    text = "start,length,gpus\n60,120,2\n"
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        assert decoded(text.encode(encoding)) == text


def test_one_damaged_line_in_many_is_left_out_and_more_are_refused():
    text = "start,length,gpus\n" + "0,60,1\n" * 200
    found = read(text + "0,6", "month.csv")
    assert len(found.entries) == 200
    assert found.left_out == (
        "lines that cannot be read: 1 (the first is line 202: column gpus: '' is not a number of 0 or more)",
    )
    with pytest.raises(JobError, match=r"month\.csv, line 202: column length: 'x'"):
        read(text + "0,x,1\n" * 3, "month.csv")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\ufffd\x00PK,b\n1,2\n", "is not a table of jobs"),
        ('[{"start": 0, "length": 10, "gpus": 1}]', "is not a table of jobs"),
        ("a,b\n1,2\n", "has the columns a, b"),
        ("start,hours,gpus\n0,10,1\n", "has no column length; it has gpus, hours, start"),
        (SACCT.replace("ReqTRES", "State"), "has no column gpus or ReqTRES; it has Account, End"),
        (SACCT.replace("|End", "|Ended by"), "has no column End; it has Account, Ended by"),
        ("start,length,gpus\n", "month.csv has no job below its header"),
        ("", "month.csv is empty"),
        ("start,length,gpus\n0,soon,1\n", "line 2: column length: 'soon' is not a number of seconds"),
        ("start,length,gpus\n0,10,1\n0,nan,1\n", "line 3: column length: 'nan'"),
        ("start,length,gpus\n1e999,10,1\n", "line 2: column start: '1e999'"),
        (
            "start,length,gpus\n1767225600000,60,1\n",
            "line 2: column start: '1767225600000' is not .* .not milliseconds",
        ),
        ('start,length,gpus,name\n0,10,1,a\n0,10,1,"b\n0,10,1,c\n', "line 3: a quotation mark is never closed"),
        ("start,length,gpus\n0,10,-2\n", "line 2: column gpus: '-2' is not a number of 0 or more"),
        ("num_gpu,creation_time,deletion_time\n1,0,later\n", "line 2: column deletion_time: 'later'"),
        (SACCT.replace("2026-03-01T10:00:00", "then"), "line 2: column submit: 'then' is not a number of seconds"),
        ("start,length,gpus\n0,10,0\n", r"has no job that used a GPU and has ended \(1 job without GPUs\)"),
        ("start,length,gpus\n0,10,1,8\n", "line 2: 4 fields, but there are 3 columns"),
        ("JobID    Start\n-------- -----\n1 2026\n", "month.csv is aligned with spaces"),
        (JOB, "month.csv has no header line"),
        (f"start,length,gpus,name\n0,10,1,{'x' * 200_000}\n", "line 2: field larger than field limit"),
    ],
)
def test_what_is_no_trace_is_refused_with_what_would_be_one(text, said):
    with pytest.raises(JobError, match=said) as error:
        read(text, "month.csv")
    assert "sacct" in error.value.hint or "muster simulate --help" in error.value.hint


def test_a_length_below_nothing_is_called_so():
    found = read("start,length,gpus\n0,-50,1\n0,10,1\n", "month.csv")
    assert (len(found.entries), found.left_out) == (1, ("1 job of negative length",))
    ended = read("start,end,gpus\n100,50,1\n0,10,1\n", "month.csv")
    assert ended.left_out == ("1 job of negative length",)


def test_a_trace_of_centuries_is_refused_before_it_is_simulated_for_hours():
    entries = read("start,length,gpus\n0,100,1\n2000000000,100,1\n", "month.csv").entries
    with pytest.raises(JobError, match="the trace is of 23,148 days, and at most 3,660 are simulated"):
        select(entries, Selection(), 8, 16)
    assert len(select(entries, Selection(days=1), 8, 16).jobs) == 1


def test_a_job_of_more_nodes_than_there_are_takes_fewer_and_waits_for_no_others():
    entries = read("start,length,gpus,nodes\n0,60,4,4\n0,60,9,99999999999\n", "month.csv").entries
    found = select(entries, Selection(), 8, 16)
    assert [job.gang.need for job in found.jobs] == [Need(1, 4, 4), Need(2, 5, 5)]
    outcome = simulate(Machines(2, 8, found.days), found.jobs, WITHOUT_LIMITS)
    assert min(outcome.waits_s) >= 0


traces = st.lists(
    st.tuples(
        st.floats(0.0, 2 * DAY_S),
        st.floats(1.0, 10 * DAY_S),
        st.integers(1, 40),
        st.one_of(st.none(), st.integers(1, 40)),
        st.one_of(st.none(), st.floats(1.0, DAY_S)),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=30)
@given(traces, st.sampled_from(list(POLICIES.values())))
def test_whatever_a_trace_has_every_job_that_is_taken_starts_and_none_before_it_came(found, policy):
    entries = sorted((Entry(*each) for each in found), key=lambda entry: entry.submitted_at)
    fitting = [entry for entry in entries if entry.num_gpus <= 16]
    if not fitting:
        return
    taken = select(entries, Selection(from_day=0), 8, 16)
    outcome = simulate(Machines(2, 8, taken.days), taken.jobs, policy)
    assert len(outcome.waits_s) == len(fitting) and min(outcome.waits_s) >= 0


def test_one_absurd_figure_adds_no_nodes():
    entries = read("start,length,gpus\n0,60,4\n0,60,999999999999\n", "month.csv").entries
    assert nodes_for(entries, 8) == 1
    with pytest.raises(JobError, match=r"left out: 1 job with more than 8 GPUs"):
        select(entries[1:], Selection(), 8, 8)
