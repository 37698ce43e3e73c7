"""Dask over all ranks: rank 0 runs the scheduler and the client, the others work; least squares by gradient descent."""

import asyncio
import hashlib
import os

import dask
import dask.array
import numpy as np
from distributed import Client, LocalCluster, Worker
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, world_size = world.Get_rank(), world.Get_size()


async def work(address: str) -> None:
    """Work until the scheduler ends."""
    async with Worker(address, nthreads=1, name=f"rank-{rank}", dashboard=False) as worker:
        await worker.finished()


def train(client: Client) -> tuple[list[float], np.ndarray]:
    client.wait_for_workers(world_size - 1)
    random = dask.array.random.default_rng(0)
    x = random.normal(size=(1200, 8), chunks=(400, 8)).persist()
    y = x.sum(axis=1)
    weights, losses = np.zeros(8), []
    for _ in range(20):
        error = x @ weights - y
        loss, gradient = dask.compute((error**2).mean(), 2 * x.T @ error / len(x))
        losses.append(float(loss))
        weights = weights - 0.1 * gradient
    return losses, weights


if rank == 0:
    cluster = LocalCluster(n_workers=0, host=os.environ["MASTER_ADDR"], dashboard_address=None)
    world.bcast(cluster.scheduler_address, root=0)
    with Client(cluster) as client:
        result = train(client)
        client.shutdown()
else:
    result = None
    asyncio.run(work(world.bcast(None, root=0)))
losses, weights = world.bcast(result, root=0)

fingerprint = hashlib.sha256(weights.tobytes()).hexdigest()[:12]
print(f"rank {rank} of {world_size}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, weights {fingerprint}")
