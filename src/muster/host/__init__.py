"""The machine that Muster runs on: locks, files, hashes, child processes, caches and HTTP. Standard library only."""
