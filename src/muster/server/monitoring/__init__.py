"""Metrics and telemetry of the server for monitoring systems."""
