"""Options of `muster cluster create` that only one engine has."""

from __future__ import annotations

from muster.engines.ray import options as ray
from muster.engines.slurm import options as slurm

FLAGS = {"slurm": slurm.FLAGS, "ray": ray.FLAGS}
