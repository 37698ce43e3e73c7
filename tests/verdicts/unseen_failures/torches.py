"""torch: single processes, spawned ones, and gangs with one process per rank."""

from recorder import Failure

HUNG = ("did not", "hung", "stuck", "does not respond", "not respond")
LEFT = ("code 0", "exited early", "ended early", "left early", "finished before", "had ended")
GLOO = (
    "import datetime, os, sys, time, torch, torch.distributed as dist\n"
    "dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=4))\nRANK, WORLD = dist.get_rank(), dist.get_world_size()\n"
)
INFRA = r"network|firewall|out of memory|smaller batch|MASTER_PORT"

SINGLES = [
    Failure(
        name="torch-linear-shape",
        way="shapes that cannot be multiplied",
        code="exception",
        command="python net.py",
        files={"net.py": "import torch\nfrom torch import nn\nnet = nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(10, 5))\nnet(torch.ones(4, 20))\n"},
        wanted="mat1 and mat2 shapes cannot be multiplied (4x8 and 10x5)",
        helpful=(r"net\.py|Linear|shape",),
        misleading=(INFRA, r"pip"),
    ),
    Failure(
        name="torch-dtype-mismatch",
        way="float and half",
        code="exception",
        command="python half.py",
        files={"half.py": "import torch\nw = torch.ones(3, 3, dtype=torch.bfloat16)\nx = torch.ones(2, 3)\nprint(x @ w)\n"},
        wanted="expected m1 and m2 to have the same dtype, but got: float != c10::BFloat16",
        helpful=(r"half\.py|dtype|bfloat16",),
        misleading=(INFRA, r"pip"),
    ),
    Failure(
        name="torch-state-dict-mismatch",
        way="a checkpoint of another model",
        code="exception",
        command="python load.py",
        files={
            "load.py": "import torch\nfrom torch import nn\nclass Net(nn.Module):\n    def __init__(self, n):\n        super().__init__()\n        self.body = nn.Linear(4, 4)\n        self.head = nn.Linear(4, n)\n"
            "torch.save(Net(10).state_dict(), 'net.pt')\nstate = torch.load('net.pt')\nstate['module.extra'] = state.pop('body.bias')\nNet(3).load_state_dict(state)\n"
        },
        wanted=("Error(s) in loading state_dict for Net", "size mismatch for head.weight", 'Missing key(s) in state_dict: "body.bias"'),
        helpful=(r"load\.py|head|net\.pt|strict",),
        misleading=(INFRA, r"pip"),
    ),
    Failure(
        name="torch-load-weights-only",
        way="torch.load refuses a pickled object",
        code="exception",
        command="python restore.py",
        files={
            "restore.py": "import argparse, torch\ntorch.save({'args': argparse.Namespace(lr=1), 'w': torch.ones(2)}, 'last.ckpt')\nprint(torch.load('last.ckpt'))\n"
        },
        wanted=("Weights only load failed", "Unsupported global: GLOBAL argparse.Namespace"),
        helpful=(r"weights_only|safe_globals|last\.ckpt|restore\.py",),
        misleading=(INFRA, r"pip"),
    ),
    Failure(
        name="torch-cuda-absent",
        way="CUDA is asked for where there is none",
        code="exception",
        also_codes=("environment", "bad_input"),
        command="python gpu.py",
        files={"gpu.py": "import torch\nmodel = torch.nn.Linear(2, 2).to('cuda:0')\n"},
        wanted="Torch not compiled with CUDA enabled",
        helpful=(r"GPU|--compute|cpu",),
        misleading=(r"out of memory|firewall|smaller batch",),
    ),
    Failure(
        name="torch-loader-worker-raises",
        way="an exception in a data-loader worker",
        code="exception",
        command="python loader.py",
        files={
            "loader.py": "import torch\nfrom torch.utils.data import DataLoader, Dataset\nclass Images(Dataset):\n    def __len__(self):\n        return 20\n"
            "    def __getitem__(self, i):\n        if i == 13:\n            raise OSError(f'image file is truncated (7 bytes not processed): img_{i:05}.jpg')\n        return torch.ones(3)\n"
            "if __name__ == '__main__':\n    for n, batch in enumerate(DataLoader(Images(), batch_size=4, num_workers=2)):\n        print('batch', n, flush=True)\n"
        },
        wanted="OSError: image file is truncated (7 bytes not processed): img_00013.jpg",
        helpful=(r"img_00013|loader\.py",),
        misleading=(INFRA, r"num_workers=0|pip|shm"),
    ),
    Failure(
        name="torch-loader-worker-killed",
        way="a data-loader worker crashes",
        code="signal",
        also_codes=("exception",),
        command="python crashload.py",
        files={
            "crashload.py": "import ctypes, torch\nfrom torch.utils.data import DataLoader, Dataset\nclass D(Dataset):\n    def __len__(self):\n        return 20\n"
            "    def __getitem__(self, i):\n        if i == 9:\n            ctypes.string_at(0)\n        return torch.ones(3)\n"
            "if __name__ == '__main__':\n    for batch in DataLoader(D(), batch_size=2, num_workers=2):\n        pass\n"
        },
        wanted=("is killed by signal: Segmentation fault", "Unexpected segmentation fault encountered in worker"),
        helpful=(r"crashload\.py|worker|num_workers=0|faulthandler",),
        misleading=(r"network|firewall|smaller batch|pip",),
    ),
    Failure(
        name="torch-collate-sizes",
        way="samples of different sizes",
        code="exception",
        command="python collate.py",
        files={
            "collate.py": "import torch\nfrom torch.utils.data import DataLoader\ndata = [torch.ones(5), torch.ones(7)]\nnext(iter(DataLoader(data, batch_size=2)))\n"
        },
        wanted="stack expects each tensor to be equal size, but got [5] at entry 0 and [7] at entry 1",
        helpful=(r"collate|pad|size",),
        misleading=(INFRA, r"pip"),
    ),
    Failure(
        name="torch-shm-too-small",
        way="/dev/shm of 1 MiB",
        code="shm_too_small",
        command="./small_shm.sh",
        files={
            "small_shm.sh": "#!/bin/bash\nexec unshare -m bash -c 'mount -t tmpfs -o size=1m shm /dev/shm && exec python wide.py'\n",
            "wide.py": "import torch\nfrom torch.utils.data import DataLoader, Dataset\nclass D(Dataset):\n    def __len__(self):\n        return 8\n    def __getitem__(self, i):\n        return torch.ones(1_000_000)\n"
            "if __name__ == '__main__':\n    for b in DataLoader(D(), batch_size=2, num_workers=2):\n        print(b.shape, flush=True)\n",
        },
        wanted=("shared memory", "Bus error", "/dev/shm", "No space left on device"),
        helpful=(r"shm_size|shared memory|/dev/shm|fewer workers|num_workers",),
        misleading=(r"network|firewall|muster rm",),
    ),
    Failure(
        name="torch-target-out-of-bounds",
        way="a label beyond the number of classes",
        code="exception",
        command="python loss.py",
        files={"loss.py": "import torch\nimport torch.nn.functional as F\nF.cross_entropy(torch.randn(2, 10), torch.tensor([3, 10]))\n"},
        wanted="IndexError: Target 10 is out of bounds.",
        helpful=(r"loss\.py|class|label|Target",),
        misleading=(INFRA, r"pip"),
    ),
    Failure(
        name="torch-inplace-backward",
        way="a tensor was changed in place",
        code="exception",
        command="python grad.py",
        files={"grad.py": "import torch\nx = torch.ones(2, requires_grad=True)\ny = x.exp()\ny += 1\ny.sum().backward()\n"},
        wanted="has been modified by an inplace operation",
        helpful=(r"grad\.py|in-?place|detect_anomaly",),
        misleading=(INFRA, r"pip"),
    ),
    Failure(
        name="torch-allocator-host",
        way="a tensor of 4 TB",
        code="host_oom",
        also_codes=("exception",),
        command="python huge.py",
        files={"huge.py": "import torch\nattention = torch.zeros(1_000_000, 1_000_000)\n"},
        wanted="you tried to allocate 4000000000000 bytes",
        helpful=(r"huge\.py|memory|4000000000000|smaller",),
        misleading=(r"network|firewall|pip|GPU",),
    ),
    Failure(
        name="torch-env-rendezvous-without-ranks",
        way="init_process_group in a job of one plain process",
        code="exception",
        also_codes=("rendezvous", "bad_input"),
        command="python ddp.py",
        files={"ddp.py": "import torch.distributed as dist\ndist.init_process_group('gloo')\n"},
        wanted="environment variable RANK expected, but not set",
        helpful=(r"torchrun|--procs|process[ _]count|process_count_per_instance",),
        misleading=(r"memory|firewall|pip",),
    ),
    Failure(
        name="torch-nan-guard-anomaly",
        way="the anomaly mode finds a NaN",
        code="exception",
        command="python anomaly.py",
        files={
            "anomaly.py": "import torch\nx = torch.zeros(1, requires_grad=True)\nwith torch.autograd.detect_anomaly():\n    y = torch.sqrt(x) * 0 / x\n    y.backward()\n"
        },
        wanted=("returned nan values in its 0th output", "returned nan values"),
        helpful=(r"anomaly\.py|nan|sqrt",),
        misleading=(INFRA, r"pip"),
    ),
]

