"""Everything that the SDK exports says what it does."""

import importlib
import inspect
from collections.abc import Iterator

import muster

NAMES = ("run", "runconfig", "compute", "workspace", "experiment", "dataset", "datastore", "environment", "model")
MORE = ("conda_dependencies", "script_run_config", "compute_target")
MODULES = ("muster", *(f"muster.{name}" for name in (*NAMES, *MORE)))


def public() -> Iterator[tuple[str, object]]:
    """Classes and their methods and properties, by name."""
    for module in map(importlib.import_module, MODULES):
        for name in dir(module):
            found = None if name.startswith("_") else getattr(module, name)
            if inspect.isclass(found) and found.__module__.startswith("muster"):
                yield found.__name__, found
                for inner, item in vars(found).items():
                    function = item.fget if isinstance(item, property) else getattr(item, "__func__", item)
                    if not inner.startswith("_") and inspect.isfunction(function):
                        yield f"{found.__name__}.{inner}", function


def test_every_public_class_and_method_has_a_docstring() -> None:
    found = dict(public())
    assert len(found) > 90
    assert [name for name, item in found.items() if not inspect.getdoc(item)] == []


def test_the_experiment_of_a_run_has_a_type() -> None:
    assert inspect.signature(muster.Run.experiment.fget).return_annotation == "Experiment"  # type: ignore[attr-defined]
