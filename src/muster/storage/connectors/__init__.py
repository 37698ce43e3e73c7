"""How one kind of storage is read and written, by server and node."""
