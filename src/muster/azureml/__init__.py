"""Submission scripts of Azure ML as they are: `python -m muster.azureml submit.py`."""
