"""A `run()` with the decorators of the package `inference_schema`: arguments by name, and their schemas."""

from __future__ import annotations

import inspect
import sys
from typing import Any, Callable, List, Mapping, Optional, Sequence, Tuple, Union

from muster.scoring.serve.body import BadInput
from muster.scoring.serve.mlflow_requests import json_value

_LIBRARY = "inference_schema.schema_util"
HEADERS = "request_headers"

Json = Union[None, bool, int, float, str, Sequence["Json"], Mapping[str, "Json"]]


class Schema:
    """The schema that decorators give one `run()`."""

    def __init__(self, run: Callable[..., Any], library: Any) -> None:
        parameters = inspect.signature(run).parameters.values()
        self._parameters: List[inspect.Parameter] = [item for item in parameters if item.name != HEADERS]
        self._versions: List[str] = list(library.get_supported_versions(run))
        self._input, self._output = library.get_input_schema(run), library.get_output_schema(run)

    def arguments(self, text: str) -> Mapping[str, Json]:
        """The arguments from a request's JSON object by name, or their defaults; raises BadInput."""
        given = json_value(text)
        if not isinstance(given, Mapping):
            names = ", ".join(item.name for item in self._parameters)
            raise BadInput("the body is no JSON object; run() takes {} by name".format(names))
        found = {item.name: given.get(item.name, item.default) for item in self._parameters}
        missing = [name for name, value in found.items() if value is inspect.Parameter.empty]
        if missing:
            raise BadInput("the body has no value for {}".format(", ".join(missing)))
        return found

    def described(self, version: str) -> Optional[Tuple[Any, Any]]:
        """The schemas of a request and an answer; None if that version of OpenAPI cannot express them."""
        return (self._input, self._output) if version in self._versions else None


def schema_of(run: Callable[..., Any]) -> Optional[Schema]:
    """The schema from the decorators of `run()`; None if it has none."""
    # A script that uses them has imported them by now.
    library = sys.modules.get(_LIBRARY)
    return Schema(run, library) if library is not None and library.is_schema_decorated(run) else None
