"""`azureml.dataprep`, which scripts import beside datasets; it has nothing to do here."""
