"""Files of online endpoints and their deployments, as Azure ML writes them."""
