"""Storage that jobs read and write: addresses, datastores, grants, connectors and staging."""
