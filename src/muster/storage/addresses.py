"""Addresses of data, in every spelling that jobs use, as one frozen Location."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from muster.errors import JobError
from muster.host.files import is_safe_path

DEFAULT_DATASTORE = "workspaceblobstore"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}")
_ASSET = re.compile(
    r"azureml:(?P<name>[A-Za-z0-9][A-Za-z0-9_.-]*)(?:@(?P<label>[A-Za-z]+)|:(?P<version>[A-Za-z0-9_.-]+))?"
)
_MODEL = re.compile(r"models:/(?P<name>[A-Za-z0-9][A-Za-z0-9_.-]*)/(?P<version>[0-9]+)")
_WORKSPACE_PREFIX = re.compile(r"azureml://(?:subscriptions|locations|registries)/.+?/(?=datastores/|data/)")
_BLOB_HOST = re.compile(r"(?P<account>[a-z0-9-]+)\.(?P<service>blob|dfs|file)\.(?P<suffix>[a-z0-9.-]+)")
_SPELLINGS = (
    "Write azureml://datastores/NAME/paths/…, azureml:ASSET:VERSION, wasbs://, abfss://, https://, s3:// and the like, "
    "file:///… or a path."
)
_SECRET_PARTS = {"sig", "signature", "x-amz-signature", "x-goog-signature", "token", "access_token"}


@dataclass(frozen=True)
class Location:
    """Where data lies. Which fields are filled depends on `kind`:

    datastore   `store` and `path` in it
    asset       `store` is its name, `version` a version, or None for the newest
    azure-blob  `account`, `store` (the container) and `path`; `endpoint` is the service's address
    http        `url`
    fsspec      `url`
    local       `path` on the machine that reads it
    model       `store` is its name, `version` a version: a registered model
    """

    kind: str
    path: str = ""
    store: str = ""
    version: str | None = None
    account: str = ""
    endpoint: str = ""
    url: str = ""

    def __str__(self) -> str:
        if self.kind == "datastore":
            return datastore_address(self.store, self.path)
        if self.kind == "asset":
            return f"azureml:{self.store}:{self.version}" if self.version else f"azureml:{self.store}@latest"
        if self.kind == "model":
            return f"models:/{self.store}/{self.version}"
        if self.kind == "azure-blob":
            return f"{self.endpoint}/{self.store}/{quote(self.path)}".rstrip("/")
        return self.url or self.path


def check_asset_name(name: str) -> str:
    """A name that a data asset may have; raises JobError."""
    if not _NAME.fullmatch(name):
        raise JobError(
            f"{name!r} cannot be the name of a data asset",
            "Use letters, digits, '_', '.' and '-', at most 255; a version follows as NAME:VERSION.",
        )
    return name


def datastore_address(store: str, path: str) -> str:
    # The only character that would read back as something else.
    return f"azureml://datastores/{store}/paths/{path.replace('%', '%25')}"


def parse_address(text: str) -> Location:
    """The location that an address names; raises JobError if it is not an address."""
    if not text.strip() or "\0" in text:
        raise JobError(f"{text!r} is no address of data", _SPELLINGS)
    if text.startswith("azureml:"):
        return _azureml(text)
    if (model := _MODEL.fullmatch(text)) is not None:
        return Location("model", store=model["name"], version=model["version"])
    scheme, separator, _ = text.partition("://")
    if text.startswith("file:"):
        return _file(text)
    if not separator:
        return Location("local", path=text)
    refuse_embedded_secret(text)
    scheme = scheme.lower()
    if scheme in ("wasbs", "wasb", "abfss", "abfs"):
        return _hadoop(text, scheme)
    if scheme in ("https", "http"):
        return _http(text)
    return Location("fsspec", url=text)


def refuse_embedded_secret(text: str) -> None:
    """An address is kept and shown, so it must not hold credentials."""
    parts = urlsplit(text)
    secret = any(name.lower() in _SECRET_PARTS for name, _ in parse_qsl(parts.query))
    if parts.password is not None or secret:
        shown = f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
        raise JobError(
            f"the address {shown} holds a credential, and addresses are kept and shown",
            "A datastore holds it: `muster datastore create` with --sas, --account-key or --secret-options FILE.",
        )


def safe_path(path: str, what: str = "path") -> str:
    """A path below its store: no way out of it, no empty parts; a slash at either end is dropped."""
    inner = path.strip("/")
    if inner and not is_safe_path(inner, backslashes=False):
        raise JobError(
            f"the {what} {path!r} leaves its store, or has empty parts", "Write a plain path such as data/2024."
        )
    return inner


def joined(base: str, path: str) -> str:
    """A path below a folder or address, either of which may be empty."""
    return f"{base.rstrip('/')}/{path}" if base and path else base or path


def _azureml(text: str) -> Location:
    if not text.startswith("azureml://"):
        match = _ASSET.fullmatch(text)
        label = match and match["label"]
        if match is None or (label and label != "latest"):
            raise JobError(f"{text!r} is no data asset", "Write azureml:NAME:VERSION or azureml:NAME@latest.")
        return Location("asset", store=match["name"], version=match["version"])
    short = _WORKSPACE_PREFIX.sub("azureml://", text).removeprefix("azureml://")
    kind, _, rest = short.partition("/")
    name, _, rest = rest.partition("/")
    if kind == "data" and _NAME.fullmatch(name):
        word, _, version = rest.partition("/")
        if word in ("versions", "labels") and version:
            return Location("asset", store=name, version=None if word == "labels" else version)
    if kind == "datastores" and _NAME.fullmatch(name):
        word, _, path = rest.partition("/")
        if word in ("", "paths"):
            return Location("datastore", store=name, path=safe_path(unquote(path)))
    raise JobError(f"{text!r} is no address of data", "Write azureml://datastores/NAME/paths/PATH.")


def _hadoop(text: str, scheme: str) -> Location:
    parts = urlsplit(text)
    container, _, host = parts.netloc.rpartition("@")
    match = _BLOB_HOST.fullmatch(host.lower())
    if not container or match is None:
        service = "dfs" if scheme.startswith("abfs") else "blob"
        raise JobError(
            f"{text!r} is no address of a container",
            f"Write {scheme}://CONTAINER@ACCOUNT.{service}.core.windows.net/PATH.",
        )
    return _blob(match, container, unquote(parts.path))


def _http(text: str) -> Location:
    parts = urlsplit(text)
    match = _BLOB_HOST.fullmatch((parts.hostname or "").lower())
    if not parts.hostname:
        raise JobError(f"{text!r} names no host", "Write https://HOST/PATH.")
    if match and match["service"] in ("blob", "dfs") and parts.scheme == "https" and not parts.query:
        container, _, path = unquote(parts.path).strip("/").partition("/")
        if container:
            return _blob(match, container, path)
    return Location("http", url=text)


def _blob(host: re.Match[str], container: str, path: str) -> Location:
    endpoint = f"https://{host['account']}.blob.{host['suffix']}"
    return Location("azure-blob", safe_path(path), container, account=host["account"], endpoint=endpoint)


def _file(text: str) -> Location:
    rest = text.removeprefix("file:")
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise JobError(f"{text!r} names the host {host!r}", "Write file:///PATH: the node reads it itself.")
        rest = slash + path
    return Location("local", path=unquote(rest))
