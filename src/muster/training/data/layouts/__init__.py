"""How samples lie in files: one module for each layout."""
