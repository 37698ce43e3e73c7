"""Job files as text: parsed and validated for clients that cannot."""
