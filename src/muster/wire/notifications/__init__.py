"""Notifications: what is sent when something happens to a run, to whom, and what became of it."""
