"""Job files as text: read and checked for clients that cannot."""