SPAWNED = [
    Failure(
        name="spawn-torch-child-raises",
        way="torch.multiprocessing.spawn, one child raises",
        convention="spawn",
        code="exception",
        command="python spawn.py",
        files={
            "spawn.py": "import torch.multiprocessing as mp\ndef work(rank, world):\n    if rank == 2:\n        raise KeyError('no shard for rank 2')\n    import time; time.sleep(20)\n"
            "if __name__ == '__main__':\n    mp.spawn(work, args=(3,), nprocs=3)\n"
        },
        wanted="KeyError: 'no shard for rank 2'",
        helpful=(r"spawn\.py|shard",),
        misleading=(INFRA, r"pip"),
    ),
    Failure(
        name="spawn-torch-child-killed",
        way="torch.multiprocessing.spawn, one child dies of a signal",
        convention="spawn",
        code="signal",
        also_codes=("exception",),
        command="python spawn2.py",
        files={
            "spawn2.py": "import os, signal, torch.multiprocessing as mp\ndef work(rank):\n    if rank == 1:\n        os.kill(os.getpid(), signal.SIGABRT)\n    import time; time.sleep(20)\n"
            "if __name__ == '__main__':\n    mp.spawn(work, nprocs=2)\n"
        },
        wanted="process 1 terminated with signal SIGABRT",
        helpful=(r"spawn2\.py|SIGABRT|process 1|faulthandler",),
        misleading=(INFRA, r"pip"),
    ),
    Failure(
        name="pool-remote-traceback",
        way="multiprocessing.Pool passes an exception on",
        convention="spawn",
        code="exception",
        command="python pool.py",
        files={
            "pool.py": "import multiprocessing as mp\ndef encode(text):\n    return text.encode('ascii')\nif __name__ == '__main__':\n    with mp.Pool(3) as pool:\n        pool.map(encode, ['a', 'b', 'naïve'])\n"
        },
        wanted="UnicodeEncodeError: 'ascii' codec can't encode character '\\xef' in position 2",
        helpful=(r"pool\.py|ascii|encod",),
        misleading=(INFRA, r"pip"),
    ),
    Failure(
        name="pool-broken-process-pool",
        way="a worker of an executor is killed",
        convention="spawn",
        code="exception",
        also_codes=("signal",),
        command="python executor.py",
        files={
            "executor.py": "import os\nfrom concurrent.futures import ProcessPoolExecutor\ndef work(n):\n    if n == 3:\n        os._exit(11)\n    return n\n"
            "if __name__ == '__main__':\n    with ProcessPoolExecutor(2) as pool:\n        print(list(pool.map(work, range(6))))\n"
        },
        wanted="A process in the process pool was terminated abruptly",
        helpful=(r"executor\.py|worker|pool",),
        misleading=(r"network|firewall|pip|MASTER_PORT",),
    ),
    Failure(
        name="spawn-main-guard-missing",
        way="spawned processes without the main guard",
        convention="spawn",
        code="exception",
        command="python unguarded.py",
        files={"unguarded.py": "import multiprocessing as mp\nmp.set_start_method('spawn')\np = mp.Process(target=print, args=('hi',))\np.start()\np.join()\nif p.exitcode:\n    raise SystemExit(p.exitcode)\n"},
        wanted=("An attempt has been made to start a new process before the", "context has already been set"),
        helpful=(r"__main__|main guard|unguarded\.py",),
        misleading=(INFRA, r"pip"),
    ),
    Failure(
        name="spawn-cannot-pickle",
        way="a lambda for a spawned process",
        convention="spawn",
        code="exception",
        command="python lam.py",
        files={
            "lam.py": "import multiprocessing as mp\nif __name__ == '__main__':\n    ctx = mp.get_context('spawn')\n    p = ctx.Process(target=lambda: None)\n    p.start()\n    p.join()\n"
        },
        wanted=("Can't pickle <function <lambda>", "Can't get local object", "attribute lookup <lambda>"),
        helpful=(r"lam\.py|lambda|pickle",),
        misleading=(INFRA, r"pip"),
    ),
    Failure(
        name="spawn-children-exit-codes",
        way="a parent reports the exit codes of its workers",
        convention="spawn",
        code="exception",
        also_codes=("exit_code",),
        command="python parent.py",
        files={
            "parent.py": "import multiprocessing as mp, sys\ndef work(n):\n    limits = [1, 2, 3]\n    if n == 1:\n        assert sum(limits) == 7, f'worker {n}: limits add up to {sum(limits)}, not 7'\n"
            "if __name__ == '__main__':\n    ps = [mp.Process(target=work, args=(n,)) for n in range(3)]\n    [p.start() for p in ps]\n    [p.join() for p in ps]\n    codes = [p.exitcode for p in ps]\n"
            "    if any(codes):\n        print('workers ended with', codes, file=sys.stderr)\n        sys.exit(70)\n"
        },
        wanted="AssertionError: worker 1: limits add up to 6, not 7",
        helpful=(r"parent\.py|limits|worker 1",),
        misleading=(INFRA, r"pip"),
    ),
]

