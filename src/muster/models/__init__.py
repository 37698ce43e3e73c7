"""Models, purely: their formats and their names."""
