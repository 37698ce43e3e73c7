"""Moving bytes between storage and a node; `python -m muster.storage.staging` is a child process of the agent."""