GANGS = [
    Failure(
        name="gloo-hung-one-of-3",
        way="one rank does not come to the all-reduce",
        convention="process",
        processes=3,
        code="collective",
        rank=1,
        command="python train.py",
        files={"train.py": GLOO + "dist.all_reduce(torch.ones(3))\ndef validate():\n    time.sleep(300)\nif RANK == 1:\n    validate()\ndist.all_reduce(torch.ones(3))\n"},
        wanted=(*HUNG, "validate"),
        helpful=(r"rank 1|validate",),
        misleading=(r"memory|pip|firewall",),
    ),
    Failure(
        name="gloo-hung-one-of-5-lock",
        way="one rank waits for a lock; the others are in a barrier",
        convention="process",
        processes=5,
        code="collective",
        rank=3,
        command="python train.py",
        files={
            "train.py": GLOO + "import fcntl\nf = open('cache.lock', 'w')\ndef cached():\n    other = open('cache.lock', 'w')\n    fcntl.flock(f, fcntl.LOCK_EX)\n    fcntl.flock(other, fcntl.LOCK_EX)\n"
            "dist.barrier()\nif RANK == 3:\n    cached()\ndist.barrier()\n"
        },
        wanted=(*HUNG, "cached", "flock"),
        helpful=(r"rank 3|cached|flock|lock",),
        misleading=(r"memory|pip|firewall",),
    ),
    Failure(
        name="gloo-hung-last-of-8",
        way="the last of eight ranks spins",
        convention="process",
        processes=8,
        nodes=2,
        code="collective",
        rank=7,
        command="python train.py",
        files={
            "train.py": GLOO.replace("seconds=4", "seconds=12") + "dist.barrier()\npg = dist.new_group(backend='gloo', timeout=datetime.timedelta(seconds=4))\ndist.barrier(pg)\n"
            "def retokenize():\n    while True:\n        time.sleep(0.1)\nif RANK == 7:\n    retokenize()\ndist.all_reduce(torch.ones(4), group=pg)\n"
        },
        wanted=(*HUNG, "retokenize"),
        helpful=(r"rank 7|retokenize",),
        misleading=(r"memory|pip|firewall",),
    ),
    Failure(
        name="gloo-monitored-barrier",
        way="monitored_barrier names the rank that is missing",
        convention="process",
        processes=4,
        code="collective",
        rank=2,
        command="python train.py",
        files={
            "train.py": GLOO + "dist.barrier()\ndef warm_cache():\n    time.sleep(200)\nif RANK == 2:\n    warm_cache()\ndist.monitored_barrier(timeout=datetime.timedelta(seconds=2))\n"
        },
        wanted=("Rank 2 failed to pass monitoredBarrier", "warm_cache", *HUNG),
        helpful=(r"rank 2|warm_cache",),
        misleading=(r"memory|pip|firewall",),
    ),
    Failure(
        name="gloo-late-to-rendezvous",
        way="one rank is late; the others' init times out",
        convention="process",
        processes=4,
        code="rendezvous",
        rank=3,
        command="python train.py",
        files={
            "train.py": "import datetime, os, time, torch, torch.distributed as dist\ndef download_weights():\n    time.sleep(300)\nif os.environ['RANK'] == '3':\n    print('downloading weights', flush=True)\n    download_weights()\n"
            "dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=5))\ndist.barrier()\n"
        },
        wanted=(*HUNG, "download_weights", "late", "clients joined"),
        helpful=(r"rank 3|download_weights",),
        misleading=(r"memory|pip",),
    ),
    Failure(
        name="gloo-rank0-late",
        way="rank 0, which holds the store, is late",
        convention="process",
        processes=3,
        code="rendezvous",
        rank=0,
        command="python train.py",
        files={
            "train.py": "import datetime, os, time, torch, torch.distributed as dist\ndef index_files():\n    time.sleep(300)\nif os.environ['RANK'] == '0':\n    print('indexing files', flush=True)\n    index_files()\n"
            "dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=5))\ndist.barrier()\n"
        },
        wanted=(*HUNG, "index_files", "late", "timed out while waiting", "failed to connect"),
        helpful=(r"rank 0|index_files",),
        misleading=(r"memory|pip",),
    ),
    Failure(
        name="gloo-early-exit-0",
        way="one rank's data is shorter; it ends with code 0",
        convention="process",
        processes=4,
        code="collective",
        rank=2,
        command="python train.py",
        files={"train.py": GLOO + "data = list(range(40 + (0 if RANK == 2 else 10)))\nfor i in range(0, len(data), 10):\n    dist.all_reduce(torch.ones(1))\nprint('epoch done', flush=True)\nos._exit(0)\n"},
        wanted=(*LEFT, "Connection closed by peer", "Connection reset by peer"),
        helpful=(r"rank 2|uneven|drop_last|join",),
        misleading=(r"memory|pip|interface|firewall",),
    ),
    Failure(
        name="gloo-one-raises-others-reduce",
        way="one rank raises while the others are in an all-reduce",
        convention="process",
        processes=5,
        code="exception",
        rank=4,
        command="python train.py",
        files={"train.py": GLOO + "for step in range(4):\n    x = torch.ones(2, 3)\n    if RANK == 4 and step == 2:\n        x = x.view(4, 2)\n    dist.all_reduce(x)\n"},
        wanted="shape '[4, 2]' is invalid for input of size 6",
        helpful=(r"train\.py|view|shape",),
        misleading=(r"memory|pip|firewall",),
    ),
    Failure(
        name="gloo-victims-exit-first",
        way="the rank at fault destroys its group, then tidies up slowly",
        convention="process",
        processes=3,
        code="exception",
        rank=1,
        command="python train.py",
        files={
            "train.py": GLOO + "def main():\n    dist.barrier()\n    if RANK == 1:\n        raise LookupError('vocabulary has no <pad> token')\n    dist.all_reduce(torch.ones(1))\n"
            "try:\n    main()\nfinally:\n    if RANK == 1:\n        dist.destroy_process_group()\n        time.sleep(0.35)\n"
        },
        wanted="LookupError: vocabulary has no <pad> token",
        helpful=(r"train\.py|<pad>|vocab",),
        misleading=(r"memory|pip install|firewall",),
    ),
    Failure(
        name="gloo-world-size-too-large",
        way="WORLD_SIZE says 4, three processes start",
        convention="process",
        processes=3,
        code="rendezvous",
        rank=None,
        command="python train.py",
        variables={"WORLD_SIZE": "4"},
        files={"train.py": "import datetime, torch.distributed as dist\ndist.init_process_group('gloo', timeout=datetime.timedelta(seconds=5))\n"},
        wanted=("3/4 clients joined", "clients joined", "did not find each other"),
        helpful=(r"WORLD_SIZE|world size|3/4",),
        misleading=(r"memory|pip",),
    ),
    Failure(
        name="gloo-store-key-missing",
        way="a rank never sets the key that the others wait for",
        convention="process",
        processes=3,
        code="collective",
        also_codes=("rendezvous", "exception"),
        rank=2,
        command="python train.py",
        files={
            "train.py": GLOO + "store = dist.distributed_c10d._get_default_store()\ndist.barrier()\nif RANK == 2:\n    sys.stdin.read()\n    time.sleep(100)\nelse:\n"
            "    store.wait(['shard_plan_from_2'], datetime.timedelta(seconds=2))\n"
        },
        wanted=("shard_plan_from_2", *HUNG),
        helpful=(r"shard_plan_from_2|rank 2",),
        misleading=(r"memory|pip|firewall",),
    ),
    Failure(
        name="gloo-fixed-port-taken",
        way="the script sets MASTER_PORT itself; the port is taken",
        convention="process",
        processes=3,
        code="port_trouble",
        rank=0,
        command="python train.py",
        files={
            "train.py": "import os, socket, time, datetime\nos.environ['MASTER_PORT'] = '29517'\nif os.environ['RANK'] == '0':\n    metrics = socket.create_server(('', 29517))\n"
            "import torch.distributed as dist\ndist.init_process_group('gloo', timeout=datetime.timedelta(seconds=20))\n"
        },
        wanted=("EADDRINUSE", "address already in use"),
        helpful=(r"29517|MASTER_PORT",),
        misleading=(r"memory|pip|firewall",),
    ),
    Failure(
        name="gloo-nccl-without-gpu",
        way="every rank asks for NCCL",
        convention="process",
        processes=3,
        code="exception",
        also_codes=("environment", "bad_input"),
        rank=0,
        also=(1, 2),
        command="python train.py",
        files={"train.py": "import torch, torch.distributed as dist\nbackend = 'nccl'\ndist.init_process_group(backend)\n"},
        facts={"gpu_clusters": ["a100-pool"]},
        wanted=("ProcessGroupNCCL is only supported with GPUs, no GPUs found", "Distributed package doesn't have NCCL built in"),
        helpful=(r"gloo|a100-pool|--compute",),
        misleading=(r"out of memory|firewall|SOCKET_IFNAME",),
    ),
    Failure(
        name="gloo-limit-hung-rank",
        way="the job's limit passes before gloo's own",
        convention="process",
        processes=4,
        code="timeout",
        also_codes=("collective",),
        rank=1,
        limit_s=15.0,
        command="python train.py",
        files={
            "train.py": GLOO.replace("seconds=4", "minutes=30") + "dist.barrier()\ndef sync_to_bucket():\n    import subprocess\n    subprocess.check_call(['sleep', '1000'])\nif RANK == 1:\n    sync_to_bucket()\ndist.barrier()\n"
        },
        wanted=(*HUNG, "sync_to_bucket"),
        helpful=(r"rank 1|sync_to_bucket|subprocess",),
        misleading=(r"memory|pip|firewall|raise .{0,20}limits\.timeout",),
    ),
    Failure(
        name="gloo-limit-earlier-traceback",
        way="a rank raised and stays in destroy_process_group's company until the limit",
        convention="process",
        processes=3,
        code="exception",
        also_codes=("timeout",),
        rank=0,
        limit_s=15.0,
        command="python train.py",
        files={
            "train.py": GLOO.replace("seconds=4", "minutes=30") + "import threading\ndist.barrier()\nif RANK == 0:\n    threading.Thread(target=time.sleep, args=(1000,), name='uploader').start()\n"
            "    raise OSError(122, 'Disk quota exceeded', 'ckpt/step_10.pt')\ndist.barrier()\n"
        },
        wanted="OSError: [Errno 122] Disk quota exceeded: 'ckpt/step_10.pt'",
        helpful=(r"quota|step_10|disk",),
        misleading=(r"out of memory|pip|firewall|raise .{0,20}limits\.timeout",),
    ),
    Failure(
        name="gloo-error-flag",
        way="all ranks raise because a flag was reduced",
        convention="process",
        processes=4,
        code="exception",
        rank=3,
        command="python train.py",
        files={
            "train.py": GLOO + "import traceback\nok = torch.ones(1)\ntry:\n    if RANK == 3:\n        float('nan-ish')\nexcept ValueError:\n    traceback.print_exc()\n    ok.zero_()\n"
            "dist.all_reduce(ok, op=dist.ReduceOp.MIN)\nif not ok:\n    raise SystemExit('preprocessing failed on some rank')\n"
        },
        also_codes=("exit_code",),
        wanted="ValueError: could not convert string to float: 'nan-ish'",
        helpful=(r"train\.py|nan-ish|rank 3",),
        misleading=(r"memory|pip|firewall",),
    ),
    Failure(
        name="gloo-segv-one-of-3",
        way="one rank crashes during training",
        convention="process",
        processes=3,
        code="signal",
        rank=0,
        command="python train.py",
        files={"train.py": GLOO + "dist.barrier()\nif RANK == 0:\n    import ctypes\n    print('step 100', flush=True)\n    ctypes.string_at(0)\ndist.barrier()\n"},
        wanted=("SIGSEGV", "Segmentation fault", "signal 11"),
        helpful=(r"faulthandler|native|rank 0",),
        misleading=(r"memory limit|pip|firewall|network",),
    ),
    Failure(
        name="gloo-sizes-differ",
        way="one rank reduces a larger tensor",
        convention="process",
        processes=3,
        code="collective",
        also_codes=("exception", "signal"),
        rank=0,
        also=(1, 2),
        command="python train.py",
        files={"train.py": GLOO + "dist.barrier()\nx = torch.ones(5000 if RANK == 2 else 100)\ndist.all_reduce(x)\ndist.barrier()\n"},
        wanted=("op.preamble.length <= op.nbytes", "preamble", "EnforceNotMet"),
        helpful=(r"size|shape|same",),
        misleading=(r"out of memory|pip|firewall",),
    ),
    Failure(
        name="gloo-object-broadcast-raises",
        way="rank 0 raises before it broadcasts",
        convention="process",
        processes=3,
        code="exception",
        rank=0,
        command="python train.py",
        files={
            "train.py": GLOO + "import json\nplan = [None]\nif RANK == 0:\n    plan = [json.load(open('plan.json'))]\ndist.broadcast_object_list(plan, src=0)\nprint(plan)\n",
            "plan.json": "{'steps': 3}\n",
        },
        wanted="Expecting property name enclosed in double quotes: line 1 column 2",
        helpful=(r"plan\.json|quotes",),
        misleading=(r"memory|pip|firewall",),
    ),
]

FAILURES = [*SINGLES, *SPAWNED, *GANGS]
