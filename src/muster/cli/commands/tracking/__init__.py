"""Commands about what other tools track: MLflow, and stores that are brought in."""
