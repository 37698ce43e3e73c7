"""The HTTP application: its gate, TLS, ranges, uploads, and how other machines reach it."""
