"""The engine for machines or a cloud without Slurm: Ray places the gangs, its autoscaler provides the machines."""
