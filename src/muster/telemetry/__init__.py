"""Sends runs to OpenTelemetry: a separate process that reads the REST API and exports to a collector."""
