"""File servers: what is recorded of them, the runs that keep them, and what their processes on nodes say."""
