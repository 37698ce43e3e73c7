"""What Slurm's commands print, old and new, read into the same data; and what it means, in plain words."""

from __future__ import annotations

from datetime import datetime

import pytest

from muster.engines.base import Ending
from muster.engines.slurm import explanations
from muster.engines.slurm.parsing import (
    Job,
    NodeInfo,
    host_names,
    limit_of,
    num_gpus,
    sacct_text,
    seconds_of,
    sinfo_text,
    squeue_text,
    usage_text,
    version_of,
)
from muster.wire.queue_jobs import JobUsage


def test_text_columns_are_read_by_their_width_whatever_they_hold():
    reason = "ReqNodeNotAvail, UnavailableNodes:n[1-4]"
    values = (
        "7",
        "PENDING",
        reason,
        "0",
        "0:00",
        "1-00:00:00",
        "gpu,batch",
        "nlp",
        "(null)",
        "2026-01-31T10:00:00",
        "",
    )
    widths = (24, 24, 80, 12, 24, 24, 120, 80, 80, 24, 400, 260)
    line = "".join(value.ljust(width) for value, width in zip((*values, "muster-b.1"), widths, strict=True))
    at = datetime(2026, 1, 31, 10).timestamp()
    expected = Job("7", "muster-b.1", "PENDING", reason, 0, 0.0, 86_400.0, "", at, "gpu,batch", "nlp", "")
    assert squeue_text(line + "\n\n") == [expected]


def test_a_node_of_several_partitions_is_one_node_with_the_longest_limit():
    line = "n1|idle|4|1000|{}|gpu:2|n1|none"
    two = sinfo_text("\n".join([line.format("1:00:00"), line.format("3:00:00"), line.format("2:00:00")]))
    assert [(node.name, node.limit_s) for node in two] == [("n1", 10_800.0)]
    assert sinfo_text("\n".join([line.format("1:00:00"), line.format("infinite")]))[0].limit_s is None


USAGE = """\
12|COMPLETED|0:0|62|00:58.250||3400
12.batch|COMPLETED|0:0|62|00:01.000|2048K|0
12.0|COMPLETED|0:0|61|00:57.250|1.5G|3400
13|RUNNING|0:0|5|00:00:00||0
14|CANCELLED by 1000|0:15|3|01:02:03||
garbage
"""


def test_what_jobs_used_is_read_of_those_that_are_over():
    used = usage_text(USAGE)
    assert used == {
        "12": JobUsage("COMPLETED", "0:0", 62.0, 58.25, 1_610_612_736, 3400.0),
        "14": JobUsage("CANCELLED", "0:15", 3.0, 3723.0, None, None),
    }


def test_nodes_are_read_once_each_with_their_gpus_and_limit():
    text = (
        "g1|mixed|96|1000000|2-00:00:00|gpu:a100:4(S:0-1),nvme:1|10.0.0.7|none\n"
        "g1|mixed|96|1000000|2-00:00:00|gpu:a100:4(S:0-1),nvme:1|10.0.0.7|none\n"
        "c1|down*|64+|256000+|infinite|(null)|c1|Not responding | disk\nrubbish\n"
    )
    first, second = sinfo_text(text)
    assert (first.name, first.gpus, first.limit_s) == ("g1", 4, 172_800.0)
    assert (second.cpus, second.memory_mb, second.limit_s, second.gpus) == (64, 256_000, None, 0)
    assert second.reason == "Not responding | disk"
    assert (first.address, second.address) == ("10.0.0.7", "c1")
    assert (first.is_lost, second.is_lost) == (False, True)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3,7],m5", ["n1", "n2", "n3", "n7", "m5"]),
        ("rack[08-10]-gpu", ["rack08-gpu", "rack09-gpu", "rack10-gpu"]),
        ("a[1-2]b[3-4]", ["a1b3", "a1b4", "a2b3", "a2b4"]),
        ("", []),
    ],
)
def test_lists_of_hosts_are_read_as_slurm_writes_them(text: str, names: list[str]):
    assert host_names(text) == names


