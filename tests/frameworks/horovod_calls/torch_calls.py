"""Every call of horovod.torch that scripts use, on any number of ranks; rank 0 writes what came out to a file.

With `--compat` the calls are those of Muster's layer. Real Horovod and the layer must write the same figures.
"""

import json
import sys
from pathlib import Path

if "--compat" in sys.argv:
    from muster.runtime.parts.horovod import HorovodCompat

    sys.meta_path.append(HorovodCompat)

import horovod.torch as hvd
import torch
from horovod.common.exceptions import HorovodInternalError
from torch import nn

FOUND = {}


def note(name, value):
    """Keep what all ranks have under this name."""
    FOUND[name] = hvd.allgather_object(plain(value))


def plain(value):
    if isinstance(value, torch.Tensor):
        value = value.detach().to_dense() if value.is_sparse else value.detach()
        return [str(value.dtype), value.double().tolist()]
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value


def numbers(*shape, start=0.0):
    """Other ones on every rank."""
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float32).reshape(shape) + start) * (hvd.rank() + 1) / 7 - hvd.rank()


def raised(call):
    try:
        call()
    except Exception as error:
        return [
            kind.__name__ for kind in type(error).__mro__ if kind in (ValueError, AssertionError, NotImplementedError)
        ]
    return None


def places():
    note("initialized", hvd.is_initialized())
    # Horovod numbers the ranks of a node in their order; the layer leaves that to the launcher.
    assert 0 <= hvd.local_rank() < hvd.local_size()
    note("rank", [hvd.rank(), hvd.size(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()])
    note("homogeneous", hvd.is_homogeneous() if hasattr(hvd, "is_homogeneous") else True)
    note("error", issubclass(HorovodInternalError, RuntimeError))


def reductions():
    for name in ("Average", "Sum", "Min", "Max", "Product", "Adasum"):
        op = getattr(hvd, name)
        note(f"allreduce {name}", hvd.allreduce(numbers(3, 2), op=op, name=f"r.{name}"))
    note("allreduce default", hvd.allreduce(numbers(4), name="default"))
    note("allreduce average=False", hvd.allreduce(numbers(4), average=False, name="old"))
    note("allreduce integers", hvd.allreduce(torch.tensor([5, 8, -3]) * (1 + hvd.rank()), name="whole"))
    note("allreduce sum of integers", hvd.allreduce(torch.tensor([5, 8], dtype=torch.int32), op=hvd.Sum, name="ints"))
    note("allreduce double", hvd.allreduce(numbers(5).double(), name="double"))
    note("allreduce half", hvd.allreduce(numbers(5).half(), op=hvd.Sum, name="half"))
    note("allreduce fp16", hvd.allreduce(numbers(5), compression=hvd.Compression.fp16, name="fp16"))
    scaled = hvd.allreduce(numbers(3), op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0, name="scaled")
    note("allreduce scaled", scaled)
    note("both words", raised(lambda: hvd.allreduce(numbers(2), average=True, op=hvd.Sum)))
    own = numbers(3)
    hvd.allreduce_(own, name="in place")
    note("allreduce_", own)
    handle = hvd.allreduce_async(numbers(3), name="async", op=hvd.Sum)
    result = hvd.synchronize(handle)
    note("allreduce_async", result)
    own = numbers(3)
    handle = hvd.allreduce_async_(own, name="async in place")
    while not hvd.poll(handle):
        pass
    hvd.synchronize(handle)
    note("allreduce_async_", own)
    note("grouped_allreduce", hvd.grouped_allreduce([numbers(3), numbers(2, 2, start=4)], name="g", op=hvd.Sum))
    group = [numbers(3), numbers(2, start=1)]
    hvd.grouped_allreduce_(group, name="g in place")
    note("grouped_allreduce_", group)
    note("grouped_allreduce_async", hvd.synchronize(hvd.grouped_allreduce_async([numbers(2), numbers(1)], name="ga")))
    group = [numbers(3), numbers(2, start=1)]
    hvd.synchronize(hvd.grouped_allreduce_async_(group, name="ga in place"))
    note("grouped_allreduce_async_", group)
    sparse = torch.tensor([1.0, 0, 2.0 + hvd.rank(), 0]).to_sparse()
    note("sparse_allreduce_async", hvd.sparse_allreduce_async(sparse, name="sparse", op=hvd.Average)())


def gatherings():
    note("allgather", hvd.allgather(numbers(2, 3), name="gather"))
    note("allgather uneven", hvd.allgather(numbers(1 + hvd.rank(), 2), name="uneven"))
    note("allgather_async", hvd.synchronize(hvd.allgather_async(numbers(2), name="gather async")))
    note("grouped_allgather", hvd.grouped_allgather([numbers(2), numbers(1 + hvd.rank(), 2)], name="gg"))
    note("grouped_allgather_async", hvd.synchronize(hvd.grouped_allgather_async([numbers(2), numbers(1)], name="gga")))
    root = hvd.size() - 1
    note("broadcast", hvd.broadcast(numbers(3), root, name="b"))
    own = numbers(3)
    hvd.broadcast_(own, 0, name="b in place")
    note("broadcast_", own)
    note("broadcast_async", hvd.synchronize(hvd.broadcast_async(numbers(3), root, name="b async")))
    own = numbers(2)
    hvd.synchronize(hvd.broadcast_async_(own, root, name="b async in place"))
    note("broadcast_async_", own)
    note("alltoall", hvd.alltoall(numbers(2 * hvd.size(), 2), name="all"))
    splits = [1 + (hvd.rank() + other) % 2 for other in range(hvd.size())]
    note(
        "alltoall splits",
        hvd.alltoall(numbers(sum(splits)), splits=torch.tensor(splits, dtype=torch.int32), name="all splits"),
    )
    result = hvd.synchronize(hvd.alltoall_async(numbers(hvd.size()), name="all async"))
    note("alltoall_async", result[0] if isinstance(result, tuple) else result)
    note("reducescatter", hvd.reducescatter(numbers(5, 2), name="rs"))
    note("reducescatter sum", hvd.reducescatter(numbers(4), op=hvd.Sum, name="rs sum"))
    note("reducescatter_async", hvd.synchronize(hvd.reducescatter_async(numbers(3), op=hvd.Sum, name="rs async")))
    grouped = hvd.grouped_reducescatter([numbers(4), numbers(3, 2)], op=hvd.Sum, name="grs")
    note("grouped_reducescatter", grouped)
    asynchronous = hvd.grouped_reducescatter_async([numbers(4), numbers(3)], op=hvd.Sum, name="grsa")
    note("grouped_reducescatter_async", hvd.synchronize(asynchronous))
    note("broadcast_object", hvd.broadcast_object({"rank": hvd.rank(), "text": "x" * 10}, root_rank=root))
    note("allgather_object", hvd.allgather_object(("of", hvd.rank())))
    hvd.barrier()


def gradients():
    for name, call in {
        "allreduce": lambda x: hvd.allreduce(x, name="grad", op=hvd.Sum),
        "grouped_allreduce": lambda x: hvd.grouped_allreduce([x, 2 * x], name="grouped grad")[1],
        "allgather": lambda x: hvd.allgather(x, name="gather grad"),
        "broadcast": lambda x: hvd.broadcast(x, 0, name="broadcast grad"),
        "alltoall": lambda x: hvd.alltoall(x, name="alltoall grad"),
        "reducescatter": lambda x: hvd.reducescatter(x, op=hvd.Sum, name="scatter grad"),
        "reducescatter average": lambda x: hvd.reducescatter(x, name="scatter average grad"),
    }.items():
        x = numbers(2 * hvd.size()).requires_grad_()
        y = call(x)
        (y * (hvd.rank() + 1) * torch.arange(1.0, y.numel() + 1)).sum().backward()
        note(f"gradient of {name}", x.grad)


def network():
    torch.manual_seed(hvd.rank())
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def trained(make, passes=1, clip=False, steps=4, **options):
    model = network()
    optimizer = make(model.parameters())
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), backward_passes_per_step=passes, **options
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer.zero_grad()
    for step in range(steps):
        for part in range(passes):
            x = numbers(6, 4, start=step + part)
            (model(x) ** 2).mean().backward()
        if clip:
            optimizer.synchronize()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            with optimizer.skip_synchronize():
                optimizer.step()
        else:
            optimizer.step()
        optimizer.zero_grad()
    return [torch.cat([p.detach().flatten() for p in model.parameters()]), isinstance(optimizer, torch.optim.Optimizer)]


