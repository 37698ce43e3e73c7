"""What writes documents from the code."""