def test_the_accounting_tells_how_a_job_ended_even_who_cancelled_it():
    text = "7|CANCELLED by 1000|muster-b.1\n8|COMPLETED|muster-b.1\n9|FAILED|other\n"
    assert sacct_text(text, "muster-b.1") == Job("8", "muster-b.1", "COMPLETED")
    assert sacct_text("", "muster-b.1") is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400.0), ("10:30", 630.0), ("2:00:00", 7200.0), ("1-00:00:00", 86_400.0), ("2-12", 216_000.0)],
)
def test_times_are_read_as_slurm_writes_them(text: str, seconds: float):
    assert seconds_of(text) == seconds


def test_what_is_no_time_has_no_limit():
    assert [limit_of(text) for text in ("UNLIMITED", "infinite", "INVALID", "NOT_SET", "")] == [None] * 5


def test_gpus_are_counted_in_every_spelling():
    assert [num_gpus(text) for text in ("gpu:4", "gpu:a100:2(IDX:0-1),gpu:1", "gpu", "(null)", "nvme:2")] == [
        4,
        3,
        1,
        0,
        0,
    ]


def test_versions_of_both_packagings_are_read():
    assert [version_of(text) for text in ("slurm 23.11.4", "slurm-wlm 22.05.8", "?")] == [(23, 11), (22, 5), (0, 0)]


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("Resources", "waits until enough nodes are free (Resources)"),
        ("", "Slurm has not looked at it yet"),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-4]",
         "a node that it needs is down, drained or reserved (ReqNodeNotAvail, UnavailableNodes:n[1-4])"),
        ("QOSMaxGRESPerUser", "the limit of the quality of service on GPUs is reached (QOSMaxGRESPerUser)"),
        ("QOSMaxJobsPerUserLimit", "the limit of the quality of service on jobs is reached (QOSMaxJobsPerUserLimit)"),
        ("AssocGrpNodeLimit", "the limit of the account on nodes by all of its users together is reached "
         "(AssocGrpNodeLimit)"),
        ("SomethingNew", "Slurm says SomethingNew"),
    ],
)  # fmt: skip
def test_reasons_are_said_in_plain_words(reason: str, said: str):
    assert explanations.why_it_waits(Job("5", "x", "PENDING", reason)) == f"in the queue of Slurm as job 5: {said}"


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("CANCELLED", "cancelled"),
        ("TIMEOUT", "timeout"),
        ("PREEMPTED", "preempted"),
        ("NODE_FAIL", "node_lost"),
        ("OUT_OF_MEMORY", "host_oom"),
        ("COMPLETED", ""),
        ("FAILED", ""),
    ],
)
def test_ends_become_verdicts(state: str, code: str):
    assert explanations.how_it_ended(Job("5", "x", state, limit_s=36_000.0, used_s=60.0), False, 60).code == code


def test_a_chained_run_goes_on_after_its_slice_also_where_it_left_at_the_warning():
    job = Job("5", "x", "TIMEOUT", limit_s=14_400.0)
    assert explanations.how_it_ended(job, True, 60) == Ending(
        "time_slice", "the time limit of 4 h of Slurm job 5 is reached"
    )
    warned = Job("5", "x", "COMPLETED", limit_s=14_400.0, used_s=14_330.0)
    assert explanations.how_it_ended(warned, True, 60).code == "time_slice"
    assert explanations.how_it_ended(Job("5", "x", "COMPLETED", limit_s=14_400.0, used_s=100.0), True, 60).code == ""


@pytest.mark.parametrize(
    ("state", "shown"),
    [("idle", "idle"), ("mixed", "running"), ("allocated+", "running"), ("drained", "unusable"), ("down*", "unusable"),
     ("idle*", "unusable"), ("powering_up", "preparing")],
)  # fmt: skip
def test_nodes_have_the_states_of_every_cluster(state: str, shown: str):
    assert explanations.node_state(NodeInfo("n", state, 1, 1, "", None))[0] == shown
