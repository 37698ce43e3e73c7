"""The modules of `azureml` inside a run: all that a submission script can import exist here too.

Runs, data, models, secrets and errors are those of the run. Names for submitting jobs can be imported, as scripts that
submit and train in one file do; using one raises an error that says to use it outside a run.
"""

import importlib
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Callable, Dict, Mapping, Optional

from muster.errors import MusterError
from muster.runtime import inside
from muster.runtime.azureml_names import MODULES, refusal, refused_module
from muster.runtime.run import Run
from muster.runtime.workspace import Keyvault, Workspace

VERSION = "1.60.0"
"""The version of the SDK whose names these are."""


class Credential:
    """Accepted and not used: a rank has the identity of its run."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def get_token(self, *scopes: str, **kwargs: Any) -> str:
        return ""

    def get_authentication_header(self) -> Dict[str, str]:
        return {}


def get_run(*args: Any, **kwargs: Any) -> Run:
    """The run that this rank belongs to."""
    return Run.get_context()


def get_portal_url(*args: Any, **kwargs: Any) -> str:
    """The command that shows the run in a terminal."""
    return Run.get_context().get_portal_url()


def set_diagnostics_collection(send_diagnostics: bool = True, verbosity: Any = None) -> None:
    """Nothing is collected."""


_HERE: Mapping[str, Any] = {
    **{name: getattr(inside, name) for name in inside.__all__},
    "FileDataset": inside.InputDataset,
    "TabularDataset": inside.InputDataset,
    "Keyvault": Keyvault,
    "Run": Run,
    "VERSION": VERSION,
    "Workspace": Workspace,
    "__version__": VERSION,
    "get_portal_url": get_portal_url,
    "get_run": get_run,
    "set_diagnostics_collection": set_diagnostics_collection,
}


def find(name: str) -> Optional[ModuleSpec]:
    """The spec of a module of `azureml` that is not installed; None for one that Muster does not know either."""
    if name in MODULES:
        return ModuleSpec(name, _Loader(), is_package=True)
    return ModuleSpec(name, _Refusing()) if refused_module(name) else None


class _Loader(Loader):
    """Makes a module from the table of names."""

    def create_module(self, spec: ModuleSpec) -> Optional[ModuleType]:
        return None

    def exec_module(self, module: ModuleType) -> None:
        names = MODULES[module.__name__]
        found = {name: _stand_in(name, where) for name, where in names.items()}
        vars(module).update(found, __all__=[*found], __getattr__=_missing(module.__name__))


class _Refusing(Loader):
    """Refuses to import a module that Muster does not have, and says what to do instead."""

    def create_module(self, spec: ModuleSpec) -> Optional[ModuleType]:
        raise ModuleNotFoundError(refusal(spec.name), name=spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Never called: no module is created."""


def _stand_in(name: str, where: str) -> Any:
    home, _, other = where.partition(":")
    if name in _HERE:
        return _HERE[name]
    if other == "NoCredential":
        return Credential
    if home in ("muster.errors", "muster.runtime.run"):
        return getattr(importlib.import_module(home), other or name)
    if name.endswith(("Exception", "Error")):
        return MusterError
    return inside.elsewhere(name)


def _missing(module: str) -> Callable[[str], Any]:
    def __getattr__(name: str) -> Any:
        # `import azureml.core.run` first looks for the module as an attribute of the package.
        if name.startswith("__") or "{}.{}".format(module, name) in MODULES:
            raise AttributeError(name)
        # `from … import …` would drop the text of an AttributeError.
        raise ImportError(refusal("{}.{}".format(module, name), MODULES[module]), name=module)

    return __getattr__
