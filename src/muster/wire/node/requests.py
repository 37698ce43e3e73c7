"""Requests of agents about the data, outputs and environment of their attempts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import BinaryIO, Literal

from muster.wire.codec import WireError, from_json, to_json
from muster.wire.data.access import Access, HashedFile
from muster.wire.environments import BuiltEnvironment
from muster.wire.message import wire


@wire
class FileReceived:
    """The answer to a file that an agent sent."""

    path: str


@wire
class FilesReceived:
    """The answer to files that an agent sent in one call."""

    count: int


def encode_files(files: Iterable[tuple[HashedFile, bytes]]) -> Iterator[bytes]:
    """The body of `POST agents/NODE/files`: a line with the header of each file before its bytes."""
    for file, content in files:
        yield json.dumps(to_json(file)).encode() + b"\n"
        yield content


def decode_files(body: BinaryIO) -> Iterator[tuple[HashedFile, bytes]]:
    """The files of such a body; raises ValueError on anything malformed."""
    while line := body.readline():
        file = from_json(HashedFile, json.loads(line))
        content = body.read(file.size)
        if file.size < 0 or len(content) != file.size:
            raise WireError(f"{file.path} of {file.size} bytes was cut at {len(content)}")
        yield file, content


@wire
class GrantsRequest:
    """The body of `POST agents/NODE/grants`: fresh credentials, and tokens for files that are about to be written."""

    run: str
    attempt: int
    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Paths by output."""


@wire
class FreshGrants:
    """Fresh credentials of an attempt."""

    inputs: Mapping[str, Access]
    outputs: Mapping[str, Access]
    tokens: Mapping[str, Mapping[str, str]] = field(repr=False)
    """Tokens by output and path."""


@wire
class HashesReport:
    """The body of `POST agents/NODE/hashes`: the hashes that a first download computed."""

    run: str
    attempt: int
    name: str
    """The name of the input."""
    files: tuple[HashedFile, ...]


@wire
class HashesPinned:
    """How many hashes were new."""

    pinned: int


@wire
class OutputClaim:
    """The body of `POST agents/NODE/outputs`: whether the gang succeeded, and the name that each file gets."""

    run: str
    attempt: int
    output: str
    files: tuple[HashedFile, ...]


@wire
class OutputNames:
    """The answer to a claim."""

    outcome: Literal["running", "succeeded", "failed"]
    names: Mapping[str, str | None]
    """Names by path; None where another node uploaded the same content."""


@wire
class EnvironmentReport:
    """The body of `POST agents/NODE/environment`; without an environment it only queries the agreed versions."""

    run: str
    attempt: int
    environment: BuiltEnvironment | None = None
