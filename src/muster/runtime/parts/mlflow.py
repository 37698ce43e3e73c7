"""MLflow's client takes `./model` as the name of a model or folder, as it does where its files go to a local folder.

Its part that sends files over HTTP refuses such a path; scripts in wide use have it.
"""

import sys
from _frozen_importlib_external import PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Optional

_MODULE = "mlflow.store.artifact.artifact_repo"


class _Finder:
    """Steps in when that one module is imported, and then no more."""

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: "ModuleType") -> None:
                execute(module)
                _widen(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _widen(module: "ModuleType") -> None:
    verify = getattr(module, "verify_artifact_path", None)
    if verify is None:
        return

    def verify_artifact_path(artifact_path: "Optional[str]") -> "Any":
        plain = artifact_path
        while plain and plain.startswith("./") and plain.strip("./"):
            plain = plain[2:]
        return verify(plain)

    module.verify_artifact_path = verify_artifact_path  # type: ignore[attr-defined]


def install() -> None:
    """Watch for the import; it costs a comparison for each of the others."""
    sys.meta_path.insert(0, _Finder())
