"""Where this site gets its packages from: the user's configuration of pip, also translated for uv.

Addresses may contain passwords, so they are passed in variables and files, never on a command line.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Sources:
    """The user's configuration of pip."""

    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()
    no_index: bool = False
    cert: str | None = None

    @property
    def names_indexes(self) -> bool:
        """Whether the site configures its own package indexes."""
        return bool(self.index_url or self.extra_index_urls or self.find_links or self.no_index)


def read(environment: Mapping[str, str], prefix: str | None = None) -> Sources:
    """The configuration as pip reads it: files from the most general to the most specific, then variables."""
    found: dict[str, str] = {}
    for path in _files(environment, prefix):
        found |= _section(path)
    for name, value in environment.items():
        if name.startswith("PIP_") and name != "PIP_CONFIG_FILE" and value:
            found[name.removeprefix("PIP_").lower().replace("_", "-")] = value
    return Sources(
        index_url=found.get("index-url"),
        extra_index_urls=tuple(found.get("extra-index-url", "").split()),
        find_links=tuple(found.get("find-links", "").split()),
        trusted_hosts=tuple(found.get("trusted-host", "").split()),
        no_index=found.get("no-index", "").lower() in ("1", "true", "yes", "on"),
        cert=found.get("cert"),
    )


def uv_variables(sources: Sources, environment: Mapping[str, str]) -> dict[str, str]:
    """The same for uv; the user's own settings of uv are kept."""
    wanted = {
        "UV_DEFAULT_INDEX": sources.index_url or "",
        "UV_INDEX": " ".join(sources.extra_index_urls),
        "UV_FIND_LINKS": ",".join(sources.find_links),
        "UV_INSECURE_HOST": " ".join(sources.trusted_hosts),
        "UV_NO_INDEX": "1" if sources.no_index else "",
        "SSL_CERT_FILE": sources.cert or "",
        # Like pip: the best version of all indexes, not of the first that has the package.
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
    }
    return {name: value for name, value in wanted.items() if value and not environment.get(name)}


def pip_variables(sources: Sources) -> dict[str, str]:
    """The same for a pip that does not see this machine's files."""
    wanted = {
        "PIP_INDEX_URL": sources.index_url or "",
        "PIP_EXTRA_INDEX_URL": " ".join(sources.extra_index_urls),
        "PIP_FIND_LINKS": " ".join(sources.find_links),
        "PIP_TRUSTED_HOST": " ".join(sources.trusted_hosts),
        "PIP_NO_INDEX": "1" if sources.no_index else "",
        "PIP_CERT": sources.cert or "",
    }
    return {name: value for name, value in wanted.items() if value}


def _files(environment: Mapping[str, str], prefix: str | None) -> list[Path]:
    chosen = environment.get("PIP_CONFIG_FILE")
    if chosen == os.devnull:
        return []
    home = Path(environment.get("HOME") or Path.home())
    shared = environment.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    own = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    files = [Path(folder) / "pip" / "pip.conf" for folder in reversed(shared.split(":"))]
    files += [Path("/etc/pip.conf"), home / ".pip" / "pip.conf", own / "pip" / "pip.conf"]
    files += [Path(prefix) / "pip.conf"] if prefix else []
    return [*files, Path(chosen)] if chosen else files


def _section(path: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text())
    except (OSError, ValueError, configparser.Error):
        # pip itself will report the error.
        return {}
    found: dict[str, str] = {}
    for section in ("global", "install"):
        if parser.has_section(section):
            found |= {key.replace("_", "-"): value for key, value in parser.items(section)}
    return found
