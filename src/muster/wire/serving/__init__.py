"""Endpoints, their deployments, and the reports of their runs."""
