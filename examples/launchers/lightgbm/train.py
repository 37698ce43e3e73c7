"""LightGBM over all ranks: each listens on its own port, and all of them know every address."""

import hashlib
import os
import socket

import lightgbm
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, world_size = world.Get_rank(), world.Get_size()
hosts = os.environ["AZ_BATCH_HOST_LIST"].split(",")

with socket.socket() as free:
    # Ranks on the same host ask for ports at the same time; one that is held open cannot be given to another rank.
    free.bind(("", 0))
    world.Barrier()
    port = free.getsockname()[1]
machines = world.allgather(f"{hosts[int(os.environ['MUSTER_NODE_RANK'])]}:{port}")

data = np.random.default_rng(rank)
x = data.normal(size=(400, 8))
y = x.sum(axis=1) + 0.1 * data.normal(size=400)

losses = {}
settings = {
    "objective": "regression",
    "metric": "l2",
    "num_leaves": 8,
    "learning_rate": 0.3,
    "tree_learner": "data",
    "num_machines": world_size,
    "machines": ",".join(machines),
    "local_listen_port": port,
    "pre_partition": True,
    "num_threads": 1,
    "verbosity": -1,
}
rows = lightgbm.Dataset(x, label=y)
model = lightgbm.train(
    settings, rows, num_boost_round=20, valid_sets=[rows], callbacks=[lightgbm.record_evaluation(losses)]
)
trees = model.model_to_string().split("end of trees")[0]
trees = "\n".join(line for line in trees.splitlines() if not line.startswith("[local_listen_port"))
fingerprint = hashlib.sha256(trees.encode()).hexdigest()[:12]
first, *_, last = losses["training"]["l2"]
print(f"rank {rank} of {world_size}: loss {first:.4f} -> {last:.4f}, weights {fingerprint}")
