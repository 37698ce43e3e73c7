"""Notifications: what is sent when something happens to a run, to whom, and with which outcome."""
