import argparse

parser = argparse.ArgumentParser()
for name in ("job_name", "ps_hosts", "worker_hosts", "data_dir", "train_dir"):
    parser.add_argument("--" + name)
parser.add_argument("--task_index", type=int)
parser.add_argument("--num_gpus", type=int)
args = parser.parse_args()
print(args.job_name, args.task_index, len(args.worker_hosts.split(",")), len(args.ps_hosts.split(",")))
