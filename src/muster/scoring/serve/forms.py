"""Forms in the bodies of requests: fields and files, as scripts with `@rawhttp` read them from a Flask request."""

from __future__ import annotations

import io
import shutil
from email.message import Message
from email.parser import BytesHeaderParser
from typing import Any, Dict, Generic, Iterable, List, Tuple, TypeVar
from urllib.parse import parse_qsl

from muster.scoring.serve.body import BadInput

_MOST_PARTS = 1000

Value = TypeVar("Value")


class Values(Dict[str, Value], Generic[Value]):
    """Values by name, the first of each; `getlist` returns all."""

    def __init__(self, pairs: Iterable[Tuple[str, Value]] = ()) -> None:
        super().__init__()
        self._all: Dict[str, List[Value]] = {}
        for name, value in pairs:
            self.setdefault(name, value)
            self._all.setdefault(name, []).append(value)

    def getlist(self, name: str) -> List[Value]:
        return list(self._all.get(name, []))


class FormFile(io.BytesIO):
    """A file of a form."""

    def __init__(self, body: bytes, name: str, filename: str, content_type: str) -> None:
        super().__init__(body)
        self.name = name
        self.filename = filename
        self.content_type = self.mimetype = content_type

    @property
    def stream(self) -> FormFile:
        return self

    def save(self, target: Any) -> None:
        """Write it to a path, or into an open file."""
        if hasattr(target, "write"):
            shutil.copyfileobj(self, target)
            return
        with open(target, "wb") as file:
            shutil.copyfileobj(self, file)


def parsed(content_type: str, body: bytes) -> Tuple[Values[str], Values[FormFile]]:
    """The fields and the files of a form; none if the body is not a form. Raises BadInput for too many."""
    head = Message()
    head["content-type"] = content_type
    kind, boundary = head.get_content_type(), head.get_param("boundary")
    if kind == "application/x-www-form-urlencoded":
        return Values(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)), Values()
    if kind != "multipart/form-data" or not isinstance(boundary, str) or not boundary:
        return Values(), Values()
    return _parts(body, b"--" + boundary.encode("latin-1", "replace"))


def _parts(body: bytes, line: bytes) -> Tuple[Values[str], Values[FormFile]]:
    fields: List[Tuple[str, str]] = []
    files: List[Tuple[str, FormFile]] = []
    # A boundary line precedes each part, and a last one with two dashes ends the form.
    for number, piece in enumerate((b"\r\n" + body).split(b"\r\n" + line, _MOST_PARTS + 1)[1:]):
        if piece.startswith(b"--"):
            break
        if number == _MOST_PARTS:
            raise BadInput("the form has more than {:,} parts".format(_MOST_PARTS))
        lines, found, content = piece.lstrip(b" \t")[2:].partition(b"\r\n\r\n")
        said = BytesHeaderParser().parsebytes(lines)
        name = said.get_param("name", header="content-disposition")
        if not found or not isinstance(name, str):
            continue
        filename = said.get_filename()
        if filename is None:
            fields.append((name, content.decode("utf-8", "replace")))
        else:
            files.append((name, FormFile(content, name, filename, said.get_content_type())))
    return Values(fields), Values(files)
