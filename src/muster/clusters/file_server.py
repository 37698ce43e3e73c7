"""File server files, including those of Batch AI's command line unchanged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from muster import errors
from muster.wire.codec import Json

_PASSED_OVER = {
    "vmSize": "the size of its cluster's nodes counts",
    "sshConfiguration": "nobody logs in there: `muster fileserver fill` brings the data",
    "subnet": "its cluster's network counts",
    "mountSettings": "is a record of Azure",
}


@dataclass(frozen=True)
class FileServerFile:
    """A file server as a file describes it."""

    name: str | None
    size_bytes: int
    notices: list[str] = field(default_factory=list)


def load_file_server(path: Path) -> FileServerFile:
    """Read a file server's file; errors name the file."""
    try:
        text = path.read_text()
        data = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except OSError as error:
        raise errors.NotFound(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, yaml.YAMLError) as error:
        raise errors.JobError(f"{path} is neither JSON nor YAML: {error}") from error
    if not isinstance(data, Mapping):
        raise errors.JobError(f"{path} holds no mapping", "Write it as Batch AI did: a JSON object with `dataDisks`.")
    return parse_file_server(data, str(path))


def parse_file_server(data: Mapping[str, Json], source: str) -> FileServerFile:
    """A file server of Batch AI: its size is that of its disks together."""
    properties = data.get("properties")
    inner = properties if isinstance(properties, Mapping) else data
    disks = inner.get("dataDisks")
    if not isinstance(disks, Mapping):
        raise errors.JobError(
            f"{source} has no `dataDisks`, so its size is not known",
            "Give the size: `muster fileserver create --size`.",
        )
    each, count = disks.get("diskSizeInGB"), disks.get("diskCount", 1)
    if not isinstance(each, int) or not isinstance(count, int) or each < 1 or count < 1:
        raise errors.JobError(
            f"{source}: dataDisks has diskSizeInGB {each!r} and diskCount {count!r}", "Both are whole numbers from 1."
        )
    notices = [f"{key}: {why}" for key, why in _PASSED_OVER.items() if key in inner]
    name = data.get("name")
    return FileServerFile(name if isinstance(name, str) else None, each * count * 10**9, notices)
