"""The container or the sandbox that the ranks of a job run in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import field

from muster.defaults import SHM_BYTES
from muster.wire.codec import OMIT
from muster.wire.message import wire
from muster.wire.node.recipes import Recipe


@wire
class Login:
    """Credentials of a registry; they are treated as secrets and written only to private files."""

    registry: str
    username: str
    password: str = field(repr=False)


@wire
class Build:
    """An image that is built on the node from a folder that came with the job."""

    snapshot: str
    dockerfile: str = "Dockerfile"
    args: Mapping[str, str] = field(default_factory=dict)

    @property
    def tag(self) -> str:
        """The name of the image: the same content gets the same name."""
        text = json.dumps([self.snapshot, self.dockerfile, sorted(self.args.items())])
        return f"muster-build:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@wire
class ImageSource:
    """Where an image comes from, as it is recorded with a run: pulled or built, with packages on top."""

    image: str = field(default="", metadata=OMIT)
    build: Build | None = field(default=None, metadata=OMIT)
    packages: Recipe | None = field(default=None, metadata=OMIT)
    """What is installed on top of the image."""

    @property
    def label(self) -> str:
        return self.image or (self.build.tag if self.build else "")


@wire
class Container(ImageSource):
    """What the ranks of a job run in."""

    args: tuple[str, ...] = field(default=(), metadata=OMIT)
    """More arguments of the engine's `run`, checked when the job was submitted."""
    shm_bytes: int = SHM_BYTES
    login: Login | None = field(default=None, metadata=OMIT)
    push_to: str = field(default="", metadata=OMIT)
    """Where built images are kept for other nodes, such as `registry.example.org/team`."""
    push_login: Login | None = field(default=None, metadata=OMIT)
    """Credentials for `push_to`."""

    @property
    def reference(self) -> str:
        """The reference of the image, or of the base image that packages are installed on."""
        return self.image if self.build is None else self.made(self.build.tag)

    @property
    def logins(self) -> list[Login]:
        return [login for login in (self.login, self.push_login) if login is not None]

    def made(self, tag: str) -> str:
        """The name of an image that a node makes."""
        return f"{self.push_to}/{tag}" if self.push_to else f"localhost/{tag}"


@wire
class Confinement:
    """The identity of ranks that are confined to their attempt's own files."""

    person: str
    """The submitter of the run; where the agent is root, ranks of other people get other accounts."""
    unix_user: str = ""
    """The person's own account on the node, where the agent is root."""
