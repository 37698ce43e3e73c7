#!/bin/bash
#SBATCH --job-name=resnet50-k3v9x2ab.1@muster-1f2e3d4c
#SBATCH --partition=gpu
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=1
#SBATCH --gres=gpu:4
#SBATCH --signal=TERM@60
#SBATCH --output=/home/ada/.muster/handed-on/1f2e3d4c-resnet50-k3v9x2ab.1.out
#SBATCH --open-mode=append
#SBATCH --export=ALL
#SBATCH --requeue

# Muster: attempt 1 of the run resnet50-k3v9x2ab. One agent on each node starts its ranks there.
# A job that Slurm has put back into its queue is the next attempt: its agents wait for the server to say so.
export MUSTER_NODES=/home/ada/.muster/nodes/resnet50-k3v9x2ab.$((1 + ${SLURM_RESTART_COUNT:-0}))
export MUSTER_PYTHON=/home/ada/venv/bin/python
agent='
    export MUSTER_AGENT_HOST="$SLURMD_NODENAME"
    config="$MUSTER_NODES.$SLURM_PROCID/agent.json"
    for second in $(seq 600); do [ -e "$config" ] && break; sleep 1; done
    exec "$MUSTER_PYTHON" -m muster.agent "$config"
'
exec srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=1 --mpi=none --kill-on-bad-exit=0 --wait=90 '--container-image=nvcr.io#nvidia/pytorch:24.01-py3' --container-mounts=/home/ada/.muster:/home/ada/.muster,/scratch:/scratch --container-mount-home --export=ALL /bin/bash -c "$agent"
