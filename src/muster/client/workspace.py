"""Finds the workspace of a command or script, and creates workspaces."""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from muster.client.team import known, trust
from muster.errors import AccessDenied, Conflict, NotFound, UserError
from muster.host.files import PRIVATE, UNFINISHED, create_file, is_below
from muster.paths import WorkspacePaths
from muster.wire.codec import from_file, to_json

FOLDER = ".muster"
VARIABLE = "MUSTER_WORKSPACE"
"""Names the workspace, whatever the current folder is: its folder, its name, or the address of its server."""
_OURS = (".gitignore", "workspace.json")


@dataclass(frozen=True)
class ServerRef:
    """A team's server; without one a workspace has its own small server."""

    url: str
    token: str = ""
    token_file: Path | None = None
    certificate: Path | None = None
    """PEM file with the certificate that the server must present."""

    def read_token(self) -> str:
        if self.token or self.token_file is None:
            return self.token
        return _read(self.token_file, "the token").strip()

    def read_certificate(self) -> str | None:
        return _read(self.certificate, "the server's certificate") if self.certificate else None


@dataclass(frozen=True)
class ServerEntry:
    """A team's server as `workspace.json` or the environment names it; paths are relative to some folder."""

    url: str
    token_file: str | None = None
    certificate: str | None = None

    def below(self, root: Path) -> ServerRef:
        token_file, certificate = (
            root / Path(path).expanduser() if path else None for path in (self.token_file, self.certificate)
        )
        return ServerRef(self.url, token_file=token_file, certificate=certificate)

    def inside(self, root: Path) -> ServerRef:
        """The same, but the token must be in the folder: it is sent to the server that the folder names."""
        ref = self.below(root)
        if ref.token_file is not None and not is_below(ref.token_file, root):
            raise AccessDenied(
                f"the token file {self.token_file} of the workspace {root} is outside of it",
                f"Copy the token into {root}, or name file and server with MUSTER_TOKEN_FILE and MUSTER_SERVER.",
            )
        return ref


@dataclass(frozen=True)
class WorkspaceFile:
    """The part of `workspace.json` that clients read; the file may also contain the server's configuration."""

    id: str
    name: str
    created: float = 0.0
    server: ServerEntry | None = None


@dataclass(frozen=True)
class WorkspaceRef:
    """A workspace folder, and the team server that it belongs to if there is one."""

    root: Path
    id: str
    name: str
    server: ServerRef | None = None

    @property
    def paths(self) -> WorkspacePaths:
        return WorkspacePaths(self.root)


def find_workspace(start: Path | str | None = None) -> WorkspaceRef:
    """The workspace that applies; one in the home folder is created on first use.

    In this order: the one that MUSTER_WORKSPACE names, `.muster` in the folder or above, the server that the user
    logged in to, `~/.muster`. A server that MUSTER_SERVER names takes the place of each.
    """
    folder = locate(start)
    named = _server_of_environment(os.environ)
    # With a server from the environment, nothing in the folder is run, and nothing in it decides where tokens go.
    name = "home" if folder == _home() / FOLDER else _name_of(folder.parent)
    if named is None:
        return _load(folder, name)
    made = WorkspacePaths(folder).config.exists()
    return replace(_load(folder, name, trusted=True) if made else WorkspaceRef(folder, "", name), server=named)


def locate(start: Path | str | None = None) -> Path:
    """The folder of the workspace that applies; nothing is created."""
    if start is None and (chosen := os.environ.get(VARIABLE)):
        return choose(chosen)
    home = _home() / FOLDER
    found = find_folder(Path(start) if start is not None else Path.cwd())
    if found is not None and found != home:
        return found
    return known.user_server() or home


def choose(text: str) -> Path:
    """The folder of a workspace by its path, its name, or the address of its server."""
    path = Path(text).expanduser()
    for folder in (path / FOLDER, path):
        if (folder / "workspace.json").is_file():
            return folder.resolve()
    by_name = {root: brief for root in known_folders() if (brief := read_brief(root)) is not None}
    fitting = [
        root
        for root, brief in by_name.items()
        if text == brief.name or (brief.server is not None and text in (brief.server.url, root.name))
    ]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        listed = "\n".join(str(root.parent) for root in fitting)
        raise Conflict(f"{len(fitting)} workspaces are called {text!r}", f"{listed}\nSay which one by its folder.")
    raise NotFound(
        f"there is no workspace {text!r}: neither a folder with one, nor the name of one that you have used",
        "`muster workspaces` lists those that you have used; `muster init FOLDER` makes one.",
    )


