import argparse

import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
args = parser.parse_args()
dist.init_process_group("gloo")
print(f"torchrun rank {dist.get_rank()} of {dist.get_world_size()}", flush=True)
dist.destroy_process_group()
