"""Server decisions and agents with a virtual clock and a faulty network: seeded, repeatable, shrunk when they fail."""
