"""Values as they are logged: numbers of any library become plain ones that JSON can hold.

JSON has no NaN and no infinities. They are written as the texts "NaN", "Infinity" and "-Infinity", and `restore`
turns these texts back into floats.
"""

import math
import numbers
from typing import Any, Dict, List, Mapping, Union

Scalar = Union[bool, int, float, str]
Json = Union[None, Scalar, List["Json"], Dict[str, "Json"]]

_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def plain(value: Any) -> Scalar:
    """A Python scalar from a scalar of Python, numpy, torch, tensorflow …; TypeError for anything else."""
    if isinstance(value, (bool, int, float, str)):
        # A subclass (numpy.float64, an IntEnum) would print differently.
        return _base(value)
    item = getattr(value, "item", None)
    if callable(item):
        try:
            inner = item()
        except (ValueError, RuntimeError, TypeError) as error:
            raise TypeError(_not_one_number(value)) from error
        if isinstance(inner, (bool, int, float, str)):
            return _base(inner)
    elif callable(getattr(value, "numpy", None)):
        return plain(value.numpy())
    if isinstance(value, numbers.Real):
        return float(value)
    raise TypeError(_not_one_number(value))


def plain_list(value: Any) -> List[Scalar]:
    """A list of scalars from a list, tuple, array or tensor of one dimension."""
    if isinstance(value, (str, bytes, Mapping)):
        raise TypeError("a list of values is wanted, not {!r}".format(value))
    if callable(getattr(value, "tolist", None)):
        value = value.tolist()
    try:
        return [plain(item) for item in value]
    except TypeError as error:
        raise TypeError("a list of numbers or texts is wanted: {}".format(error)) from error


def jsonable(value: Any) -> "Json":
    """The same with non-finite floats as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    plain_value: "Json" = value
    return plain_value


def restore(value: Any) -> Any:
    """Undo `jsonable`."""
    if isinstance(value, str):
        return _NON_FINITE.get(value, value)
    if isinstance(value, list):
        return [restore(item) for item in value]
    if isinstance(value, Mapping):
        return {key: restore(item) for key, item in value.items()}
    return value


def plain_row(values: Mapping[str, Any]) -> Dict[str, Scalar]:
    return {str(key): plain(value) for key, value in values.items()}


def plain_table(values: Any) -> Dict[str, Union[Scalar, List[Scalar]]]:
    """Columns of a table; a column is a list or a single value."""
    if not isinstance(values, Mapping):
        raise TypeError("a table is a mapping of column names to lists, not {}".format(type(values).__name__))
    table: Dict[str, Union[Scalar, List[Scalar]]] = {}
    for key, column in values.items():
        is_scalar = isinstance(column, (bool, int, float, str)) or getattr(column, "shape", None) == ()
        table[str(key)] = plain(column) if is_scalar else plain_list(column)
    return table


def _base(value: Any) -> Scalar:
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value) if kind is not str else str.__str__(value)
    raise TypeError(_not_one_number(value))


def _not_one_number(value: Any) -> str:
    shape = getattr(value, "shape", None)
    detail = " of shape {}".format(tuple(shape)) if shape is not None else ""
    return "one number or text is wanted, not {}{}; for several values use log_list".format(
        type(value).__name__, detail
    )
