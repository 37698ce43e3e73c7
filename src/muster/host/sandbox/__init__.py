"""Sandboxes, in which programs see only what they are given: bubblewrap's command line, and a machine's support."""
