"""`azureml.telemetry`, inside a run: nothing is collected."""


def set_diagnostics_collection(send_diagnostics: bool = True, verbosity: object = None) -> None:
    """Nothing is collected."""


__all__ = ["set_diagnostics_collection"]
