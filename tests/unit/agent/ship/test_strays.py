"""What tracking tools write in the working folder is not lost, and what came with the code is not taken for it."""

from __future__ import annotations

import os
from pathlib import Path

from muster.agent.ship import strays


def write(path: Path, at: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    os.utime(path, (at, at))


def test_folders_of_tools_are_kept_below_outputs_with_a_notice(tmp_path: Path) -> None:
    for name in (
        "mlruns/0/abc/metrics/loss",
        "mlflow.db",
        "wandb/offline-run-1/run.wandb",
        "lightning_logs/version_0/events.out.tfevents.1.host",
        "lightning_logs/version_0/hparams.yaml",
        "lightning_logs/version_0/checkpoints/last.ckpt",
        "train.py",
        "outputs/model.pt",
        "logs/events.out.tfevents.2.host",
    ):
        write(tmp_path / name, 200.0)
    files, said = strays.find(tmp_path, 100.0)
    assert set(files) == {
        "outputs/mlruns/0/abc/metrics/loss",
        "outputs/mlflow.db",
        "outputs/wandb/offline-run-1/run.wandb",
        "outputs/lightning_logs/version_0/events.out.tfevents.1.host",
        "outputs/lightning_logs/version_0/hparams.yaml",
    }
    assert [text.split(" that ")[1].split(" wrote")[0] for text in said] == [
        "MLflow",
        "TensorBoard",
        "Weights & Biases",
    ]
    assert said[0] == "2 files that MLflow wrote in the working folder are kept below outputs/"


def test_what_came_with_the_code_and_links_are_left(tmp_path: Path) -> None:
    write(tmp_path / "mlruns" / "old", 50.0)
    write(tmp_path / "elsewhere", 200.0)
    (tmp_path / "mlruns" / "link").symlink_to(tmp_path / "elsewhere")
    assert strays.find(tmp_path, 100.0) == ({}, [])
