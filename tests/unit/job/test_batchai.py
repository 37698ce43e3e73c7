"""Jobs of Batch AI run as its command line took them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from muster.errors import JobError
from muster.job.batchai import translate
from muster.job.jobfile import LoadedJob, load_job_file, parse_job
from muster.job.mpirun import read_mpirun
from muster.job.parts import Input, Mpi, PyTorch, TensorFlow
from muster.wire.codec import Json

DATA = {
    "inputDirectories": [{"id": "SCRIPTS", "path": "$AZ_BATCHAI_MOUNT_ROOT/afs/scripts"}],
    "outputDirectories": [{"id": "MODEL", "pathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/afs", "pathSuffix": "Models"}],
    "mountVolumes": {"azureFileShares": [{"accountName": "me", "relativeMountPath": "afs"}]},
    "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/afs",
}
SCRIPT = "$AZ_BATCHAI_INPUT_SCRIPTS/train.py"


def job(**properties: object) -> LoadedJob:
    document = {"$schema": "https://example.org/job.json", "properties": {**DATA, **properties}}
    return parse_job(json.dumps(document, indent=2), source="job.json")


def lines(loaded: LoadedJob) -> list[str]:
    assert isinstance(loaded.spec.command, str)
    subprocess.run(["bash", "-n", "-c", loaded.spec.command], check=True)
    return loaded.spec.command.splitlines()


def test_pytorch() -> None:
    settings = {"pythonScriptFilePath": SCRIPT, "commandLineArgs": "--epochs 2", "communicationBackend": "gloo"}
    loaded = job(nodeCount=2, pyTorchSettings=settings)
    assert loaded.spec.distribution == PyTorch(process_count_per_instance=1, communication_backend="gloo")
    assert loaded.spec.resources.instance_count == 2
    assert loaded.spec.inputs == {"SCRIPTS": Input(path="azureml://datastores/afs/paths/scripts")}
    assert set(loaded.spec.outputs) == {"MODEL"}
    assert lines(loaded)[-1] == f'python "{SCRIPT}" --epochs 2'
    exports = next(line for line in lines(loaded) if line.startswith("export "))
    assert 'AZ_BATCHAI_INPUT_SCRIPTS="$MUSTER_INPUT_SCRIPTS"' in exports
    assert 'AZ_BATCHAI_OUTPUT_MODEL="$MUSTER_OUTPUT_MODEL"' in exports


@pytest.mark.parametrize("kind", ["horovodSettings", "chainerSettings", "cntkSettings"])
def test_mpi_toolkits(kind: str) -> None:
    loaded = job(nodeCount=2, **{kind: {"pythonScriptFilePath": SCRIPT, "processCount": 8}})
    assert loaded.spec.distribution == Mpi(process_count_per_instance=4)
    assert lines(loaded)[-1] == f'python "{SCRIPT}"'


def test_a_custom_mpi_command() -> None:
    loaded = job(nodeCount=1, customMpiSettings={"commandLine": "python x.py && echo done", "processCount": 2})
    assert loaded.spec.distribution == Mpi(process_count_per_instance=2)
    assert lines(loaded)[-1] == "python x.py && echo done"


def test_tensorflow_starts_each_role_with_its_own_arguments() -> None:
    loaded = job(
        nodeCount=2,
        tensorFlowSettings={
            "pythonScriptFilePath": SCRIPT,
            "masterCommandLineArgs": "--job_name=worker --ps_hosts=$AZ_BATCHAI_PS_HOSTS",
            "parameterServerCommandLineArgs": "--job_name=ps --task_index=$AZ_BATCHAI_TASK_INDEX",
            "workerCount": 2,
            "parameterServerCount": 1,
        },
    )
    assert loaded.spec.distribution == TensorFlow(worker_count=2, parameter_server_count=1)
    assert f'ps-*) python "{SCRIPT}" --job_name=ps --task_index=$AZ_BATCHAI_TASK_INDEX ;;' in lines(loaded)


def test_a_line_with_its_own_mpirun_becomes_an_mpi_job() -> None:
    line = (
        "echo $AZ_BATCH_HOST_LIST; cat $AZ_BATCHAI_MPI_HOST_FILE; mpirun -np 8 --hostfile $AZ_BATCHAI_MPI_HOST_FILE "
        "-bind-to none -map-by slot -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -mca btl ^openib -x DISTRIBUTED=True "
        "--allow-run-as-root FAKE=True python -u $AZ_BATCHAI_INPUT_SCRIPTS/train.py --a 'b c'"
    )
    loaded = job(nodeCount=2, customToolkitSettings={"commandLine": line})
    assert loaded.spec.distribution == Mpi(process_count_per_instance=4)
    assert lines(loaded)[-4:] == [
        "export NCCL_DEBUG=INFO",
        "export DISTRIBUTED=True",
        "export FAKE=True",
        "python -u $AZ_BATCHAI_INPUT_SCRIPTS/train.py --a 'b c'",
    ]
    assert any("-mca btl ^openib" in notice for notice in loaded.notices)


def test_intel_mpi_s_own_line() -> None:
    line = "source /opt/intel/mpivars.sh; mpirun -n 4 -ppn 2 -hosts $AZ_BATCH_HOST_LIST -env I_MPI_DEBUG=6 python x.py"
    read = read_mpirun(line)
    assert read is not None
    assert (read.processes, read.per_node, read.variables, read.program) == (4, 2, {"I_MPI_DEBUG": "6"}, "python x.py")


@pytest.mark.parametrize("line", ["", "python x.py", "mpirun", "mpirun -np", "mpirun a; mpirun b", "mpirun -np x y"])
def test_what_is_no_mpirun_line_is_left_alone(line: str) -> None:
    assert read_mpirun(line) is None


def test_a_custom_command_runs_once() -> None:
    loaded = job(nodeCount=3, customToolkitSettings={"commandLine": "bash go.sh"})
    assert (loaded.spec.distribution, loaded.spec.resources.instance_count) == (None, 1)
    assert any("nodeCount 3" in notice for notice in loaded.notices)


def test_folders_beside_the_file_and_mounts_that_the_command_names(tmp_path: Path) -> None:
    (tmp_path / "afs" / "scripts").mkdir(parents=True)
    properties = {**DATA, "customToolkitSettings": {"commandLine": "ls $AZ_BATCHAI_MOUNT_ROOT/afs/scripts"}}
    (tmp_path / "job.json").write_text(json.dumps({"properties": properties}))
    loaded = load_job_file(tmp_path / "job.json")
    assert loaded.spec.inputs == {"SCRIPTS": Input(path="afs/scripts"), "mount_afs": Input(path="afs")}
    assert 'ln -sfn "$MUSTER_INPUT_mount_afs" "$AZ_BATCHAI_MOUNT_ROOT"/afs' in lines(loaded)


def test_the_rest_of_a_job() -> None:
    spec = job(
        customToolkitSettings={"commandLine": "true"},
        containerSettings={
            "imageSourceRegistry": {"image": "tf:1.1", "serverUrl": "https://r.example.org"},
            "shmSize": "2G",
        },
        environmentVariables=[{"name": "A", "value": "1"}],
        secrets=[{"name": "KEY", "value": "never kept"}],
        jobPreparation={"commandLine": "pip install 'x y'"},
        constraints={"maxWallClockTime": "1.02:03:04"},
        schedulingPriority="normal",
        cluster={"id": "/subscriptions/x/clusters/nc6"},
    ).spec
    assert spec.environment is not None and "r.example.org/tf:1.1" in str(spec.environment)
    assert spec.resources.shm_size == "2g"
    assert spec.environment_variables == {"A": "1", "KEY": "${{secrets.KEY}}"}
    assert spec.limits.timeout == 93_784
    assert (spec.queue_settings.priority, spec.compute) == ("medium", "nc6")
    assert "never kept" not in str(spec)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"scaleSettings": {}}, "muster cluster create"),
        ({"dataDisks": {}}, "muster fileserver create"),
        ({"customToolkitSettings": {}}, "Add one of them"),
        ({"customToolkitSettings": {"commandLine": "x"}, "horovodSettings": {}}, "Give one of"),
        ({"customToolkitSettings": {"commandLine": "x"}, "nodeCount": "two"}, "whole number"),
        ({"horovodSettings": {"commandLine": "x", "processCount": "2"}}, "whole number"),
        ({"customToolkitSettings": {"commandLine": "x"}, "constraints": {"maxWallClockTime": "soon"}}, "PT36H"),
    ],
)
def test_what_is_no_job_says_what_to_do(properties: dict[str, Json], expected: str) -> None:
    with pytest.raises(JobError) as refused:
        translate({"properties": properties}, Path("/nowhere"))
    assert expected in refused.value.hint


def test_a_script_beside_the_file_is_sent_along(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    for script in ("scripts/train.py", "scripts/train.sh", "alone.py"):
        (tmp_path / script).touch()

    def code(**settings: object) -> str | None:
        (tmp_path / "job.json").write_text(json.dumps({"properties": {**DATA, **settings}}))
        return load_job_file(tmp_path / "job.json").spec.code

    assert code(pyTorchSettings={"pythonScriptFilePath": "scripts/train.py"}) == "."
    assert code(customToolkitSettings={"commandLine": "bash 'scripts/train.sh' --epochs 2"}) == "."
    assert code(pyTorchSettings={"pythonScriptFilePath": "alone.py"}) == "."
    assert code(customToolkitSettings={"commandLine": "python other/train.py"}) is None
    assert code(customToolkitSettings={"commandLine": "python train.py"}) is None
    assert code(customToolkitSettings={"commandLine": "python $AZ_BATCHAI_INPUT_SCRIPTS/scripts/train.py"}) is None


def test_a_key_that_nobody_knows_is_named() -> None:
    settings = {"commandLine": "true", "procesCount": 2}
    made = translate(
        {"properties": {"customToolkitSettings": settings, "nodeCont": 1, "creationTime": "x"}}, Path("/nowhere")
    )
    assert [notice.split(":")[0] for notice in made.notices] == ["nodeCont", "customToolkitSettings.procesCount"]
    assert "did you mean 'nodeCount'?" in made.notices[0] and "did you mean 'processCount'?" in made.notices[1]


def test_files_of_a_toolkit_are_read_by_the_toolkit() -> None:
    def command(kind: str, **settings: object) -> str:
        made = translate({"properties": {kind: settings}}, Path("/nowhere"))
        return str(made.data["command"]).splitlines()[-1]

    given = {"configFilePath": "$AZ_BATCHAI_INPUT_SAMPLE/net.cntk", "commandLineArgs": "RootDir=."}
    assert command("cntkSettings", **given) == 'cntk configFile="$AZ_BATCHAI_INPUT_SAMPLE/net.cntk" RootDir=.'
    assert command("caffeSettings", configFilePath="solver.prototxt") == 'caffe train --solver="solver.prototxt"'
