"""Files of endpoints and their deployments, online and batch, as Azure ML writes them."""
