"""Horovod's operations on tensors, in eager code and in graphs.

Without Horovod's controller, two ranks that ran the operations of a graph in different orders would wait for each other
for ever. So each operation of a graph depends on the one built before it, and gradients are reduced together.
"""

from __future__ import annotations

import pickle
import weakref
from typing import Any, Callable, List, Optional, Sequence

import numpy as np
import tensorflow as tf

from ..reduction import Average, Sum, chosen, shares
from ..refusals import check_process_set
from .compression import Compression
from .group import GROUP

_LAST: Any = weakref.WeakKeyDictionary()
"""The last operation of each graph."""


def in_order(
    compute: Callable[..., List[Any]], inputs: Sequence[Any], outputs: Sequence[Any], shapes: Any
) -> List[Any]:
    """Call a function of arrays now, or make it an operation of the graph that runs after the one built before it."""
    if tf.executing_eagerly():
        return [tf.convert_to_tensor(array) for array in compute(*(tensor.numpy() for tensor in inputs))]
    graph = tf.compat.v1.get_default_graph()
    with tf.control_dependencies([_LAST[graph]] if graph in _LAST else []):
        found = tf.numpy_function(compute, list(inputs), list(outputs), stateful=True)
    _LAST[graph] = found[0].op
    for tensor, shape in zip(found, shapes):
        tensor.set_shape(shape)
    return list(found)


def allreduce(
    tensor: Any,
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: Optional[str] = None,
    process_set: object = None,
    ignore_name_scope: bool = False,
) -> Any:
    scales = (prescale_factor, postscale_factor)
    check_process_set(process_set)
    return reduce_all([tensor], compression, chosen(op, average), *scales, name)[0]


def grouped_allreduce(
    tensors: Sequence[Any],
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: object = None,
    ignore_name_scope: bool = False,
    name: Optional[str] = None,
) -> List[Any]:
    check_process_set(process_set)
    return reduce_all(tensors, compression, chosen(op, average), prescale_factor, postscale_factor, name)


@tf.autograph.experimental.do_not_convert
def reduce_all(
    tensors: Sequence[Any],
    compression: Any,
    op: int,
    before: float = 1.0,
    after: float = 1.0,
    name: Optional[str] = None,
) -> List[Any]:
    """Reduce the dense tensors together, then the entries of the sparse ones; None stays None."""
    found: List[Any] = list(tensors)
    dense = [at for at, one in enumerate(tensors) if one is not None and not isinstance(one, tf.IndexedSlices)]
    sparse = [at for at, one in enumerate(tensors) if isinstance(one, tf.IndexedSlices)]
    if dense:
        compressed = [compression.compress(tf.convert_to_tensor(tensors[at])) for at in dense]
        reduced = _reduce([tensor for tensor, _ in compressed], op, before, after, name)
        for at, tensor, (_, ctx) in zip(dense, reduced, compressed):
            found[at] = compression.decompress(tensor, ctx)
    if sparse:
        if op not in (Average, Sum) or before != 1.0 or after != 1.0:
            raise NotImplementedError("tf.IndexedSlices take op=hvd.Average or hvd.Sum, without factors")
        parts = [part for at in sparse for part in (tensors[at].values, tensors[at].indices)]
        gathered = grouped_allgather(parts)
        for number, at in enumerate(sparse):
            values = gathered[2 * number] / (GROUP.size() if op == Average else 1)
            found[at] = tf.IndexedSlices(values, gathered[2 * number + 1], tensors[at].dense_shape)
    return found


def _reduce(tensors: Sequence[Any], op: int, before: float, after: float, name: Optional[str]) -> List[Any]:
    types = [tensor.dtype for tensor in tensors]

    def compute(*arrays: Any) -> List[Any]:
        return GROUP.reduce(arrays, op, name, before, after)

    @tf.custom_gradient
    def reduced(*inputs: Any) -> Any:
        outputs = in_order(compute, inputs, types, [tensor.shape for tensor in inputs])
        return outputs, lambda *gradients: _reduce(gradients, op, before, after, None)

    return list(reduced(*tensors))


def grouped_allgather(
    tensors: Sequence[Any], name: Optional[str] = None, ignore_name_scope: bool = False, process_set: object = None
) -> List[Any]:
    check_process_set(process_set)

    def compute(*arrays: Any) -> List[Any]:
        return GROUP.gather(arrays, name)

    @tf.custom_gradient
    def gathered(*inputs: Any) -> Any:
        shapes = [tf.TensorShape([None, *tensor.shape[1:]]) for tensor in inputs]
        return in_order(compute, inputs, [tensor.dtype for tensor in inputs], shapes), lambda *gradients: _own_rows(
            inputs, gradients
        )

    return list(gathered(*(tf.convert_to_tensor(tensor) for tensor in tensors)))


def _own_rows(inputs: Sequence[Any], gradients: Sequence[Any]) -> List[Any]:
    """This rank's rows of the averaged gradients."""
    counts = tf.stack([tf.shape(tensor)[0] for tensor in inputs])
    rows = grouped_allgather([tf.expand_dims(counts, 0)])[0]
    begins = tf.reduce_sum(rows[: GROUP.rank()], axis=0)
    reduced = _reduce(gradients, Average, 1.0, 1.0, None)
    return [part[begins[at] : begins[at] + counts[at]] for at, part in enumerate(reduced)]


