"""File servers: their records, the runs that keep them, and the reports of their processes on nodes."""
