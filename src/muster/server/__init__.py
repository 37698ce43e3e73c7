"""The server of one workspace, by noun."""