def known_folders() -> list[Path]:
    """Folders of the workspaces and servers that this user has used."""
    servers = sorted(known.servers_dir().glob("*/workspace.json"))
    home = _home() / FOLDER
    own = [home] if (home / "workspace.json").is_file() else []
    return list(dict.fromkeys([*known.used_workspaces(), *(path.parent for path in servers), *own]))


def read_brief(root: Path) -> WorkspaceFile | None:
    """The content of a workspace's file; None where it cannot be read."""
    try:
        return from_file(WorkspaceFile, json.loads(WorkspacePaths(root).config.read_bytes()))
    except (OSError, ValueError):
        return None


def has_kept_anything(root: Path) -> bool:
    """Whether a server has ever served the workspace, here or for a team."""
    return WorkspacePaths(root).server_dir.exists() or bool((brief := read_brief(root)) and brief.server)


def is_home(root: Path) -> bool:
    """Whether it is the default workspace, used where no folder has one."""
    return root == _home() / FOLDER


def trust_workspace(path: Path | str) -> WorkspaceRef:
    """Trust the workspace of a folder, whoever created it."""
    root = find_folder(Path(path))
    if root is None:
        raise NotFound(f"there is no workspace in or above {Path(path).resolve()}", "`muster init` makes one.")
    ref = _load(root, _name_of(root.parent), trusted=True)
    trust.trust(root, ref.id)
    return ref


def find_folder(start: Path) -> Path | None:
    """The nearest `.muster` folder at or above `start`."""
    resolved = start.resolve()
    candidates = (folder / FOLDER for folder in (resolved, *resolved.parents))
    return next((found for found in candidates if found.is_dir()), None)


def create_workspace(path: Path | str, name: str | None = None, exist_ok: bool = False) -> WorkspaceRef:
    """Create a workspace in a folder (as its `.muster`)."""
    home = Path(path).resolve()
    root = home / FOLDER
    if name is not None and (not name.strip() or len(name) > 255 or not name.isprintable()):
        raise UserError(f"{name!r} cannot be a workspace's name", "Give 1 to 255 printable characters.")
    if not exist_ok and WorkspacePaths(root).config.exists():
        raise Conflict(f"{home} already has a workspace ({root})", "Use it as it is, or choose another folder.")
    if home.exists() and not home.is_dir():
        raise UserError(f"{home} is a file; a workspace is made in a folder")
    return _load(root, default_name=name or _name_of(home))


def _load(root: Path, default_name: str, trusted: bool = False) -> WorkspaceRef:
    config = WorkspacePaths(root).config
    fresh = WorkspaceFile(uuid.uuid4().hex, default_name, time.time())
    if not config.exists():
        if not trusted and root.is_dir() and any(_is_foreign(path) for path in root.iterdir()):
            trust.require(root, "")
        _write_new(config, fresh)
    try:
        found = from_file(WorkspaceFile, json.loads(config.read_bytes()))
        if not trusted and found.id != fresh.id:
            trust.require(root, found.id)
        return WorkspaceRef(root, found.id, found.name, found.server.inside(root) if found.server else None)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{config} is not a readable workspace file: {error}",
            'It holds {"id", "name", "created", "server"}; restore it, or remove it to have a new one written.',
        ) from error


def _is_foreign(path: Path) -> bool:
    """Whether the folder was used by somebody before; another process may be creating it at this moment."""
    return path.name not in _OURS and UNFINISHED not in path.name


def _write_new(config: Path, content: WorkspaceFile) -> None:
    """Write the file atomically, unless it exists already."""
    try:
        config.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        ignore = config.parent / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
        # First, so that whoever finds the file finds it trusted.
        trust.trust(config.parent, content.id)
        if not create_file(config, json.dumps(to_json(content), indent=2), mode=PRIVATE):
            trust.distrust(config.parent, content.id)
    except OSError as error:
        raise UserError(
            f"a workspace cannot be made in {config.parent}: {error}", "Run `muster init` in a folder of yours."
        ) from error


def _server_of_environment(environ: Mapping[str, str]) -> ServerRef | None:
    url = environ.get("MUSTER_SERVER")
    if not url:
        return None
    entry = ServerEntry(url, environ.get("MUSTER_TOKEN_FILE"), environ.get("MUSTER_CERTIFICATE"))
    return replace(entry.below(Path()), token=environ.get("MUSTER_TOKEN", ""))


def _read(path: Path, what: str) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise AccessDenied(f"{what} cannot be read: {error}", "Ask the workspace's owner for the file.") from error


def _home() -> Path:
    return Path.home().resolve()


def _name_of(folder: Path) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", folder.name).strip("-.") or "workspace"
