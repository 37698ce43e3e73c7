"""Files of endpoints and their deployments, online and batch, in Azure ML's format."""
