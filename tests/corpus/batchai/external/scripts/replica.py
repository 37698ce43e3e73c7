import argparse
import socket
import time

parser = argparse.ArgumentParser()
for name in ("job_name", "ps_hosts", "worker_hosts", "data_dir", "train_dir"):
    parser.add_argument("--" + name)
parser.add_argument("--task_index", type=int)
parser.add_argument("--num_gpus", type=int)
args = parser.parse_args()
print(args.job_name, args.task_index, len(args.worker_hosts.split(",")), len(args.ps_hosts.split(",")))

host, port = args.ps_hosts.split(",")[0].rsplit(":", 1)
if args.job_name == "ps":
    with socket.create_server(("", int(port))) as server:
        while True:
            server.accept()[0].close()
while True:
    try:
        socket.create_connection((host, int(port)), timeout=60).close()
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
