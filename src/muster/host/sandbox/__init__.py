"""Programs that see of the machine only what they are given: bubblewrap's command line, and what a machine offers."""
