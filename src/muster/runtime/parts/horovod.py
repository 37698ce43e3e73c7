"""`horovod` in a rank: Muster's layer if the job asks for it, or Horovod itself with the Keras version it supports.

`HOROVOD_COMPAT=1`: scripts that import `horovod` find `muster.horovod_compat`. The finder is the last one, so an
installed Horovod is found first. `HOROVOD_KERAS=tf_keras`: `keras` is tf_keras, because Horovod 0.28 imports that name
and supports only Keras 2. Nothing is imported before it is needed.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, Optional, Sequence

_MUSTER = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))  # noqa: PTH120
_FOLDER = os.path.join(_MUSTER, "horovod_compat")  # noqa: PTH118
_CALLBACKS = "horovod._keras.callbacks"


class HorovodCompat:
    """Finds the package `horovod`; its modules are then found in its folder."""

    @staticmethod
    def find_spec(name: str, path: "Optional[Sequence[str]]" = None, target: object = None) -> "Optional[ModuleSpec]":
        if name != "horovod":
            return None
        from importlib.util import spec_from_file_location

        file = os.path.join(_FOLDER, "__init__.py")  # noqa: PTH118
        return spec_from_file_location(name, file, submodule_search_locations=[_FOLDER])


class KerasTwo:
    """Finds `keras` and its modules as those of tf_keras, and patches Horovod's callbacks."""

    @classmethod
    def find_spec(
        cls, name: str, path: "Optional[Sequence[str]]" = None, target: object = None
    ) -> "Optional[ModuleSpec]":
        if name == _CALLBACKS:
            return cls._callbacks(path)
        if name != "keras" and not name.startswith("keras."):
            return None
        from importlib.util import find_spec, spec_from_loader

        if find_spec("tf_keras") is None:
            return None
        return spec_from_loader(name, _SameModule("tf_" + name))  # type: ignore[arg-type]

    @staticmethod
    def _callbacks(path: "Optional[Sequence[str]]") -> "Optional[ModuleSpec]":
        from _frozen_importlib_external import PathFinder

        spec = PathFinder.find_spec(_CALLBACKS, path)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_mend(module: "ModuleType") -> None:
                run(module)
                _mend(module.LearningRateScheduleCallbackImpl)

            spec.loader.exec_module = run_and_mend  # type: ignore[method-assign]
        return spec


class _SameModule:
    """Loads a module that exists under another name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: "ModuleSpec") -> "ModuleType":
        from importlib import import_module

        module = import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: "ModuleType") -> None:
        module.__spec__ = self._spec


def _mend(callback: "Any") -> None:
    """In current optimizers the momentum is a number in the compiled step, so turn off its correction."""
    adjust = callback._adjust_learning_rate

    def adjust_what_can_be(self: "Any", epoch: float) -> None:
        if isinstance(getattr(self.model.optimizer, "momentum", None), (int, float)):
            self.momentum_correction = False
        adjust(self, epoch)

    callback._adjust_learning_rate = adjust_what_can_be


def install() -> None:
    """Offer the modules to later imports in this process."""
    if os.environ.get("HOROVOD_COMPAT", "") not in ("", "0"):
        sys.meta_path.append(HorovodCompat)
    if os.environ.get("HOROVOD_KERAS") == "tf_keras":
        sys.meta_path.insert(0, KerasTwo)
