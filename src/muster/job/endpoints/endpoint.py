"""Online endpoint files: a name, the kind of credentials, the shares of the traffic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from muster.errors import JobError
from muster.job.assetfile import read_asset_file
from muster.job.endpoints.values import refuse, shares, texts
from muster.wire.codec import Json
from muster.wire.serving.endpoints import AUTH_MODES, AuthMode, check_endpoint_name, check_mirror, check_traffic

_KEYS = (
    "name", "description", "tags", "properties", "auth_mode", "traffic", "mirror_traffic", "compute", "identity",
    "public_network_access",
)  # fmt: skip
_SILENT = ("$schema", "id", "scoring_uri", "openapi_uri", "provisioning_state", "location", "kind", "type")


@dataclass(frozen=True)
class EndpointFile:
    """The content of an online endpoint's file."""

    name: str
    description: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    auth_mode: AuthMode = "key"
    traffic: Mapping[str, int] = field(default_factory=dict)
    mirror_traffic: Mapping[str, int] = field(default_factory=dict)
    compute: str | None = None
    notices: tuple[str, ...] = ()


def read_endpoint_file(file: Path, name: str | None = None) -> EndpointFile:
    """Read an online endpoint's file; raises JobError with the file and the key."""
    return endpoint_of(file, read_asset_file(file, "online endpoint", _KEYS, _SILENT), name)


def endpoint_of(file: Path, values: Mapping[str, Json], name: str | None = None) -> EndpointFile:
    """An endpoint from its values; errors name the file."""
    given = name or values.get("name")
    if not isinstance(given, str):
        raise JobError(f"{file}: `name` is missing, or is no text", "Write name: my-endpoint, or give the name.")
    mode = str(values.get("auth_mode") or "key").lower()
    if mode not in AUTH_MODES:
        raise refuse(file, "auth_mode", f"{mode!r} is not allowed", f"Allowed are {', '.join(AUTH_MODES)}.")
    if values.get("identity") is not None:
        raise refuse(
            file,
            "identity",
            "there are no identities of Azure here",
            "Leave it out. What a script needs to reach other services it gets as a secret: `muster secret set NAME`.",
        )
    traffic, mirror = shares(file, "traffic", values), shares(file, "mirror_traffic", values)
    try:
        check_endpoint_name(given)
        check_traffic(traffic)
        check_mirror(mirror)
    except ValueError as error:
        raise JobError(f"{file}: {error}", "Correct it.") from error
    compute = values.get("compute")
    return EndpointFile(
        given,
        None if values.get("description") is None else str(values["description"]),
        texts(file, "tags", values),
        texts(file, "properties", values),
        next(known for known in AUTH_MODES if known == mode),
        traffic,
        mirror,
        None if compute is None else str(compute).removeprefix("azureml:"),
        _notices(values.get("public_network_access")),
    )


def _notices(access: object) -> tuple[str, ...]:
    if access in (None, "disabled"):
        return ()
    return (
        "public_network_access: the endpoint listens on its node's loopback, or on its address with other machines; "
        "--host opens it wider",
    )
