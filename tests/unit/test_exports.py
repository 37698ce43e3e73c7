"""The public names; a change here is a change that users notice."""

from __future__ import annotations

import importlib

import pytest

PUBLIC = {
    "muster": {
        "AmlCompute",
        "ComputeTarget",
        "Dataset",
        "Datastore",
        "Environment",
        "Experiment",
        "Model",
        "MusterError",
        "Run",
        "RunConfiguration",
        "RunFailed",
        "ScriptRunConfig",
        "Workspace",
        "__version__",
        "as_completed",
    },
    "muster.runconfig": {
        "DockerConfiguration",
        "MpiConfiguration",
        "PyTorchConfiguration",
        "RunConfiguration",
        "TensorflowConfiguration",
    },
}


@pytest.mark.parametrize("module", PUBLIC)
def test_a_module_exports_exactly_its_public_names(module: str) -> None:
    assert set(importlib.import_module(module).__all__) == PUBLIC[module]


@pytest.mark.parametrize(("module", "name"), [(module, name) for module in PUBLIC for name in sorted(PUBLIC[module])])
def test_every_public_name_can_be_imported(module: str, name: str) -> None:
    assert getattr(importlib.import_module(module), name) is not None


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_are_listed_by_dir(module: str) -> None:
    assert set(dir(importlib.import_module(module))) >= PUBLIC[module]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="NoSuchName"):
        importlib.import_module("muster").NoSuchName  # noqa: B018
