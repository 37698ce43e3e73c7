"""The job file: what it accepts, and how it refuses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from muster.errors import JobError
from muster.job.explain import make_spec
from muster.job.jobfile import LoadedJob, load_job_file, parse_job
from muster.job.parts import Input, Output, PyTorch
from muster.job.spec import JobSpec

WHOLE = """\
$schema: https://example.com/commandJob.schema.json
display_name: resnet50-synthetic
code: ./src
command: python train.py --epochs ${{inputs.epochs}} --data ${{inputs.images}} --out ${{outputs.model}}
environment: azureml:pytorch@latest
compute: azureml:gpus
resources: {instance_count: 2, shm_size: 2g, instance_type: Standard_NC6}
distribution: {type: pytorch, process_count_per_instance: 4}
inputs:
  epochs: 3
  images: {type: uri_folder, path: azureml://datastores/blob/paths/imagenet, mode: ro_mount}
outputs:
  model:
environment_variables: {OMP_NUM_THREADS: "1"}
limits: {timeout: 86400}
queue_settings: {priority: High, job_tier: Spot}
identity: {type: managed}
"""


def refused(text: str) -> JobError:
    with pytest.raises(JobError) as caught:
        parse_job(text)
    return caught.value


def test_a_whole_azure_file_is_read() -> None:
    job = parse_job(WHOLE, base_dir="/some/where")
    assert job.base_dir == Path("/some/where")
    assert job.spec.compute == "gpus"
    assert job.spec.environment == "pytorch@latest"
    assert job.spec.distribution == PyTorch(process_count_per_instance=4)
    assert job.spec.inputs["epochs"] == 3
    assert job.spec.inputs["images"] == Input(path="azureml://datastores/blob/paths/imagenet")
    assert job.spec.outputs == {"model": Output()}
    assert job.spec.queue_settings.priority == "high"


def test_keys_of_azure_that_mean_nothing_give_one_notice_with_their_lines() -> None:
    (notice,) = parse_job(WHOLE, source="a/job.yml").notices
    assert notice.startswith("a/job.yml: left out, without a meaning here: ")
    assert "resources.instance_type (a machine size of Azure" in notice and "line 7)" in notice
    assert "identity (" in notice and "line 17)" in notice
    assert "$schema" not in notice and "job_tier" not in notice


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "job.yml:1: the file is empty"),
        ("# nothing\n", "job.yml:1: the file is empty"),
        ("- a\n- b\n", "job.yml:1: a list is given"),
        ("hello", "job.yml:1: 'hello' is given; a job is a mapping"),
        ("command: x\n\tname: y\n", "job.yml:2: not YAML"),
        ("command: 'x\n", "not YAML"),
        ("command: x\x01\n", "job.yml:1: not YAML: it holds the character #x01"),
        ("command: x\nname: a\ncommand: y\n", "job.yml:3: the key 'command' is given twice, first in line 1"),
        ("command: x\n1: y\n", "job.yml:2: YAML reads the key '1' as a number"),
        ("command: x\ntags: {yes: y}\n", "job.yml:2: YAML reads the key 'yes' as true or false"),
        ("command: x\n? [a]\n: b\n", "job.yml:2: a key is a list or a mapping"),
        ("command: !!python/name:os.system x\n", "job.yml:1: the tag"),
        ("command: x\n---\ncommand: y\n", "job.yml:2: a second YAML document"),
        ("command: *nothing\n", "job.yml:1: *nothing refers to no anchor"),
        ("command: x\ntags: &a {b: *a}\n", "job.yml:2: *a holds itself"),
        ("command: x\n<<: [1]\n", "job.yml:2: << takes in something that is not a mapping"),
        ("command: x\ninputs: {a: 0b_}\n", "job.yml:2: '0b_' cannot be read as int"),
    ],
)
def test_what_is_not_a_job_file_is_refused_with_its_line(text: str, expected: str) -> None:
    assert expected in refused(text).message
    assert refused(text).hint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("command: x\nresources:\n  instance_count: 0\n", "job.yml:3: resources.instance_count: 0 is out of range"),
        ("command: x\nresources:\n  instance_count: 1.5\n", "job.yml:3: resources.instance_count: 1.5 is a fractional"),
        ("command: x\nresources: {instance_count: two}\n", "job.yml:2: resources.instance_count: 'two' is a text"),
        ("command: x\nlimits:\n\n  timeout: -5\n", "job.yml:4: limits.timeout: -5 is out of range"),
        ("command: x\nlimits: {timeout: 0}\n", "job.yml:2: limits.timeout: 0 is out of range"),
        ("command: x\nlimits: {timeout: 2.5}\n", "job.yml:2: limits.timeout: 2.5 is a fractional number"),
        ("command: 5\n", "job.yml:1: command: 5 is a whole number"),
        ("command: ''\n", "job.yml:1: command: is empty"),
        ("command: []\n", "job.yml:1: command: is empty"),
        ("command: [a, {b: c}]\n", "job.yml:1: command[1]: a mapping is given"),
        ("name: x\n", "job.yml:1: command: is missing"),
        ("command: x\nname: -x\n", "job.yml:2: name: '-x' is not a name"),
        ("command: x\ninputs:\n  a:\n", "job.yml:3: inputs.a: has no value"),
        ("command: x\ninputs: {a-b: 1}\n", "job.yml:2: inputs.a-b: 'a-b' is not a name"),
        ("command: x\ninputs: {a: {type: uri_file}}\n", "job.yml:2: inputs.a: has no path"),
        ("command: x\ninputs: {a: {path: x, mode: ro_mout}}\n", "did you mean 'ro_mount'?"),
        (
            "command: cat /x/y\ninputs: {a: {path: x, path_on_compute: /x}}\n",
            "inputs.a.path_on_compute: is in the command",
        ),
        ("command: x\ndistribution: {type: ray}\n", "job.yml:2: distribution.type: 'ray' is not there in Muster"),
        ("$schema: https://x/latest/schedule.schema.json\ntrigger: {}\n", "job.yml: this is a schedule, not a job"),
        (
            "name: x\nchannels: [defaults]\ndependencies: [python=3.9]\n",
            "job.yml: this is a list of packages, not a job",
        ),
        ("$schema: https://x/managedOnlineEndpoint.schema.json\nname: x\n", "job.yml: this is an endpoint, not a job"),
        ("command: x\nservices: {s: {type: ssh}}\n", "job.yml:2: services.s: has no ssh_public_keys"),
        ("command: x\nenvironment: file:./none.yml\n", "there is no environment file"),
        ("command: x\ninputs: 3\n", "job.yml:2: inputs: 3 is a whole number; a mapping"),
        ("command: x\noutputs: {m: {path: ../m}}\n", "job.yml:2: outputs.m.path: '../m' leaves the working folder"),
        ("command: x\ndistribution: {type: mip}\n", "distribution.type: 'mip' is not allowed; did you mean 'mpi'?"),
        ("command: x\ndistribution: {}\n", "job.yml:2: distribution.type: is missing"),
        ("command: x\nenvironment: {image: a, python: '3.11'}\n", "job.yml:2: environment: gives image and python"),
        ("command: x\nenvironment: {image: a, build: {path: b}}\n", "environment: gives image and build"),
        (
            "command: x\nenvironment: {image: a, pip: [b], conda_file: c.yml}\n",
            "environment: gives image and conda_file and pip",
        ),
        ("command: x\nenvironment: {}\n", "job.yml:2: environment: gives no source"),
        ("command: x\nresources: {shm_size: 2 gigs}\n", "resources.shm_size: '2 gigs' is not a size"),
        ("command: x\ntags: {a: }\n", "job.yml:2: tags.a: null is given; a text is needed"),
        ('command: "a\\0b"\n', "job.yml:1: command: holds a NUL"),
        ("command: x ${{inputs.y}}\n", "job.yml:1: command: ${{inputs.y}} refers to 'y', which is not declared"),
        ("command: x\ncompute: my cluster\n", "job.yml:2: compute: 'my cluster' is not the name of a cluster"),
        ("type: sweep\ntrial: {}\n", "job.yml:1: type: 'sweep' jobs cannot run yet"),
        ("type: pipeline\njobs: {}\n", "job.yml:1: type: 'pipeline' jobs cannot run yet"),
        ("command: x\nsearch_space: {}\n", "job.yml:2: search_space: belongs to a sweep"),
    ],
)
def test_a_wrong_value_is_refused_with_line_key_value_and_next_step(text: str, expected: str) -> None:
    error = refused(text)
    assert expected in error.message
    assert error.hint


def test_all_problems_are_told_at_once_in_the_order_of_the_file() -> None:
    error = refused("name: '?'\nresources: {instance_count: 0}\ncomand: x\nlimits: {timeout: 1.5}\n")
    assert [line.split(": ")[0] for line in error.message.splitlines()] == [
        "job.yml:1",
        "job.yml:1",
        "job.yml:2",
        "job.yml:3",
        "job.yml:4",
    ]


def test_very_many_problems_are_counted() -> None:
    lines = refused("command: x\n" + "".join(f"unknown_{i}: 1\n" for i in range(70))).message.splitlines()
    assert len(lines) == 51
    assert lines[-1].endswith("… and 20 more problems")


def test_an_unknown_key_is_refused_with_the_nearest_and_the_allowed_ones() -> None:
    message = refused("command: x\nresources:\n  instance_counts: 2\n").message
    assert message == (
        "job.yml:3: resources.instance_counts: unknown key; did you mean 'instance_count'? "
        "allowed here: instance_count, gpus_per_node, gpu_isolation, shm_size, docker_args"
    )
    assert "allowed here: type, process_count_per_instance\n" in (
        refused("command: x\ndistribution: {type: mpi, proces_count: 2}\nz: 1").message
    )


@given(st.from_regex(r"[a-z_]{1,12}", fullmatch=True))
def test_any_unknown_key_is_refused_by_its_name(key: str) -> None:
    known = set(JobSpec.model_fields)
    ignored = {"services", "identity", "properties", "id", "status", "parameters", "log_files", "creation_context"}
    text = yaml.safe_dump({"command": "x", key: {}})
    if key in known or key in ignored or key in ("parent_job_name", "resource_group"):
        return
    error = refused(text)
    assert f": {key}: " in error.message


def test_text_stays_as_it_was_written() -> None:
    spec = parse_job(
        "command: [python, train.py, 1.10, 1e3, yes]\n"
        "environment: {python: 3.10, pip: [torch]}\n"
        "environment_variables: {A: 1.10, B: yes, C: 007, D: 2024-01-01, E: 0x1F, F: 'null', G: 12:30}\n"
        "tags: {run: 3, fast: on}\n"
    ).spec
    assert spec.environment_variables == {
        "A": "1.10",
        "B": "yes",
        "C": "007",
        "D": "2024-01-01",
        "E": "0x1F",
        "F": "null",
        "G": "12:30",
    }
    assert spec.tags == {"run": "3", "fast": "on"}
    assert spec.command == ("python", "train.py", "1.10", "1e3", "yes")
    assert not isinstance(spec.environment, str) and spec.environment is not None
    assert spec.environment.python == "3.10"


def test_a_command_named_like_a_truth_value_is_a_program() -> None:
    assert parse_job("command: true\n").spec.command == "true"


def test_plain_inputs_keep_their_type() -> None:
    spec = parse_job("command: x\ninputs: {a: 3, b: 0.5, c: yes, d: text, e: 2024-01-01, f: 12:30, g: ''}\n").spec
    assert spec.inputs == {"a": 3, "b": 0.5, "c": True, "d": "text", "e": "2024-01-01", "f": "12:30", "g": ""}


def test_nothing_after_a_key_means_that_it_is_absent() -> None:
    assert parse_job("command: x\ninputs:\ntags:\nlimits: {timeout: }\n").spec == JobSpec(command="x")


def test_an_honest_use_of_anchors_and_merges_works() -> None:
    spec = parse_job(
        "command: x\n"
        "environment_variables: &common {A: 1, B: 2}\n"
        "tags: {<<: *common, B: 3}\n"
        "inputs: {one: &image {path: ./data}, two: *image}\n"
    ).spec
    assert spec.tags == {"A": "1", "B": "3"}
    assert spec.inputs["one"] == spec.inputs["two"] == Input(path="./data")


def test_an_alias_bomb_is_refused_before_it_expands() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    assert "grows to more than" in refused("\n".join(lines)).message


def test_a_merge_bomb_is_refused_before_it_expands() -> None:
    lines = ["a0: &a0 {k: v, l: w}"]
    lines += [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 30)]
    assert "grows to more than" in refused("\n".join(lines)).message


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 5_000, "- " * 50_000])
def test_deep_nesting_is_refused(text: str) -> None:
    refused(text)


def test_nesting_made_by_aliases_is_refused() -> None:
    lines = ["a0: &a0 [x]", *(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 200))]
    assert "levels deep" in refused("\n".join(lines)).message


def test_a_file_is_read_relative_to_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "job.yml"
    file.write_bytes(b"\xef\xbb\xbfcommand: echo \xc3\xa9\n")
    assert load_job_file(file) == LoadedJob(JobSpec(command="echo é"), (), tmp_path)


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"a\n\xff\xfe", ":2: not text in UTF-8"), (b"#" * (1 << 20) + b"\n", ": larger than 1 MiB")],
)
def test_a_file_that_is_no_text_or_too_large_is_refused(tmp_path: Path, content: bytes, expected: str) -> None:
    file = tmp_path / "job.yml"
    file.write_bytes(content)
    with pytest.raises(JobError, match=expected):
        load_job_file(file)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"absent\.yml: cannot be read: No such file"):
        load_job_file(tmp_path / "absent.yml")
    (tmp_path / "job.yml").touch()
    for typed in ("jobb.yml", "job.yaml"):
        with pytest.raises(JobError) as caught:
            load_job_file(tmp_path / typed)
        assert caught.value.hint == f"Did you mean {tmp_path / 'job.yml'}?"
    with pytest.raises(JobError, match="cannot be read: Is a directory"):
        load_job_file(tmp_path)


def test_values_of_variables_are_never_shown() -> None:
    assert "hunter2" not in str(refused("command: x\nenvironment_variables: {TOKEN: [hunter2]}\n"))
    assert "hunter2" not in str(refused('command: x\nenvironment_variables: {TOKEN: "hunter2\\0"}\n'))
    assert "hunter2" not in str(refused("command: x\nenvironment_variables: {TOKEN: 'hunter2 ${{inputs.a}}'}\n"))


SNIPPETS = ["command", "inputs", "x", "type", "*a", "&a ", "<<", "${{inputs.x}}", "$[[", "]]", "null", "!!int ", "1"]
KEYS = st.sampled_from([*JobSpec.model_fields, "$schema", "path", "mode", "image", "instance_count", "x"])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(SNIPPETS)
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=5) | st.integers(), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.text() | st.lists(st.sampled_from([*SNIPPETS, ": ", "\n", "- ", "{", "}", "[", "]", ", ", " "])).map("".join))
@example("%YAML 9.9\n---\na: b")
@example("a: " + "9" * 5000)
@example("command: x\ninputs: {a: 0x" + "f" * 5000 + "}")
def test_any_text_gives_a_job_or_a_job_error(text: str) -> None:
    try:
        assert isinstance(parse_job(text).spec, JobSpec)
    except JobError as error:
        assert error.message.startswith("job.yml:")


@given(st.dictionaries(KEYS, TREES, max_size=6))
def test_any_structure_gives_a_job_or_a_job_error(data: dict[str, object]) -> None:
    text = yaml.safe_dump({"command": "x", **data}, allow_unicode=True)
    try:
        spec = parse_job(text).spec
    except JobError as error:
        assert error.message.startswith("job.yml:")
        assert error.hint
    else:
        assert JobSpec.model_validate_json(spec.model_dump_json()) == spec


def test_the_source_is_named_as_it_was_given(tmp_path: Path) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    (folder / "bad.yml").write_text("a: b\n")
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        with pytest.raises(JobError, match=r"^jobs/bad\.yml:1: "):
            load_job_file("jobs/bad.yml")
    finally:
        os.chdir(before)


@pytest.mark.parametrize("key", ["display_name", "experiment_name"])
def test_a_title_is_one_line_without_escapes(key: str) -> None:
    with pytest.raises(JobError, match=f"{key}: .*characters that are not shown"):
        make_spec({"command": "true", key: "evil\nTitle: \x1b[31m"})
    assert make_spec({"command": "true", key: "Größe 5, zweiter Versuch"})


def test_the_keys_of_a_receiver_are_named_where_one_is_wrong() -> None:
    with pytest.raises(JobError, match="allowed here: to, when, quiet_s"):
        make_spec({"command": "true", "notify": [{"too": "x"}]})
