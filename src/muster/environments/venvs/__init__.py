"""Virtual environments: built once by a process of their own, kept in the cache of the host."""
