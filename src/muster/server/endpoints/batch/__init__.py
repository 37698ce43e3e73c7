"""Batch endpoints: deployments as they are kept, and the run that each request becomes."""
