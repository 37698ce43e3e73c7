"""Modules under the names that scripts import, laid out as packages of their own: see `parts/azureml.py`."""
