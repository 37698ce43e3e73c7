"""Notifications: who is told of what, what is on its way, and the child process that brings it there."""
