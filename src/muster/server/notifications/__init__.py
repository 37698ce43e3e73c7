"""Notifications: receivers, the outbox, and the child process that delivers."""
