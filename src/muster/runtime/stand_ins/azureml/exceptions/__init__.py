"""`azureml.exceptions`, inside a run."""

from muster.errors import MusterError

AzureMLException = UserErrorException = RunConfigurationException = MusterError

__all__ = ["AzureMLException", "RunConfigurationException", "UserErrorException"]
