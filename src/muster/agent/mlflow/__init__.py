"""MLflow for ranks: a proxy on the loopback that takes what they log at once, and passes on what they ask."""
