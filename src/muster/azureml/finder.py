"""Makes imports of Azure ML's packages mean Muster, in this process."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from muster.runtime.azureml_names import MODULES, REFUSED, SHARED, WHOLE, refusal


def install() -> None:
    """From now on `azureml` and `azure.ai.ml` are Muster's, whether the real packages are installed or not."""
    if not any(isinstance(finder, MusterFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, MusterFinder())


class Refused(ImportError):
    """An import of a name of Azure ML's that Muster does not have."""


class RefusedModule(Refused, ModuleNotFoundError):
    """An import of a whole module that Muster does not have."""


class RefusedName(type):
    """A name that may be imported, since notebooks import more than they use: using it raises an error with advice."""

    def __call__(cls, *args: object, **kwargs: object) -> object:
        raise Refused(cls.__doc__ or "")

    def __getattr__(cls, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Refused(cls.__doc__ or "")


class MusterFinder(MetaPathFinder):
    """Finds every module of the table of names, and refuses other modules of those packages by name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in SHARED and PathFinder.find_spec(fullname, path) is not None:
            return None
        if fullname in MODULES:
            return ModuleSpec(fullname, MusterLoader(), is_package=True)
        if fullname.split(".")[0] == "azureml" or fullname.startswith("azure.ai.ml."):
            raise RefusedModule(refusal(fullname), name=fullname)
        return None


class MusterLoader(Loader):
    """Makes a module whose names are looked up when they are used."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        found = {key: _found(key, where) for key, where in MODULES[name].items()}
        if name in WHOLE:
            whole = importlib.import_module(WHOLE[name])
            found |= {key: getattr(whole, key) for key in whole.__all__}
        module.__dict__.update(found, __all__=[*found], __getattr__=_missing(name, [*found]))


def _found(name: str, where: str) -> object:
    home, _, other = where.partition(":")
    return getattr(importlib.import_module(home), other or name)


def _missing(module: str, names: Sequence[str]) -> object:
    def __getattr__(name: str) -> object:
        # `import azureml.core.run` first looks for the module as an attribute of the package.
        if name.startswith("__") or f"{module}.{name}" in MODULES:
            raise AttributeError(name)
        if f"{module}.{name}" in REFUSED and name[:1].isupper():
            return RefusedName(name, (), {"__doc__": refusal(f"{module}.{name}", verb="used")})
        # `from … import …` would drop the text of an AttributeError.
        raise Refused(refusal(f"{module}.{name}", names), name=f"{module}.{name}")

    return __getattr__
