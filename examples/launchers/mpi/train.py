"""Linear regression with NumPy and mpi4py: gradients are averaged by MPI itself."""

import hashlib

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, world_size = world.Get_rank(), world.Get_size()

weights = np.random.default_rng(rank).normal(size=8)
world.Bcast(weights, root=0)  # all start with the weights of rank 0

data = np.random.default_rng(rank)
losses = []
for _ in range(60):
    x = data.normal(size=(64, 8))
    error = x @ weights - x.sum(axis=1)
    losses.append(float(np.mean(error**2)))
    gradient = 2 * x.T @ error / len(x)
    world.Allreduce(MPI.IN_PLACE, gradient, op=MPI.SUM)
    weights -= 0.05 * gradient / world_size

fingerprint = hashlib.sha256(weights.tobytes()).hexdigest()[:12]
print(f"rank {rank} of {world_size}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, weights {fingerprint}")
