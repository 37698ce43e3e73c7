"""Datasets, under their v1 module name."""

from muster.sdk.data.dataset import Dataset

__all__ = ["Dataset"]
