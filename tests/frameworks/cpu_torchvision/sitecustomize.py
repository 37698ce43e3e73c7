"""Lets torchvision's wheel for CUDA be imported beside a torch for CPUs, where no torchvision for CPUs can be had.

Its own operators cannot be loaded there, and it refuses to be imported without two of them: they are declared, and do
nothing. Models and transforms work; `ops.nms` does not. Elsewhere this file does nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from types import ModuleType


class Declare:
    """Looks on while torchvision is imported; the usual finders find it."""

    kept: object = None

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name == "torchvision" and self.kept is None and "+" not in version("torchvision"):
            import torch

            if torch.version.cuda is None:
                library = torch.library.Library("torchvision", "DEF")
                library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
                library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
                self.kept = library
        return None


sys.meta_path.insert(0, Declare())
