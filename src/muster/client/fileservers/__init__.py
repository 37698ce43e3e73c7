"""What clients do with file servers."""
