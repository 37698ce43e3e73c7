"""The scaling study: sizes, turns, efficiency, going on after a break, and its picture."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from muster.cli.scaling import study
from muster.cli.scaling.study import Sample, Size, Study
from muster.errors import Conflict, JobError
from muster.job.explain import make_spec


def job(**parts: Any) -> Any:
    return make_spec({"command": "python train.py", **parts})


def a_study(**parts: Any) -> Study:
    sizes = (Size(1, 1, 1), Size(2, 1, 2), Size(4, 1, 4))
    return Study(**{"key": "k", "job": "resnet", "metric": "images_per_sec", "sizes": sizes, "repeats": 1, **parts})


def measured(*values: float, repeats: int = 1) -> Study:
    made = a_study(repeats=repeats)
    for (size, turn), value in zip(made.left(), values, strict=False):
        made = made.add(Sample(size.procs, turn, f"r-{size.procs}-{turn}", value))
    return made


@pytest.mark.parametrize("text", ["", "0,1", "1,two", "1,,2", "2,1", "1,1", "-1", "1.5"])
def test_process_counts_that_make_no_study_are_refused_with_what_was_given(text: str) -> None:
    with pytest.raises(JobError, match="--procs"):
        study.parse_procs(text)


def test_a_job_on_one_node_keeps_all_processes_on_it() -> None:
    spec = job(distribution={"type": "pytorch", "process_count_per_instance": 2})
    assert study.sizes_of(spec, (1, 2, 4), None) == (Size(1, 1, 1), Size(2, 1, 2), Size(4, 1, 4))


def test_a_job_on_several_nodes_fills_nodes_as_the_job_file_does() -> None:
    spec = job(resources={"instance_count": 2}, distribution={"type": "pytorch", "process_count_per_instance": 2})
    assert study.sizes_of(spec, (1, 2, 4), None) == (Size(1, 1, 1), Size(2, 1, 2), Size(4, 2, 2))


def test_processes_that_do_not_divide_over_nodes_are_refused() -> None:
    with pytest.raises(JobError, match="3 processes do not divide over nodes with 2 each"):
        study.sizes_of(job(distribution={"type": "mpi", "process_count_per_instance": 2}), (2, 3), 2)


def test_one_process_a_node_means_that_nodes_are_counted() -> None:
    spec = job(distribution={"type": "pytorch"}, resources={"instance_count": 2})
    assert study.sizes_of(spec, (1, 2), None) == (Size(1, 1, None), Size(2, 2, None))
    with pytest.raises(JobError, match="--per-node 4"):
        study.sizes_of(spec, (1, 2), 4)


def test_sizes_take_turns_when_they_are_repeated() -> None:
    assert [(size.procs, turn) for size, turn in a_study(repeats=2).left()] == [
        (1, 1),
        (2, 1),
        (4, 1),
        (1, 2),
        (2, 2),
        (4, 2),
    ]


def test_efficiency_is_measured_against_the_smallest_size() -> None:
    rows = measured(100.0, 190.0, 300.0).rows()
    assert [(row.speedup, row.ideal, row.efficiency) for row in rows] == [
        (1.0, 100.0, 1.0),
        (1.9, 200.0, 0.95),
        (3.0, 400.0, 0.75),
    ]


def test_an_efficiency_that_cannot_well_be_true_is_said() -> None:
    assert study.doubts(measured(100, 190, 230).rows()) == []
    (text,) = study.doubts(measured(100, 260, 400).rows())
    assert "an efficiency of 130 % with 2 processes: the run with 1 was slowed" in text and "--repeat 3" in text


def test_the_median_of_repeats_counts() -> None:
    rows = measured(100, 200, 400, 90, 100, 400, 110, 210, 500, repeats=3).rows()
    assert [row.value for row in rows] == [100, 200, 400]


def test_a_study_comes_back_from_its_file_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "scaling.json"
    half = replace(measured(100.0, 190.0), code="d1")
    study.write(path, half)
    found = study.read(path)
    assert found == half
    assert [size.procs for size, _ in study.resume(found, a_study(code="d1")).left()] == [4]
    assert json.loads(path.read_text())["rows"][1]["efficiency"] == 0.95


def test_a_study_of_another_job_is_not_mixed_with_this_one() -> None:
    with pytest.raises(Conflict, match="another job"):
        study.resume(measured(1.0), a_study(key="other"))


def test_runs_of_other_code_are_not_kept() -> None:
    wanted = a_study(code="new", metric="")
    assert study.resume(replace(measured(1.0, 2.0), code="old"), wanted) == wanted
    kept = study.resume(replace(measured(1.0, 2.0), code="new"), wanted)
    assert [size.procs for size, _ in kept.left()] == [4]


def test_a_file_from_before_the_code_was_noted_is_of_other_code(tmp_path: Path) -> None:
    path = tmp_path / "scaling.json"
    study.write(path, measured(1.0))
    data = json.loads(path.read_text())
    del data["code"]
    path.write_text(json.dumps(data))
    wanted = a_study(code="new")
    assert study.resume(study.read(path), wanted) == wanted


def test_a_size_that_is_laid_out_otherwise_is_measured_again() -> None:
    wanted = a_study(sizes=(Size(1, 1, 1), Size(2, 2, 1)))
    assert [size.procs for size, _ in study.resume(measured(1.0, 2.0), wanted).left()] == [2]


def test_a_file_that_is_no_study_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "scaling.json"
    path.write_text("[]")
    with pytest.raises(Conflict, match="not a scaling study"):
        study.read(path)
