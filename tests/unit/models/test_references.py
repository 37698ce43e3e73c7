"""Every spelling of a model, and what is none."""

from __future__ import annotations

import pytest

from muster.errors import JobError
from muster.models.references import ModelReference, RunPath, is_model_input, parse


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("net", ModelReference("net")),
        ("net:3", ModelReference("net", 3)),
        ("net@latest", ModelReference("net")),
        ("net@champion", ModelReference("net", alias="champion")),
        ("azureml:net:3", ModelReference("net", 3)),
        ("azureml:net@latest", ModelReference("net")),
        ("models:/net/3", ModelReference("net", 3)),
        ("models:/net/latest", ModelReference("net")),
        ("models:/net/production", ModelReference("net", stage="Production")),
        ("models:/net@champion", ModelReference("net", alias="champion")),
        ("azureml://subscriptions/s/resourceGroups/r/models/net/versions/2", ModelReference("net", 2)),
        ("runs:/4f2c/outputs/model", RunPath("4f2c", "outputs/model")),
        ("runs:/4f2c/", RunPath("4f2c", "")),
    ],
)
def test_what_a_reference_means(text: str, meant: object) -> None:
    assert parse(text) == meant


@pytest.mark.parametrize(
    "text", ["", "net:x", "models:/", "models:/net/nonsense", "runs:/", "runs:/a/../b", "net:1:2", "a b", "/net"]
)
def test_what_names_no_model(text: str) -> None:
    with pytest.raises(JobError):
        parse(text)


@pytest.mark.parametrize(
    ("path", "kind", "is_model"),
    [
        ("azureml:digits:1", "uri_folder", False),
        ("azureml:digits:1", "custom_model", True),
        ("azureml://datastores/x/paths/y", "custom_model", False),
        ("models:/net/1", "uri_folder", True),
        ("runs:/r/outputs", "uri_folder", True),
        ("./model", "custom_model", False),
    ],
)
def test_the_type_of_an_input_decides_between_data_and_models(path: str, kind: str, is_model: bool) -> None:
    assert is_model_input(path, kind) is is_model


def test_a_reference_reads_back() -> None:
    for text in ("models:/net/3", "models:/net/latest", "models:/net@champion", "models:/net/Staging"):
        assert str(parse(text)) == text
