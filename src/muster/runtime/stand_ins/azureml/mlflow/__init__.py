"""`azureml.mlflow`, which scripts import for its effect: MLflow finds the run by itself here."""
