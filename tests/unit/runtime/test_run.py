"""The in-run API writes what the agent ships, and never ends a training script."""

from __future__ import annotations

import io
import json
import math
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from muster.errors import MusterError
from muster.runtime.run import OfflineRun, Run


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "uploads").mkdir()
    return {
        "MUSTER_RUN_ID": "r-1",
        "MUSTER_ATTEMPT": "2",
        "MUSTER_EVENTS_FILE": str(tmp_path / "events.jsonl"),
        "MUSTER_UPLOADS_DIR": str(tmp_path / "uploads"),
        "MUSTER_STOP_FILE": str(tmp_path / "stop"),
        "MUSTER_INPUT_images": "/data/images",
        "MUSTER_OUTPUT_model": "/work/outputs/model",
    }


@pytest.fixture
def run(environ: dict[str, str]) -> Run:
    return Run(environ)


def events(environ: dict[str, str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(environ["MUSTER_EVENTS_FILE"]).read_text().splitlines()]


def test_every_kind_of_metric_is_one_line(run: Run, environ: dict[str, str]) -> None:
    run.log("loss", 0.5, step=3)
    run.log_list("lr", [0.1, 0.2])
    run.log_row("top", epoch=1, top1=0.5)
    run.log_table("t", {"x": [1, 2], "y": 3})
    lines = events(environ)
    assert [(line["type"], line["name"], line["value"], line["step"]) for line in lines] == [
        ("scalar", "loss", 0.5, 3),
        ("list", "lr", [0.1, 0.2], None),
        ("row", "top", {"epoch": 1, "top1": 0.5}, None),
        ("table", "t", {"x": [1, 2], "y": 3}, None),
    ]
    assert all(line["kind"] == "metric" and line["at"] > 0 for line in lines)


def test_values_that_are_not_finite_are_written_as_text(run: Run, environ: dict[str, str]) -> None:
    run.log_list("x", [math.nan, math.inf, -math.inf])
    assert events(environ)[0]["value"] == ["NaN", "Infinity", "-Infinity"]


def test_tags_progress_and_models_are_events(run: Run, environ: dict[str, str]) -> None:
    run.set_tags({"a": 1, "b": None})
    run.progress(3, 10, "steps")
    model = run.register_model("resnet", "outputs/model", tags={"k": 1})
    kinds = [{key: value for key, value in line.items() if key != "at"} for line in events(environ)]
    assert kinds == [
        {"kind": "tag", "name": "a", "value": "1"},
        {"kind": "tag", "name": "b", "value": ""},
        {"kind": "progress", "done": 3, "total": 10, "unit": "steps"},
        {"kind": "model", "name": "resnet", "path": "outputs/model", "tags": {"k": "1"}, "description": None},
    ]
    assert (model.name, model.version) == ("resnet", None)


def test_the_run_knows_itself(run: Run) -> None:
    assert (run.id, run.attempt, str(run.experiment), run.parent) == ("r-1", 2, "default", None)
    assert run.input_datasets == {"images": "/data/images"}
    assert run.output_datasets == {"model": "/work/outputs/model"}
    with pytest.raises(MusterError, match="does not talk to the server"):
        run.experiment.workspace.datastores  # noqa: B018


def test_the_metrics_of_this_process_can_be_read_back(run: Run) -> None:
    run.log("loss", 2)
    run.log("loss", 1)
    run.log("once", 7)
    assert run.get_metrics() == {"loss": [2, 1], "once": 7}
    assert run.get_metrics("once") == {"once": 7}


@pytest.mark.parametrize("value", [None, [1], {"a": 1}, object()])
def test_logging_what_is_no_value_is_misuse(run: Run, value: object) -> None:
    with pytest.raises(TypeError, match="log_list"):
        run.log("x", value)


def test_names_must_be_texts(run: Run) -> None:
    for misuse in (lambda: run.log("", 1), lambda: run.log(3, 1), lambda: run.tag(""), lambda: run.log_row("x")):  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            misuse()


def test_a_disk_that_refuses_costs_one_warning(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    run = Run({**environ, "MUSTER_EVENTS_FILE": "/dev/full"})
    for _ in range(3):
        run.log("loss", 1)
    assert capsys.readouterr().err.count("metrics are not recorded") == 1


def test_a_line_that_was_cut_does_not_spoil_the_next(
    run: Run, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: real(fd, data[:10]))
        run.log("cut", 1)
    run.log("whole", 2)
    last = Path(environ["MUSTER_EVENTS_FILE"]).read_text().splitlines()[-1]
    assert json.loads(last)["name"] == "whole"


def test_threads_write_whole_lines(run: Run, environ: dict[str, str]) -> None:
    threads = [
        threading.Thread(target=lambda name=name: [run.log(name, step) for step in range(200)]) for name in "abcd"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = events(environ)
    assert len(lines) == 800
    assert [line["value"] for line in lines if line["name"] == "a"] == list(range(200))


def test_a_forked_child_can_log_though_a_thread_held_the_lock(run: Run, environ: dict[str, str]) -> None:
    run.log("before", 1)
    assert run._events is not None
    with run._events._lock:
        pid = os.fork()
        if pid == 0:
            run.log("child", 1)
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    run.log("after", 1)
    assert [line["name"] for line in events(environ)] == ["before", "child", "after"]


def test_uploads_arrive_under_their_names(run: Run, environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/a.bin").write_bytes(b"a")
    run.upload_file("outputs/a.bin", str(tmp_path / "model/a.bin"))
    run.upload_file("text.txt", io.StringIO("hi"))
    run.upload_files(["x", "y/z"], [str(tmp_path / "model/a.bin")] * 2)
    run.upload_folder("folder", str(tmp_path / "model"))
    uploads = Path(environ["MUSTER_UPLOADS_DIR"])
    names = sorted(path.relative_to(uploads).as_posix() for path in uploads.rglob("*") if path.is_file())
    assert names == ["folder/a.bin", "outputs/a.bin", "text.txt", "x", "y/z"]
    assert list((uploads / ".muster-part").iterdir()) == []


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "a\0b", "."])
def test_the_name_of_an_upload_cannot_escape(run: Run, tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="leaves the run's files"):
        run.upload_file(name, __file__)


def test_a_missing_file_to_upload_is_misuse(run: Run) -> None:
    with pytest.raises(FileNotFoundError, match="no file"):
        run.upload_file("x", "/nonexistent")


def test_an_image_is_a_file_and_a_metric(run: Run, environ: dict[str, str]) -> None:
    class Figure:
        def savefig(self, target: io.BytesIO, format: str) -> None:
            target.write(b"PNG")

    run.log_image("samples/0", plot=Figure())
    assert events(environ)[0]["value"] == "images/samples_0.png"
    assert (Path(environ["MUSTER_UPLOADS_DIR"]) / "images/samples_0.png").read_bytes() == b"PNG"
    with pytest.raises(TypeError):
        run.log_image("x")


def test_a_script_can_see_that_it_should_stop(run: Run, environ: dict[str, str]) -> None:
    assert not run.should_stop()
    Path(environ["MUSTER_STOP_FILE"]).touch()
    assert run.should_stop()


def test_outside_a_run_everything_prints(capsys: pytest.CaptureFixture[str]) -> None:
    run = OfflineRun()
    run.log("loss", 0.5, step=1)
    run.progress(1, 2, "steps")
    run.tag("k", "v")
    run.upload_file("outputs/x", "/nonexistent")
    run.register_model("m", "outputs")
    run.flush()
    run.complete()
    assert run.id.startswith("OfflineRun_")
    assert not run.should_stop()
    assert capsys.readouterr().out.splitlines() == [
        "loss = 0.5 (step 1)",
        "progress 1 of 2 steps",
        "tag k = v",
        "upload outputs/x",
        "register model m from outputs",
    ]
