"""The packages of the submitting Python: a curated environment whose packages it has need not be built."""

from __future__ import annotations

from importlib import metadata

PACKAGES = (
    "torch",
    "tensorflow",
    "tensorflow-cpu",
    "keras",
    "horovod",
    "mpi4py",
    "deepspeed",
    "lightning",
    "pytorch-lightning",
    "transformers",
    "accelerate",
    "jax",
    "scikit-learn",
)
"""Everything that a curated environment's `needs` may name."""


def installed() -> dict[str, str]:
    """The versions of the frameworks in this Python."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
