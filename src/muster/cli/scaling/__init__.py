"""How the throughput of a job grows with its processes: the study, and its plot."""
