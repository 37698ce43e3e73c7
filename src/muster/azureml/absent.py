"""Explains attributes and arguments that a submission script uses and that Muster's classes do not have."""

from __future__ import annotations

import difflib
import importlib
import inspect
import re

from muster.runtime.azureml_names import MODULES, WHOLE

_CALL = re.compile(r"(\w+)\.(\w+)\(\) (got an unexpected keyword argument|missing \d+ required|takes )")


def absent(error: AttributeError | TypeError) -> str | None:
    """A sentence that names the class and the nearest names; None if the error has another cause."""
    return _attribute(error) if isinstance(error, AttributeError) else _argument(str(error))


def _attribute(error: AttributeError) -> str | None:
    kind = error.obj if isinstance(error.obj, type) else type(error.obj)
    if not kind.__module__.startswith("muster.") or error.name is None:
        return None
    known = sorted(name for name in dir(error.obj) if not name.startswith("_"))
    if error.name in known:
        # The name exists: something inside it failed.
        return None
    near = difflib.get_close_matches(error.name, known) or known
    return f"{kind.__name__} of Muster has no {error.name!r}; it has {', '.join(near)}"


def _argument(text: str) -> str | None:
    called = _CALL.match(text)
    if called is None or (kind := _class(called[1])) is None or not hasattr(kind, called[2]):
        return None
    parameters = [name for name in inspect.signature(getattr(kind, called[2])).parameters if name != "self"]
    return f"{text}; it takes {', '.join(parameters) or 'nothing'}"


def _class(name: str) -> type | None:
    """Muster's class of this name."""
    places = {names[name].partition(":")[0] for names in MODULES.values() if name in names} | {*WHOLE.values()}
    found = (getattr(importlib.import_module(place), name, None) for place in sorted(places))
    return next((kind for kind in found if isinstance(kind, type)), None)