def optimizers():
    def sgd(parameters):
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)

    note("SGD", trained(sgd))
    note("Adam", trained(lambda parameters: torch.optim.Adam(parameters, lr=0.01)))
    note("two passes", trained(sgd, passes=2))
    note("clipped", trained(sgd, clip=True))
    note("Sum", trained(sgd, op=hvd.Sum))
    note("predivided", trained(sgd, gradient_predivide_factor=2.0))
    note("groups", trained(sgd, groups=2))
    note("compressed", trained(sgd, compression=hvd.Compression.fp16, steps=2))
    note("Adasum", trained(lambda parameters: torch.optim.SGD(parameters, lr=0.1), op=hvd.Adasum))
    model = network()
    make = lambda **options: hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), **options)  # noqa: E731
    note("names left out", raised(lambda: make(named_parameters=list(model.named_parameters())[1:])))
    note("no passes", raised(lambda: make(backward_passes_per_step=0)))
    optimizer = make(named_parameters=model.named_parameters())
    model(numbers(2, 4)).sum().backward()
    note("zero_grad too early", raised(optimizer.zero_grad))
    optimizer.step()
    resumed()
    not_all_are_used()


def resumed():
    """Rank 0 has a checkpoint, the others begin anew: all go on from the checkpoint."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5 if hvd.rank() == 0 else 0.1, momentum=0.9)
    if hvd.rank() == 0:
        for _ in range(3):
            optimizer.zero_grad()
            model(numbers(3, 4)).sum().backward()
            optimizer.step()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    note("resumed", [optimizer.param_groups[0]["lr"], [s["momentum_buffer"] for s in optimizer.state.values()]])


def not_all_are_used():
    """A layer that one rank leaves out still gets the others' gradient."""
    torch.manual_seed(0)
    first, second = nn.Linear(3, 3), nn.Linear(3, 1)
    parameters = [*first.named_parameters(prefix="first"), *second.named_parameters(prefix="second")]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([p for _, p in parameters], lr=0.1), named_parameters=parameters
    )
    x = numbers(2, 3)
    second(first(x) if hvd.rank() == 0 else x).sum().backward()
    optimizer.step()
    note("a layer left out", [p for _, p in parameters])


def joining():
    """Ranks have different numbers of batches."""
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    for step in range(2 + 2 * hvd.rank()):
        optimizer.zero_grad()
        (model(numbers(2, 3, start=step)) ** 2).mean().backward()
        optimizer.step()
    last = hvd.join()
    hvd.broadcast_parameters(model.state_dict(), root_rank=last)
    note("join", [last, model.weight])
    note("allreduce after join", hvd.allreduce(numbers(2), name="after join"))


def main():
    hvd.init()
    for part in (places, reductions, gatherings, gradients, optimizers, joining):
        part()
    if hvd.rank() == 0:
        Path(sys.argv[1]).write_text(json.dumps(FOUND, indent=1) + "\n")
    hvd.shutdown()


if __name__ == "__main__":
    main()
