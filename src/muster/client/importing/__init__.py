"""Imports what other tools recorded into a workspace."""
