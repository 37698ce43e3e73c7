"""MLflow for ranks: a proxy on the loopback that accepts what they log at once, and passes other calls on."""
