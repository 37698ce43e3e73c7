"""The catalogue of machine sizes: the hardware of each `vm_size`, and its list price.

`vm_sizes.csv` in this folder: prices are list prices in US dollars per hour (Linux, pay as you go, East US), from
published tables and rounded; a cluster's own `price_per_hour` takes precedence.
"""

from __future__ import annotations

import csv
import difflib
from functools import cache
from importlib.resources import files

from muster.wire.clusters import MachineSize


@cache
def catalogue() -> dict[str, MachineSize]:
    """Every size by its name in lower case."""
    text = (files(__package__) / "vm_sizes.csv").read_text()
    return {row["name"].lower(): _size(row) for row in csv.DictReader(text.splitlines())}


def find_size(name: str) -> MachineSize | None:
    """A size by name in any case, with or without `Standard_`."""
    known = catalogue()
    lower = name.lower()
    return known.get(lower) or known.get(f"standard_{lower}")


def nearest(name: str) -> str:
    """The known size that a misspelt name probably means; empty where there is none."""
    lower = name.lower() if name.lower().startswith("standard_") else f"standard_{name.lower()}"
    found = difflib.get_close_matches(lower, catalogue(), 1)
    return catalogue()[found[0]].name if found else ""


def _size(row: dict[str, str]) -> MachineSize:
    return MachineSize(
        name=row["name"],
        cpus=int(row["cpus"]),
        memory_gb=float(row["memory_gb"]),
        gpu=row["gpu"] or None,
        gpus=int(row["gpus"]),
        gpu_memory_gb=float(row["gpu_memory_gb"]) if row["gpu_memory_gb"] else None,
        infiniband=row["infiniband"] == "yes",
        price_per_hour=float(row["price_per_hour"]) if row["price_per_hour"] else None,
    )