def allgather(
    tensor: Any, name: Optional[str] = None, ignore_name_scope: bool = False, process_set: object = None
) -> Any:
    return grouped_allgather([tensor], name, process_set=process_set)[0]


def broadcast(
    tensor: Any,
    root_rank: int,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: object = None,
) -> Any:
    check_process_set(process_set)
    return _broadcast([tf.convert_to_tensor(tensor)], root_rank, name)[0]


def _broadcast(tensors: Sequence[Any], root_rank: int, name: Optional[str]) -> List[Any]:
    def compute(*arrays: Any) -> List[Any]:
        return GROUP.broadcast(arrays, root_rank, name)

    @tf.custom_gradient
    def sent(*inputs: Any) -> Any:
        def backward(*gradients: Any) -> List[Any]:
            reduced = _reduce(gradients, Average, 1.0, 1.0, None)
            return reduced if GROUP.rank() == root_rank else [tf.zeros_like(tensor) for tensor in reduced]

        types = [tensor.dtype for tensor in inputs]
        return in_order(compute, inputs, types, [tensor.shape for tensor in inputs]), backward

    return list(sent(*tensors))


def broadcast_variables(
    variables: Sequence[Any], root_rank: int, process_set: object = None, inplace: bool = False
) -> Any:
    """Every rank's variables become the root's."""
    check_process_set(process_set)
    variables = list(variables)
    if not variables:
        return None
    sent = _broadcast([tf.convert_to_tensor(variable) for variable in variables], root_rank, None)
    return tf.group(*[variable.assign(value) for variable, value in zip(variables, sent)])


def broadcast_(variables: Sequence[Any], root_rank: int, name: Optional[str] = None, process_set: object = None) -> Any:
    return broadcast_variables(variables, root_rank, process_set)


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: object = None,
) -> Any:
    check_process_set(process_set)
    is_even = splits is None
    rows = tf.zeros([0], tf.int32) if is_even else tf.cast(tf.convert_to_tensor(splits), tf.int32)

    def compute(array: Any, parts: Any) -> List[Any]:
        return list(GROUP.exchange(array, None if len(parts) == 0 else parts.tolist(), name))

    @tf.custom_gradient
    def exchanged(given: Any) -> Any:
        shape = [None, *given.shape[1:]]
        output, received = in_order(compute, [given, rows], [given.dtype, tf.int32], [shape, [None]])
        return (output, received), lambda gradient, _: alltoall(gradient, received)[0]

    output, received = exchanged(tf.convert_to_tensor(tensor))
    return output if is_even else (output, received)


def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    name: Optional[str] = None,
    process_set: object = None,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    check_process_set(process_set)
    return grouped_reducescatter(
        [tensor], device_dense, compression, op, None, False, name, prescale_factor, postscale_factor
    )[0]


def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    process_set: object = None,
    ignore_name_scope: bool = False,
    name: Optional[str] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> List[Any]:
    """Reduce whole tensors; each rank keeps its rows."""
    check_process_set(process_set)
    if op not in (Average, Sum):
        raise NotImplementedError("reducescatter takes op=hvd.Average and op=hvd.Sum")
    factor = prescale_factor * postscale_factor * (GROUP.size() if op == Sum else 1)

    def compute(*arrays: Any) -> List[Any]:
        reduced = GROUP.reduce(arrays, op, f"reducescatter {name or ''}", prescale_factor, postscale_factor)
        found = []
        for array in reduced:
            counts = shares(array.shape[0], GROUP.size())
            begin = sum(counts[: GROUP.rank()])
            found.append(np.ascontiguousarray(array[begin : begin + counts[GROUP.rank()]]))
        return found

    @tf.custom_gradient
    def scattered(*inputs: Any) -> Any:
        shapes = [tf.TensorShape([None, *tensor.shape[1:]]) for tensor in inputs]
        outputs = in_order(compute, inputs, [tensor.dtype for tensor in inputs], shapes)
        return outputs, lambda *gradients: grouped_allgather([gradient * factor for gradient in gradients])

    compressed = [compression.compress(tf.convert_to_tensor(tensor)) for tensor in tensors]
    found = scattered(*(tensor for tensor, _ in compressed))
    return [compression.decompress(tensor, ctx) for tensor, (_, ctx) in zip(found, compressed)]


def join() -> int:
    """This rank has no more data: wait until all have joined, and take part in their reductions with zeros."""
    return GROUP.join()


def broadcast_object(
    obj: Any, root_rank: int = 0, session: Any = None, name: Optional[str] = None, process_set: object = None
) -> Any:
    """The root's object, whatever it is."""
    check_process_set(process_set)
    own = pickle.dumps(obj) if GROUP.rank() == root_rank else None
    found = GROUP.objects(own)[root_rank]
    return obj if GROUP.rank() == root_rank else pickle.loads(found)


def allgather_object(
    obj: Any, session: Any = None, name: Optional[str] = None, process_set: object = None
) -> List[Any]:
    """The objects of all ranks, in their order."""
    check_process_set(process_set)
    return GROUP.objects(obj)
