"""Fails on a GPU in a named way; recorded by `record_gpu.py` on a machine that has one."""

import os
import sys
import time

import torch

way, who = sys.argv[1], int(sys.argv[2])
rank = int(os.environ.get("RANK", "0"))
if way.startswith("nccl"):
    import datetime

    import torch.distributed as dist

    dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=20))
    dist.all_reduce(torch.ones(1, device="cuda"))
    torch.cuda.synchronize()
elif rank != who:
    time.sleep(600)
elif way == "memory":
    torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
elif way == "memory-grown":
    held = []
    while True:
        held.append(torch.empty(8 << 30, dtype=torch.uint8, device="cuda"))
elif way == "assert":
    torch.nn.functional.cross_entropy(torch.randn(4, 10, device="cuda"), torch.tensor([1, 2, 3, 17], device="cuda"))
    torch.cuda.synchronize()
elif way == "illegal-address":
    import triton
    import triton.language as tl

    @triton.jit
    def wild(pointer):
        tl.store(pointer + (1 << 40), 1.0)

    wild[(1,)](torch.zeros(1, device="cuda"))
    torch.cuda.synchronize()
elif way == "illegal-address-cpp":
    # An exception that leaves a destructor ends the program in native code.

    import cupy

    kernel = cupy.RawKernel(r'extern "C" __global__ void wild(float *p) { p[1ull << 38] = 1; }', "wild")
    kernel((1,), (1,), (cupy.zeros(1, dtype="f4"),))
    cupy.cuda.Device().synchronize()
elif way == "bad-device":
    torch.zeros(1, device="cuda:7")
elif way == "jax-memory":
    import jax.numpy

    jax.numpy.zeros((1 << 42,), dtype="uint8").block_until_ready()
