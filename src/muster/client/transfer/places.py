"""Sources and targets of copies, as they are typed. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from muster.errors import UserError
from muster.storage.addresses import Location, datastore_address, joined, parse_address

HINT = "Write azureml://datastores/NAME/paths/…, NAME:VERSION of an asset as azureml:NAME:VERSION, or a local path."


@dataclass(frozen=True)
class Place:
    """A file or folder somewhere. `path` is below the datastore, or on this machine."""

    kind: Literal["local", "store", "asset", "elsewhere"]
    text: str
    """As it was typed."""
    path: str = ""
    store: str = ""
    """The datastore, or the asset's name."""
    version: str | None = None
    location: Location | None = None
    """For the kind `elsewhere`."""
    is_folder: bool = False
    """It was typed with a slash at its end."""

    @property
    def name(self) -> str:
        """Its last part: the name of a copy of it."""
        if self.kind == "local":
            return Path(self.path).absolute().name
        address = self.path or (str(self.location).partition("?")[0] if self.location else "")
        return address.rstrip("/").rpartition("/")[2] or self.store

    @property
    def parent(self) -> Place:
        """The folder that holds it."""
        if self.kind == "local":
            return replace(self, path=str(Path(self.path).absolute().parent), is_folder=True)
        return replace(self, path=self.path.rpartition("/")[0], is_folder=True)

    def below(self, name: str) -> Place:
        """A file or folder in it."""
        return replace(self, path=joined(self.path, name), is_folder=False)

    def __str__(self) -> str:
        return datastore_address(self.store, self.path) if self.kind == "store" else self.path or self.text


def parse_place(text: str) -> Place:
    """The place that was typed; raises JobError if it is not one."""
    location = parse_address(text)
    is_folder = text.endswith("/")
    if location.kind == "local":
        path = str(Path(location.path).expanduser())
        return Place("local", text, path, is_folder=is_folder or path in (".", ".."))
    if location.kind == "datastore":
        return Place("store", text, location.path, location.store, is_folder=is_folder or not location.path)
    if location.kind == "asset":
        return Place("asset", text, "", location.store, location.version)
    if location.kind == "model":
        raise UserError(f"{text} is a model.", f"`muster model download {location.store}` fetches it.")
    return Place("elsewhere", text, location=location, is_folder=is_folder)


def literal(place: Place) -> Place | None:
    """The same address with every % taken literally, for names copied from a list; None if that changes nothing."""
    path = place.text.partition("/paths/")[2].strip("/")
    return replace(place, path=path) if place.kind == "store" and "%" in path and path != place.path else None


def stored(text: str, what: str) -> Place:
    """A path of a datastore, for commands that take nothing else."""
    place = parse_place(text)
    if place.kind != "store":
        raise UserError(f"{text} is not a path in a datastore, and {what} needs one.", HINT)
    return place
