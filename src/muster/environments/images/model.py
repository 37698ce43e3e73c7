"""What a node is told of a job's container. Standard library only: agents read it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

# Azure's default; the engines' own 64 MB end data loaders with a bus error.
DEFAULT_SHM_BYTES = 2 << 30


@dataclass(frozen=True)
class Login:
    """Credentials of a registry; they travel like secrets and lie only in private files."""

    registry: str
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class Build:
    """An image that is built on the node from a folder which came with the job."""

    snapshot: str
    dockerfile: str = "Dockerfile"
    args: Mapping[str, str] = field(default_factory=dict)

    @property
    def tag(self) -> str:
        """The name of the image: the same content has the same one."""
        text = json.dumps([self.snapshot, self.dockerfile, sorted(self.args.items())])
        return f"muster-build:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@dataclass(frozen=True)
class Container:
    """What the ranks of a job run in."""

    image: str = ""
    build: Build | None = None
    args: tuple[str, ...] = ()
    """More arguments of the engine's `run`, checked when the job was submitted."""
    shm_bytes: int = DEFAULT_SHM_BYTES
    login: Login | None = None
    push_to: str = ""
    """Where built images are kept for other nodes, such as `registry.example.org/team`."""
    packages: Mapping[str, Any] | None = None
    """An environments.recipe.Recipe as JSON: what is installed on top of the image."""
    push_login: Login | None = None
    """Credentials for `push_to`."""

    @property
    def reference(self) -> str:
        """What the engine knows the image by, or the one that packages are put on."""
        return self.image if self.build is None else self.made(self.build.tag)

    @property
    def logins(self) -> list[Login]:
        return [login for login in (self.login, self.push_login) if login is not None]

    def made(self, tag: str) -> str:
        """The name of an image that a node makes."""
        return f"{self.push_to}/{tag}" if self.push_to else f"localhost/{tag}"

    @property
    def label(self) -> str:
        return self.image or (self.build.tag if self.build else "")

    def to_json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value}


def container_from_json(data: Mapping[str, Any]) -> Container:
    fields = dict(data)
    fields["args"] = tuple(fields.get("args", ()))
    if fields.get("build"):
        fields["build"] = Build(**fields["build"])
    for name in ("login", "push_login"):
        if fields.get(name):
            fields[name] = Login(**fields[name])
    return Container(**fields)


def registry_of(image: str) -> str:
    """The registry that an image comes from: what stands before the first slash where that is a host."""
    first, slash, _ = image.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return first
    return "docker.io"
