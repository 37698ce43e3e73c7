"""Models, purely: what their files are, and how they are named."""
