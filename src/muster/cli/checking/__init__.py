"""`muster cluster check`: the whole way to a cluster, walked before the first job."""
