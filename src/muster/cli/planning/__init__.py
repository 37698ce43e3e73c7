"""The plan of a job: `muster run --dry-run`."""
