"""Environments of jobs: settled when submitted, registered, and what builds came to."""
