"""The engine for HPC sites: Slurm queues the gangs, chooses their nodes, and starts an agent on each of them."""
