"""`muster cluster check`: tests the whole way to a cluster before the first job."""
