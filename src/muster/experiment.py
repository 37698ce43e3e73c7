"""Experiments, under their v1 module name."""

from muster.sdk.experiment import Experiment

__all__ = ["Experiment"]
