"""Batch endpoints: stored deployments, and the run that each request becomes."""
