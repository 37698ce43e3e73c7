"""Models as lines."""

from __future__ import annotations

from dataclasses import replace

from muster.cli.views.models import description, differences
from muster.wire.data.access import FileEntry
from muster.wire.models import ModelDetails, ModelLineage, ModelView

METRICS = {"loss": 0.25, "node/cpu_percent": 99.0}


def details(metrics: dict[str, float]) -> ModelDetails:
    model = ModelView(
        "resnet50", 1, "run-1", "outputs/model.pt", None, {}, {}, 0.0,
        address="azureml://datastores/workspaceblobstore/paths/models/resnet50/2707027bded5/model.pt",
        num_files=1, size=1941, digest="ab" * 32,
    )  # fmt: skip
    command = "python train.py --epochs ${{inputs.epochs}} --data ${{inputs.images}} --out outputs"
    lineage = ModelLineage("run-1", command=command, metrics=metrics)
    return ModelDetails(model, (FileEntry("", 1941, "cd" * 32),), lineage)


def test_a_model_is_shown_in_whole_words_with_the_name_of_its_file() -> None:
    lines = list(description(details(METRICS), 1.0, files=True, room=80))
    header, row = lines[-2:]
    assert header.split() == ["BYTES", "SHA256", "FILE"] and row.endswith("model.pt") and len(row) <= 80
    words = " ".join(line.strip() for line in lines).split()
    assert "${{inputs.images}}" in words and "outputs" in words
    assert all(len(line) <= 80 for line in lines if "azureml://" not in line)
    assert "cd" * 32 in list(description(details(METRICS), 1.0, files=True))[-1], "whole in a pipe"


def test_figures_of_the_machine_say_nothing_of_a_model() -> None:
    assert not any("node/" in line for line in description(details(METRICS), 1.0, files=False))
    found = differences(details(METRICS), details({"loss": 0.5, "node/cpu_percent": 3.0}))
    assert [(row.what, row.left, row.right) for row in found] == [("metric loss", "0.25", "0.5")]


def test_a_single_file_is_compared_by_its_own_name() -> None:
    other = replace(details(METRICS), files=(FileEntry("", 1941, "ef" * 32),))
    (found,) = differences(details(METRICS), other)
    assert (found.what, found.left) == ("file model.pt", "cd" * 32)
