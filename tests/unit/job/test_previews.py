"""What files of Azure ML's previews said in other words."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import JobError
from muster.job.jobfile import load_job_file, parse_job, read_job_file
from muster.job.parts import Build, EnvironmentSpec, Input, PyTorch

PREVIEW = Path(__file__).parents[2] / "corpus" / "jobs" / "preview"


@pytest.mark.parametrize("name", ["data_path", "several_processes", "folder", "dataset", "dockerfile"])
def test_an_input_lies_where_the_file_says_in_its_own_words(name: str) -> None:
    spec = load_job_file(PREVIEW / f"{name}.yml").spec
    table = spec.inputs["table"]
    assert isinstance(table, Input) and table.path is not None and table.path.startswith("../data")
    assert spec.command == "python count.py --table ${{inputs.table}}" and spec.code == "src"


def test_all_processes_are_shared_out_over_the_nodes() -> None:
    spec = load_job_file(PREVIEW / "several_processes.yml").spec
    assert spec.resources.instance_count == 2
    assert isinstance(spec.distribution, PyTorch) and spec.distribution.process_count_per_instance == 1


def test_what_a_command_line_says_wins_and_the_number_of_nodes_stays() -> None:
    document = read_job_file(PREVIEW / "several_processes.yml")
    spec = document.checked({**document.data, "compute": "local"}).spec
    assert (spec.compute, spec.resources.instance_count) == ("local", 2)


def test_sections_of_an_environment() -> None:
    docker = load_job_file(PREVIEW / "dockerfile.yml").spec.environment
    assert isinstance(docker, EnvironmentSpec)
    assert docker.build == Build(path="docker", dockerfile_path="Dockerfile")
    conda = load_job_file(PREVIEW / "dataset.yml").spec.environment
    assert isinstance(conda, EnvironmentSpec) and conda.conda_file == "../basics/env/conda.yaml"
    text = "command: x\nenvironment: {docker: {image: a/b}, conda: {conda_dependencies_file: c.yml}, os: Linux}\n"
    both = parse_job(text).spec.environment
    assert isinstance(both, EnvironmentSpec) and (both.image, both.conda_file) == ("a/b", "c.yml")


def test_types_of_a_component() -> None:
    document = read_job_file(PREVIEW / "component.yml")
    inputs = document.data["inputs"]
    assert isinstance(inputs, dict)
    given = {**inputs, "table": {**inputs["table"], "path": "x"}}
    spec = document.checked({**document.data, "inputs": given}).spec
    table = spec.inputs["table"]
    assert isinstance(table, Input) and table.type == "uri_folder" and spec.inputs["label"] == "flowers"
    # A value that a component writes is a file.
    assert {name: output.type for name, output in spec.outputs.items()} == {"model": "uri_folder", "rows": "uri_file"}


def test_words_in_braces_that_name_nothing_declared_stay() -> None:
    text = "command: echo {inputs.other} ${{inputs.a}} {inputs.a} {a,b}\ninputs: {a: 1}\n"
    assert parse_job(text).spec.command == "echo {inputs.other} ${{inputs.a}} ${{inputs.a}} {a,b}"


def test_a_place_on_the_node_is_left_out_with_a_notice_unless_the_command_relies_on_it() -> None:
    text = "command: cat {}\ninputs: {{a: {{path: x, path_on_compute: /data/a/}}}}\n"
    (notice,) = parse_job(text.format("${{inputs.a}}")).notices
    assert "inputs.a.path_on_compute" in notice
    with pytest.raises(JobError, match="is in the command"):
        parse_job(text.format("/data/a/table.csv"))


def test_an_input_without_a_type_is_what_lies_there(tmp_path: Path) -> None:
    (tmp_path / "table.csv").touch()
    text = "command: x\ninputs: {a: {path: table.csv}, b: {path: .}, c: {data: 'https://x.org/y.csv'}}\n"
    inputs = parse_job(text, base_dir=tmp_path).spec.inputs
    types = {name: item.type for name, item in inputs.items() if isinstance(item, Input)}
    assert types == {"a": "uri_file", "b": "uri_folder", "c": "uri_file"}
