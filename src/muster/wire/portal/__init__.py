"""What browsers exchange with the server beyond what every client does."""
