"""mpi4py and programs below an mpirun in the command."""

from functools import partial

from recorder import Failure

Own = partial(Failure, convention="mpirun", processes=1, num_ranks=4)
RUN = "mpirun --oversubscribe --mca btl self,sm -n "

FAILURES = [
    Own(
        name="v-mpirun-permission-on-output",
        way="one rank may not write its output file",
        code="exception",
        also_codes=("data_unavailable",),
        rank=1,
        num_ranks=3,
        command="mkdir -p results && touch results/rank1.txt && chattr +i results/rank1.txt; trap 'chattr -i results/rank1.txt' EXIT; "
        + RUN
        + "3 python -m mpi4py write_out.py",
        files={
            "write_out.py": """from mpi4py import MPI
rank = MPI.COMM_WORLD.Get_rank()
print("rank", rank, "writing", flush=True)
with open("results/rank%d.txt" % rank, "w") as handle:
    handle.write("0.993\\n")
MPI.COMM_WORLD.Barrier()
"""
        },
        wanted=("Operation not permitted: 'results/rank1.txt'", "Permission denied: 'results/rank1.txt'"),
        helpful=(r"results|permission|write_out\.py|rank1\.txt",),
        misleading=(r"firewall|memory|interface",),
    ),
    Own(
        name="v-mpirun-unknown-option",
        way="an option of Intel's mpirun",
        code="bad_input",
        rank=None,
        num_ranks=4,
        command="mpirun -ppn 2 -n 4 -genv OMP_NUM_THREADS 2 python train.py",
        files={"train.py": "from mpi4py import MPI\nprint(MPI.COMM_WORLD.rank)\n"},
        wanted=("ppn", "-genv", "genv"),
        helpful=(r"ppn|genv|option|mpirun|Open MPI",),
        misleading=(r"firewall|memory|interface",),
    ),
    Own(
        name="v-mpirun-program-not-built",
        way="the program that make should have built is not there",
        code="launcher_missing",
        also_codes=("bad_input",),
        rank=None,
        num_ranks=2,
        command=RUN + "2 ./build/bin/simulate --steps 100",
        files={"Makefile": "build/bin/simulate: simulate.c\n\tmpicc -o $@ $<\n"},
        wanted=("build/bin/simulate", "simulate"),
        helpful=(r"simulate|build|compile|make",),
        misleading=(r"firewall|memory|interface",),
    ),
    Own(
        name="v-mpirun-too-many-slots",
        way="64 ranks on a machine of two cores, without oversubscription",
        code="bad_input",
        also_codes=("exit_code",),
        rank=None,
        num_ranks=8,
        command="PRTE_MCA_rmaps_default_mapping_policy= mpirun -n 64 python train.py",
        files={"train.py": "from mpi4py import MPI\nprint(MPI.COMM_WORLD.rank)\n"},
        wanted=("not enough slots available",),
        helpful=(r"slots|oversubscribe|fewer|processes|ranks",),
        misleading=(r"firewall|memory|interface",),
    ),
    Own(
        name="v-mpirun-hostfile-missing",
        way="the hostfile has another name",
        code="bad_input",
        also_codes=("exception", "exit_code", "rendezvous"),
        rank=None,
        num_ranks=2,
        command="mpirun --hostfile hosts.txt -n 2 python train.py",
        files={"hostfile": "localhost slots=2\n", "train.py": "print('hello')\n"},
        wanted=("hosts.txt",),
        helpful=(r"hosts\.txt|hostfile",),
        misleading=(r"firewall|memory|interface",),
    ),
    Own(
        name="v-mpirun-assert-in-one",
        way="an assertion after noisy warnings on all ranks",
        code="exception",
        rank=2,
        num_ranks=4,
        command=RUN + "4 python -W always -m mpi4py check.py",
        files={
            "check.py": """import warnings
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
x = np.linspace(0, 1, 5)
for i in range(6):
    warnings.warn(f"rank {comm.rank}: ConvergenceWarning: Liblinear failed to converge (iteration {i})")
labels = np.array([0, 1, 1, 0, 2 if comm.rank == 2 else 1])
assert labels.max() < 2, f"expected binary labels, found class {labels.max()} on rank {comm.rank}"
print(comm.allreduce(labels.sum()))
"""
        },
        wanted="expected binary labels, found class 2 on rank 2",
        helpful=(r"check\.py|label|class",),
        misleading=(r"firewall|memory|interface|converge",),
    ),
    Own(
        name="v-mpirun-deadlock-two-sends",
        way="both send before they receive, with messages too large for eager sending; the limit passes",
        code="timeout",
        rank=None,
        also=(0, 1),
        num_ranks=2,
        limit_s=20,
        command=RUN + "2 python -u halo.py",
        files={
            "halo.py": """import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
other = 1 - comm.rank
field = np.zeros(4_000_000)
halo = np.empty_like(field)
print("exchange: rank", comm.rank, "with", other)
comm.Ssend(field, dest=other)
comm.Recv(halo, source=other)
print("exchange done")
"""
        },
        wanted=("comm.Ssend(field, dest=other)", "Ssend", "exchange: rank", "time limit"),
        helpful=(r"halo\.py|send|recv|deadlock",),
        misleading=(r"firewall|memory|interface",),
    ),
    Own(
        name="v-mpirun-worker-exit-code",
        way="one rank of a shell program leaves with code 4",
        code="exit_code",
        rank=1,
        num_ranks=3,
        command=RUN + "3 ./stage.sh",
        files={
            "stage.sh": """#!/bin/bash
r=$OMPI_COMM_WORLD_RANK
echo "stage: rank $r checks its GPU"
if [ $r -eq 1 ]; then
  echo "stage: rank $r: ERROR gpu 1 is in use by process 33121 (user mwolf)" >&2
  exit 4
fi
sleep 20
"""
        },
        wanted="ERROR gpu 1 is in use by process 33121",
        helpful=(r"gpu|33121|stage\.sh",),
        misleading=(r"firewall|interface|MASTER_PORT",),
    ),
]
