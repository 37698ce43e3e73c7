"""Endpoints: deployments of models that answer requests, the runs that serve them, and their front doors."""
