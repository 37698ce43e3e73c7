"""Where nodes come from. Small processes on nodes are modules of this package, so nothing is imported here."""
