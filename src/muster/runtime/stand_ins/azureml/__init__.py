"""Muster's names for scripts that import `azureml`; modules of an installed one come first."""
