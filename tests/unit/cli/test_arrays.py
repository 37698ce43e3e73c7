"""`--array`: which values there are, and what tells the runs apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.cli.arrays import MOST, Array, array_name, member, parse_array
from muster.cli.commands.run import load_array
from muster.cli.overrides import Overrides
from muster.errors import JobError
from muster.job.explain import make_spec

JOB = """\
command: python train.py --lr ${{inputs.lr}}
inputs: {lr: 0.1}
display_name: train
"""


@pytest.mark.parametrize(
    ("text", "array"),
    [
        ("0-3", Array(("0", "1", "2", "3"))),
        ("0-10:5", Array(("0", "5", "10"))),
        ("3,5,8-9", Array(("3", "5", "8", "9"))),
        ("seed=1-2", Array(("1", "2"), "seed")),
        ("lr=0.1, 1e-3", Array(("0.1", "1e-3"), "lr")),
        ("data=a.csv,-1", Array(("a.csv", "-1"), "data")),
    ],
)
def test_the_values_of_an_array(text: str, array: Array):
    assert parse_array(text) == array


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a value is missing"),
        ("1,,2", "a value is missing"),
        ("=1-2", "the name of the input is missing"),
        ("9-0", "9-0 counts to nothing"),
        ("0-9:0", "0-9:0 counts to nothing"),
        ("1,2,1-3", "1 is there twice"),
        ("0-199%8", "how many run at a time is for the cluster to say"),
        (f"0-{10**12}", f"at most {MOST} are taken"),
    ],
)
def test_what_is_no_array_is_refused_with_what_is(text: str, message: str):
    with pytest.raises(JobError) as told:
        parse_array(text)
    assert message in told.value.message and told.value.hint


def test_each_run_has_its_value_its_name_and_the_tag_of_all():
    spec = make_spec({"command": "true", "name": "tune", "tags": {"team": "vision"}})
    made = member(spec, "a/b c", "tune-1")
    assert (made.name, made.display_name) == ("tune-a-b-c", "tune-a-b-c")
    assert made.environment_variables["ARRAY_VALUE"] == "a/b c"
    assert made.tags == {"team": "vision", "array": "tune-1"}
    assert array_name(spec).startswith("tune-") and array_name(spec) != array_name(spec)


def test_an_input_takes_the_values_as_its_type_wants_them(tmp_path: Path):
    path = tmp_path / "job.yml"
    path.write_text(JOB)
    jobs = load_array(str(path), [], Overrides(), parse_array("lr=0.5,1e-3"))
    assert [job.spec.inputs["lr"] for job in jobs] == [0.5, 0.001]
    assert [job.spec.display_name for job in jobs] == ["train-0.5", "train-1e-3"]
    assert len({job.spec.tags["array"] for job in jobs}) == 1
    with pytest.raises(JobError, match="lr=fast: 'lr' is a number"):
        load_array(str(path), [], Overrides(), parse_array("lr=0.5,fast"))
    with pytest.raises(JobError, match="declares no input 'rate'"):
        load_array(str(path), [], Overrides(), parse_array("rate=0.5"))
