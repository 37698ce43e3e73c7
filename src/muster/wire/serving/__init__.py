"""What is served: endpoints, their deployments, and what their runs report."""
