"""Virtual environments: built once by a separate process, kept in the cache of the host."""
