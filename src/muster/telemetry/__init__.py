"""The life of runs for OpenTelemetry: a process of its own that reads the REST API and exports to a collector."""
