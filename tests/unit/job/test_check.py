"""Checks against files: what is missing is found before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from muster.errors import JobError
from muster.job.check import check_files, local_path, script_of
from muster.job.explain import make_spec


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "one.csv").write_text("")
    return tmp_path


def checked(folder: Path, **data: Any) -> list[str]:
    return check_files(make_spec({"command": "python train.py", "code": "src", **data}), folder)


def refused(folder: Path, **data: Any) -> str:
    with pytest.raises(JobError) as caught:
        checked(folder, **data)
    assert caught.value.hint
    return caught.value.message


def test_a_job_whose_files_are_there_passes(folder: Path) -> None:
    assert checked(folder, inputs={"a": {"path": "data"}, "b": {"type": "uri_file", "path": "data/one.csv"}}) == []


def test_code_may_be_a_single_script(folder: Path) -> None:
    assert checked(folder, code="src/train.py") == []
    message = refused(folder, code="src/train.py", command="python other.py")
    assert "command: runs other.py, which is not in 'src/train.py' (it is the file train.py)" in message


def test_code_may_lie_above_the_job_file(folder: Path) -> None:
    assert checked(folder / "data", code="../src") == []


@pytest.mark.parametrize(
    "code", ["https://example.com/x.zip", "git+ssh://git@example.com/x", "git@example.com:x", "azureml:code:1"]
)
def test_code_that_is_an_address_is_refused(folder: Path, code: str) -> None:
    assert "is an address; code is taken from this machine" in refused(folder, code=code)


def test_a_missing_code_folder_is_refused(folder: Path) -> None:
    assert f"code: 'srk' does not exist (looked for {folder}/srk)" in refused(folder, code="srk")


def test_a_missing_script_is_refused_with_those_that_are_there(folder: Path) -> None:
    message = refused(folder, command="python trian.py --x 1")
    assert message == "command: runs trian.py, which is not in 'src' (it holds train.py)"
    assert "outside of the code folder" in refused(folder, command="python ../train.py")


def test_a_script_without_code_is_refused(folder: Path) -> None:
    assert "no code is given" in refused(folder, code=None)
    assert checked(folder, code=None, environment={"image": "mine"}) == []
    assert checked(folder, code=None, command="echo hello") == []


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"path": "absent"}, "inputs.a.path: 'absent' does not exist"),
        ({"path": "x" * 5000}, "does not exist"),
        ({"type": "uri_folder", "path": "data/one.csv"}, "'data/one.csv' is a file"),
        ({"type": "uri_file", "path": "data"}, "'data' is a folder"),
    ],
)
def test_inputs_that_are_not_there_are_refused(folder: Path, value: dict[str, Any], message: str) -> None:
    assert message in refused(folder, inputs={"a": value})


def test_inputs_that_are_elsewhere_or_not_given_are_not_looked_for(folder: Path) -> None:
    inputs = {"a": {"path": "azureml://datastores/x/paths/y"}, "b": {"type": "uri_file", "optional": True}}
    assert checked(folder, inputs=inputs) == []


def test_all_missing_files_are_told_at_once(folder: Path) -> None:
    message = refused(folder, code="srk", inputs={"a": {"path": "b"}}, environment={"conda_file": "conda.yml"})
    assert [line.split(":")[0] for line in message.splitlines()] == ["code", "inputs.a.path", "environment.conda_file"]


def test_a_missing_build_folder_is_refused(folder: Path) -> None:
    assert "environment.build.path: 'image' is not a folder" in refused(
        folder, environment={"build": {"path": "image"}}
    )


def test_a_plain_input_that_is_not_used_gives_a_notice(folder: Path) -> None:
    notices = checked(
        folder,
        command="python train.py ${{inputs.used}} $[[${{inputs.too}}]]",
        inputs={"used": 1, "too": 2, "unused": 3, "path": {"path": "data"}},
    )
    assert notices == ["inputs.unused: not used by the command, and plain values reach it in no other way"]


def test_an_address_that_is_passed_as_a_text_says_how_it_is_fetched(tmp_path: Path) -> None:
    address = "azureml://datastores/blob/paths/images"
    spec = make_spec({"command": "ls ${{inputs.images}}", "inputs": {"images": address}})
    (notice,) = check_files(spec, tmp_path)
    assert "nothing of it is fetched" in notice and f"{{type: uri_folder, path: {address}}}" in notice


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python train.py --epochs 3", "train.py"),
        ("python -u -X dev a/b.py", "a/b.py"),
        ("/usr/bin/python3.11 train.py\necho done", "train.py"),
        ("python train.py && echo done", "train.py"),
        ("python train.py --out ${{outputs.x}}", "train.py"),
        ("torchrun --nproc-per-node 4 --standalone train.py --x y.py", "train.py"),
        ("python -m torch.distributed.launch --nproc_per_node 4 train.py", "train.py"),
        ("accelerate launch --multi_gpu train.py", "train.py"),
        (("python", "train me.py"), "train me.py"),
        (("torchrun", "--node-rank", "$NODE_RANK", "train.py"), "train.py"),
        ("python -m train", None),
        ("python -c 'import x' train.py", None),
        ("python $SCRIPT.py", None),
        ("python 'train me.py'", None),
        ("python x$N.py", None),
        ("cd sub && python train.py", None),
        ("torchrun --nproc-per-node $N train.py", None),
        ("torchrun -m train.py", None),
        ("echo python train.py", None),
        ("bash train.sh", None),
        ("python", None),
        ((), None),
    ],
)
def test_a_script_is_found_where_that_is_certain(command: Any, script: str | None) -> None:
    assert script_of(command) == script


def test_local_paths_start_from_the_job_file_or_home(tmp_path: Path) -> None:
    assert local_path("a/b", tmp_path) == tmp_path / "a/b"
    assert local_path("/a", tmp_path) == Path("/a")
    assert local_path("~/a", tmp_path) == Path.home() / "a"
