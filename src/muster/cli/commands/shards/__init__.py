"""Commands for packed data."""
