"""Whether an image is available to this machine at all: it is here, or its registry answers."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from muster.environments.failures import Failure
from muster.environments.images import engines
from muster.environments.images.command import APPTAINER, inspect_image_command
from muster.environments.images.registries import registry_of

_CONNECT_S = 3.0
_REMEMBERED_S = 120.0
_PROXIES = ("https_proxy", "http_proxy", "all_proxy")
# An engine configured to use mirrors may find an image where its registry's own name does not answer.
_MIRRORS = ("/etc/containers/registries.conf", "/etc/docker/daemon.json", "~/.config/containers/registries.conf")
_SERVED_BY = {"docker.io": "registry-1.docker.io"}
_known: dict[str, tuple[float, str]] = {}


def look(image: str, environ: Mapping[str, str] = os.environ) -> str:
    """Why an image is not available here, remembered for a while; empty if it is, or if that is unknown."""
    at, trouble = _known.get(image, (0.0, ""))
    if not at or time.monotonic() - at > _REMEMBERED_S:
        trouble = _trouble(image, environ)
        _known[image] = (time.monotonic(), trouble)
    return trouble


def remembered(image: str) -> str:
    """The result of the last look at an image; empty if there was none. Never waits."""
    return _known.get(image, (0.0, ""))[1]


def _trouble(image: str, environ: Mapping[str, str]) -> str:
    try:
        engine = engines.find(environ)
    except Failure:
        # Another message reports that no container can run.
        return ""
    if engine.kind == APPTAINER or _goes_another_way(environ):
        return ""
    if engines.ask(inspect_image_command(engine, image), environ).returncode == 0:
        return ""
    registry = registry_of(image)
    host, _, port = _SERVED_BY.get(registry, registry).partition(":")
    try:
        socket.create_connection((host, int(port or 443)), timeout=_CONNECT_S).close()
    except (OSError, ValueError) as error:
        return f"the image is not on this machine, and its registry {registry} cannot be reached ({error})"
    return ""


def _goes_another_way(environ: Mapping[str, str]) -> bool:
    if any(environ.get(name) or environ.get(name.upper()) for name in _PROXIES):
        return True
    return any(_has_mirror(Path(name).expanduser()) for name in _MIRRORS)


def _has_mirror(path: Path) -> bool:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return False
    return any("mirror" in line and not line.lstrip().startswith("#") for line in lines)
