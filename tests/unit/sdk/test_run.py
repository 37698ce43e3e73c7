"""Runs, experiments and the rest of the SDK over a scripted server."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sites.rest_server import Reply, Request, RestServer
from tests.sites.views import (
    cluster_json,
    datastore_json,
    file_json,
    model_json,
    run_json,
    run_view,
    sse,
    sse_text,
)

import muster
from muster import ComputeTarget, Dataset, Datastore, Environment, Experiment, Model, Run, ScriptRunConfig, Workspace
from muster.client.api import Client
from muster.client.workspace import WorkspaceRef
from muster.compute import AmlCompute
from muster.compute_target import ComputeTargetException
from muster.errors import Conflict, JobError, MusterError, NotFound, RunFailed
from muster.host.http import Address
from muster.host.points import pack
from muster.sdk import notices
from muster.wire.runs import MetricSeries
from muster.wire.stream import LogPiece

VERDICT = {
    "code": "exception", "rank": 1, "node": "node-0", "message": "ValueError: <bad> batch",
    "evidence": {}, "next": "Fix the script.", "lines": ["Traceback …", "ValueError: <bad> batch"],
}  # fmt: skip


@pytest.fixture
def server() -> Iterator[RestServer]:
    with RestServer() as running:
        running.on("GET", "/api/v1/runs/r-1", run_json())
        yield running


@pytest.fixture
def workspace(server: RestServer, tmp_path: Path) -> Iterator[Workspace]:
    made = Workspace(ref=WorkspaceRef(tmp_path / ".muster", "id", "w"))
    made.client = Client(Address(server.url))
    yield made
    made.client.close()


@pytest.fixture(autouse=True)
def fresh_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "_printed", set())


def ending(server: RestServer, status: str, verdict: Any = None, pieces: tuple[bytes, ...] = ()) -> None:
    end = sse_text("z", "end", {"status": status, "verdict": verdict})
    server.on("GET", "/api/v1/runs/r-1/stream", lambda request: Reply(pieces=[*pieces, end]))
    server.on("GET", "/api/v1/runs/r-1", run_json(status=status, verdict=verdict))


def log(stream: str, text: bytes) -> bytes:
    return sse("c", LogPiece.of(1, f"user_logs/{stream}", 0, text))


def test_a_completed_run_is_waited_for(server: RestServer, workspace: Workspace) -> None:
    run = Run.get(workspace, "r-1")
    ending(server, "Completed")
    details = run.wait_for_completion()
    assert (details["runId"], details["status"], run.status) == ("r-1", "Completed", "Completed")
    assert run.result(timeout=1) is run
    assert run.exception() is None
    assert run.done() and not run.cancelled()


def test_a_failed_run_raises_its_verdict(server: RestServer, workspace: Workspace) -> None:
    run = Run.get(workspace, "r-1")
    ending(server, "Failed", VERDICT)
    with pytest.raises(RunFailed) as caught:
        run.wait_for_completion()
    assert "rank 1 on node-0: ValueError: <bad> batch" in str(caught.value)
    assert "Traceback …" in str(caught.value)
    assert caught.value.hint == "Fix the script."
    assert caught.value.verdict["code"] == "exception"
    assert run.wait_for_completion(raise_on_error=False)["status"] == "Failed"
    with pytest.raises(RunFailed):
        run.result()
    assert isinstance(run.exception(), RunFailed)


def test_a_canceled_run_raises_too(server: RestServer, workspace: Workspace) -> None:
    run = Run.get(workspace, "r-1")
    ending(server, "Canceled", {"code": "cancelled", "message": "cancelled by ada"})
    with pytest.raises(RunFailed, match="r-1 canceled: cancelled by ada"):
        run.wait_for_completion()


def test_a_run_that_does_not_end_in_time_is_a_timeout(workspace: Workspace) -> None:
    with pytest.raises(TimeoutError, match="r-1"):
        Run.get(workspace, "r-1").result(timeout=0)


def test_runs_come_as_they_end(server: RestServer, workspace: Workspace) -> None:
    looks: dict[str, int] = {"a": 0, "b": 0}

    def show(request: Request) -> Reply:
        name = request.path[-1]
        looks[name] += 1
        done = name == "b" or looks["a"] > 3
        return Reply(run_json(id=name, status="Completed" if done else "Running"))

    server.on("GET", "/api/v1/runs/[ab]", show)
    runs = [Run._of(workspace, run_view(id="a")), Run._of(workspace, run_view(id="b"))]
    assert [run.id for run in muster.as_completed(runs)] == ["b", "a"]


def test_output_is_shown_with_the_rank_in_front(
    server: RestServer, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    pieces = (
        log("std_log_process_0.txt", b"one\ntw"),
        log("std_log_process_1.txt", b" 10%\r 50%\r100%\r\n\xff"),
        log("std_log_process_0.txt", b"o\n"),
    )
    ending(server, "Completed", None, pieces)
    Run.get(workspace, "r-1").wait_for_completion(show_output=True)
    assert capsys.readouterr().out == "[rank 0] one\n[rank 1] 100%\n[rank 0] two\n[rank 1] �\n"


def test_metrics_are_read_with_their_real_values(server: RestServer, workspace: Workspace) -> None:
    series = [
        series_of("loss", {1: 2.0, 4: "NaN"}, rank=0),
        series_of("loss", {3: 1.5}, rank=1),
        series_of("acc", {2: 0.5}),
    ]
    server.on("GET", "/api/v1/runs/r-1/metrics/series", Reply(body=pack(series)))
    run = Run.get(workspace, "r-1")
    found = run.get_metrics()
    assert found["acc"] == 0.5
    assert found["loss"][:2] == [2.0, 1.5] and math.isnan(found["loss"][2])
    assert server.requests[-1].query == {"full": "1", "packed": "1"}
    run.get_metrics("acc", points=100)
    assert server.requests[-1].query == {"name": "acc", "points": "100", "full": "0", "packed": "1"}


def series_of(name: str, values: dict[int, Any], rank: int = 0) -> MetricSeries:
    """One series, its values by the order in which they came."""
    count = len(values)
    nothing, times = (None,) * count, (0.0,) * count
    texts = tuple(values.values())
    return MetricSeries(
        name, f"rank_{rank}", rank, 1, "scalar", count, None, None, texts, nothing, times, tuple(values)
    )


def test_metrics_and_tags_can_be_added_from_outside(server: RestServer, workspace: Workspace) -> None:
    server.on("POST", "/api/v1/runs/r-1/metrics", Reply(status=204))
    server.on("PATCH", "/api/v1/runs/r-1", lambda request: Reply(run_json(tags=request.json["tags"])))
    run = Run.get(workspace, "r-1")
    run.log("x", math.inf, step=2)
    point = server.requests[-1].json["points"][0]
    assert (point["type"], point["name"], point["value"], point["step"]) == ("scalar", "x", "Infinity", 2)
    run.log_row("row", a=1)
    assert server.requests[-1].json["points"][0]["value"] == {"a": 1}
    run.tag("k", 3)
    assert run.tags == {"k": "3"}


def test_files_go_up_and_come_down(server: RestServer, workspace: Workspace, tmp_path: Path) -> None:
    stored: dict[str, bytes] = {"outputs/m/a.bin": b"a", "logs/x": b"x"}
    base = "/api/v1/runs/r-1/files"

    def put(request: Request) -> Reply:
        stored[request.path.removeprefix(base + "/")] = request.body
        return Reply({})

    server.on("GET", base, lambda request: Reply([file_json(name, len(stored[name])) for name in stored]))
    server.on("PUT", base + "/.+", put)
    server.on("GET", base + "/.+", lambda request: Reply(body=stored[request.path.removeprefix(base + "/")]))
    run = Run.get(workspace, "r-1")
    run.download_files(prefix="outputs/", output_directory=str(tmp_path / "down"))
    assert (tmp_path / "down/outputs/m/a.bin").read_bytes() == b"a"
    assert not (tmp_path / "down/logs").exists()
    run.download_file("logs/x", str(tmp_path / "x.txt"))
    assert (tmp_path / "x.txt").read_bytes() == b"x"
    run.upload_folder("copied", str(tmp_path / "down/outputs"))
    assert stored["copied/m/a.bin"] == b"a"
    assert "copied/m/a.bin" in run.get_file_names()
    with pytest.raises(NotFound, match="begin with 'none'"):
        run.download_files(prefix="none")
    stored["../escape"] = b"!"
    with pytest.raises(MusterError, match="leaves the target folder"):
        run.download_files(output_directory=str(tmp_path / "down"))
    assert not (tmp_path / "escape").exists()


def test_a_model_is_registered_from_a_runs_files(server: RestServer, workspace: Workspace) -> None:
    server.on("GET", "/api/v1/runs/r-1/files", [file_json("outputs/m/a")])
    server.on("POST", "/api/v1/models", lambda request: Reply(model_json(**request.json, version=4), status=201))
    run = Run.get(workspace, "r-1")
    model = run.register_model("resnet", "outputs/m", tags={"k": 1})
    assert (model.id, model.run_id, model.path, model.tags) == ("resnet:4", "r-1", "outputs/m", {"k": "1"})
    with pytest.raises(NotFound, match="no file or folder 'outputs/none'"):
        run.register_model("x", "outputs/none")


def test_a_model_of_a_run_is_downloaded(server: RestServer, workspace: Workspace, tmp_path: Path) -> None:
    view = model_json("m", path="outputs/m", run_id="r-1", version=1)
    files = [{"path": name, "size": 5} for name in ("a", "b/c")]
    server.on("GET", "/api/v1/models/m/details", {"model": view, "files": files, "lineage": {"run_id": "r-1"}})
    server.on("GET", "/api/v1/models/m/versions/1/files/.+", Reply(body=b"bytes"))
    model = Model(workspace, "m")
    assert model.download(str(tmp_path)) == str(tmp_path / "m")
    assert sorted(path.name for path in (tmp_path / "m").rglob("*") if path.is_file()) == ["a", "c"]
    with pytest.raises(Conflict, match="exists already"):
        model.download(str(tmp_path))


def test_only_the_newest_versions_are_listed_when_asked(server: RestServer, workspace: Workspace) -> None:
    rows = [model_json(name, version=version) for name, version in (("a", 2), ("a", 1), ("b", 1))]
    server.on("GET", "/api/v1/models", rows)
    assert [model.id for model in Model.list(workspace)] == ["a:2", "a:1", "b:1"]
    assert {name: model.version for name, model in workspace.models.items()} == {"a": 2, "b": 1}


def test_a_run_shows_itself_in_a_notebook(server: RestServer, workspace: Workspace) -> None:
    server.on("GET", "/api/v1/runs/r-1", run_json(status="Failed", verdict=VERDICT, metrics={"loss": 1, "node/cpu": 2}))
    columns = ((2.0, 1.0, 0.5), (0, 1, 2), (1.0, 2.0, 3.0), (1, 2, 3))
    series = MetricSeries("loss", "rank_0", 0, 1, "scalar", 3, 0.5, 2.0, *columns)
    server.on("GET", "/api/v1/runs/r-1/metrics/series", lambda request: Reply(body=pack([series])))
    shown = Run.get(workspace, "r-1")._repr_html_()
    assert "ValueError: &lt;bad&gt; batch" in shown
    assert "loss" in shown and "node/cpu" not in shown
    assert "<polyline" in shown


def test_an_experiment_submits_and_finds_its_runs(
    server: RestServer, workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    server.on("POST", "/api/v1/snapshots/missing", {"digest": "d", "missing": [], "known": True})
    server.on("POST", "/api/v1/runs", lambda request: Reply(run_json(notices=request.json["notices"]), status=201))
    server.on("GET", "/api/v1/runs", [run_json(tags={"k": "v"}), run_json(id="r-0", experiment="f")])
    experiment = Experiment(workspace, "e")
    environment = Environment.get(workspace, "AzureML-Minimal")
    config = ScriptRunConfig(str(tmp_path), script="train.py", environment=environment)
    run = experiment.submit(config, tags={"a": 1})
    body = next(request.json for request in server.requests if request.path == "/api/v1/runs")
    assert body["spec"]["tags"] == {"a": "1"}
    assert body["spec"]["experiment_name"] == "e"
    assert run.experiment.name == "e" and run.id == "r-1"
    assert capsys.readouterr().err.count("AzureML-Minimal") == 1
    assert [found.id for found in experiment.get_runs(tags={"k": "v"})] == ["r-1"]
    assert sorted(workspace.experiments) == ["e", "f"]
    with pytest.raises(JobError, match="dict cannot be submitted"):
        experiment.submit({})  # type: ignore[arg-type]


def test_a_compute_target_is_created_where_it_is_not_found(
    server: RestServer, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ComputeTargetException):
        ComputeTarget(workspace=workspace, name="gpu")
    made = cluster_json(name="gpu")
    server.on("POST", "/api/v1/clusters", Reply({**made, "notices": ["vm_size means nothing"]}, status=201))
    server.on("GET", "/api/v1/clusters/gpu", made)
    config = AmlCompute.provisioning_configuration(
        vm_size="STANDARD_NC6", max_nodes=4, vnet_name="net", admin_user_password="hunter2"
    )
    target = ComputeTarget.create(workspace, "gpu", config)
    target.wait_for_completion(show_output=True)
    sent = next(request.json for request in server.requests if request.method == "POST")
    assert (sent["name"], sent["engine"]) == ("gpu", "local")
    assert sent["options"] == {
        "vm_size": "STANDARD_NC6",
        "min_nodes": 0,
        "max_nodes": 4,
        "idle_seconds_before_scaledown": 1800,
        "vnet": "net",
    }
    said = capsys.readouterr().err
    assert "admin_user_password='***'" in said and "vm_size means nothing" in said and "hunter2" not in said


@pytest.mark.parametrize("wrong", [{"max_nodes": 0}, {"min_nodes": -1}, {"min_nodes": 3, "max_nodes": 2}])
def test_impossible_node_counts_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(JobError):
        AmlCompute.provisioning_configuration("x", **wrong)  # type: ignore[arg-type]


def test_datastores_are_registered_with_the_arguments_of_v1(server: RestServer, workspace: Workspace) -> None:
    sent: list[dict[str, Any]] = []
    shown = datastore_json("blob", kind="azure-blob")
    server.on("POST", "/api/v1/datastores", lambda request: (sent.append(request.json), Reply(shown, status=201))[1])
    server.on("GET", "/api/v1/datastores/blob", shown)
    store = Datastore.register_azure_blob_container(
        workspace=workspace, datastore_name="blob", container_name="c", account_name="a", account_key="a2V5"
    )
    assert sent == [
        {
            "name": "blob",
            "kind": "azure-blob",
            "options": {"account": "a", "container": "c"},
            "credential": {"account_key": "a2V5"},
            "description": None,
            "create": False,
        }
    ]
    data = Dataset.File.from_files((store, "images/**")).as_named_input("images").as_download()
    wanted = {"type": "uri_folder", "path": "azureml://datastores/blob/paths/images", "mode": "download"}
    assert data.to_input() == wanted
    with pytest.raises(JobError, match="leaves its store"):
        store.path("../../etc")


def test_a_dataset_that_cannot_be_an_input_is_refused(tmp_path: Path) -> None:
    for wrong in ("https://host/x.zip?sig=abc", str(tmp_path / "none"), str(tmp_path / "*.png"), ["a", "b"]):
        with pytest.raises(JobError):
            Dataset.File.from_files(wrong)  # type: ignore[arg-type]


def test_an_unknown_environment_is_refused() -> None:
    with pytest.raises(NotFound, match="no environment 'mine'"):
        Environment.get(name="mine")


def test_outside_a_rank_the_context_prints(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from muster.runtime.run import Run as ContextRun

    monkeypatch.setattr(ContextRun, "_current", None)
    Run.get_context().log("loss", 1)
    assert capsys.readouterr().out == "loss = 1\n"
    with pytest.raises(MusterError, match="does not belong to a run"):
        Run.get_context(allow_offline=False)
