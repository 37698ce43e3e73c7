"""Commands about tracking of other tools: MLflow, and imports of their stores."""
