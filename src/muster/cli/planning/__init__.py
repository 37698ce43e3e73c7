"""What a job would do: `muster run --dry-run`."""
