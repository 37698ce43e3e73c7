"""How each kind of storage is read and written, by server and nodes."""
