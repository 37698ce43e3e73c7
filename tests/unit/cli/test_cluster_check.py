"""What a check of a cluster says."""

from __future__ import annotations

from dataclasses import replace

from muster.cli.checking.gang import NodeReport, Window, judge
from muster.cli.console import Paint
from muster.cli.views.findings import finding_lines
from muster.wire.clusters import Finding

WELL = NodeReport(0, "a", "3.11.7", 1000.0, 50 << 30, 50 << 30, "2.13.0", True, True, 0.01)
WINDOW = Window(990.0, 1010.0)


def judged(*reports: NodeReport, shared: bool = True) -> dict[str, Finding]:
    names = {report.rank: f"n{report.rank + 1}" for report in reports}
    return {finding.topic: finding for finding in judge(reports, names, WINDOW, shared)}


def test_two_nodes_in_order_are_said_to_be():
    found = judged(WELL, replace(WELL, rank=1))
    assert {finding.level for finding in found.values()} == {"ok"}
    assert found["all-reduce"].said == "2 nodes added up on n1 and n2 in 0.0s"


def test_what_is_wrong_is_said_of_the_node_that_has_it():
    bad = replace(
        WELL, rank=1, python="3.9.2", at=WELL.at - 7200, temporary_free_bytes=1 << 30, sees_folder=False, torch=""
    )
    found = judged(WELL, bad)
    assert (found["versions"].level, found["versions"].said) == ("fail", "Python 3.11.7, 3.9.2; torch 2.13.0, none")
    assert (found["folder"].level, found["folder"].said) == ("fail", "n2 cannot use the workspace's folder")
    assert (found["node disk"].level, found["node disk"].said) == ("warn", "only 1.1 GB are free on n2")
    assert (found["clocks"].level, found["clocks"].said) == ("fail", "n2 is 1h 59m behind")


def test_one_node_tells_nothing_about_the_network_and_ray_needs_no_folder():
    found = judged(replace(WELL, sees_folder=False, at=5000.0), shared=False)
    assert found["all-reduce"].level == "warn"
    assert found["folder"].level == "ok"
    assert found["clocks"].said == "n1 is 1h 06m ahead"


def test_lines_fit_the_terminal():
    findings = [Finding("reach", "fail", "word " * 30, "advice " * 20), Finding("disk", "ok", "fine")]
    lines = finding_lines(findings, Paint(False), 60)
    assert max(map(len, lines)) <= 60
    assert lines[0].startswith("fail  reach  word word")
    assert lines[-1] == "ok    disk   fine"
