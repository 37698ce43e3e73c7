"""`azureml://` for fsspec in ranks: files of the run's own inputs and outputs, without credentials in the script.

Needs fsspec where the script runs. Requests go to the node's own agent, which passes them on with the run's token; the
server opens what the job names as an input or output, and nothing else. Runs on Python 3.8, like all that ranks import.
"""

import json
import os
from typing import Any, Dict, List, Optional
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, Request, build_opener

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from muster.errors import MusterError

_TIMEOUT_S = 120.0
Info = Dict[str, object]


class AzureMLFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Reads `azureml://datastores/NAME/paths/…` below the run's inputs and outputs."""

    protocol = "azureml"
    cachable = True

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> List[Any]:
        """The first level of a folder; a file is listed as itself."""
        inner = self._strip_protocol(path)
        found: Dict[str, Info] = {}
        for entry in self._listed(inner):
            first, slash, _ = entry["path"].partition("/")
            name = "{}/{}".format(inner, first) if first else inner
            size = None if slash else entry["size"]
            found[name] = {"name": name, "size": size, "type": "directory" if slash else "file"}
        if not found:
            raise FileNotFoundError(path)
        return list(found.values()) if detail else list(found)

    def info(self, path: str, **kwargs: Any) -> Info:
        """Name, size and type."""
        inner = self._strip_protocol(path)
        listed = self._listed(inner, limit=1)
        if not listed:
            raise FileNotFoundError(path)
        is_file = not listed[0]["path"]
        size = listed[0]["size"] if is_file else 0
        return {"name": inner, "size": size, "type": "file" if is_file else "directory"}

    def find(
        self, path: str, maxdepth: Optional[int] = None, withdirs: bool = False, detail: bool = False, **kwargs: Any
    ) -> Any:
        """Every file below a folder, in one request."""
        if maxdepth is not None or withdirs:
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **kwargs)
        inner = self._strip_protocol(path)
        names = {
            ("{}/{}".format(inner, entry["path"]) if entry["path"] else inner): entry["size"]
            for entry in self._listed(inner)
        }
        found = {name: {"name": name, "size": size, "type": "file"} for name, size in sorted(names.items())}
        return found if detail else list(found)

    def cat_file(self, path: str, start: Optional[int] = None, end: Optional[int] = None, **kwargs: Any) -> bytes:
        """The bytes of a file, or a part of them."""
        if start is None and end is None:
            return self._asked(self._strip_protocol(path), {})
        if (start or 0) < 0 or (end is not None and end < 0):
            size = int(str(self.info(path)["size"]))
            start = size + start if start is not None and start < 0 else start
            end = size + end if end is not None and end < 0 else end
        if end is not None and end <= (start or 0):
            return b""
        last = "" if end is None else end - 1
        return self._asked(self._strip_protocol(path), {"Range": "bytes={}-{}".format(start or 0, last)})

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> AbstractBufferedFile:
        if mode != "rb":
            raise NotImplementedError("azureml:// is read here; what a job writes goes to ${{outputs.NAME}}")
        return _File(self, path, mode, **kwargs)

    def _listed(self, path: str, limit: Optional[int] = None) -> List[Any]:
        query = {"list": "1"} if limit is None else {"list": "1", "limit": str(limit)}
        return list(json.loads(self._asked(path, {}, query))["files"])

    def _asked(self, path: str, headers: Dict[str, str], query: Optional[Dict[str, str]] = None) -> bytes:
        address, token, run = (os.environ.get(name, "") for name in _VARIABLES)
        if not address or not run:
            raise MusterError(
                "azureml:// is open to the ranks of a run, and this is none",
                "Elsewhere `muster data cp` copies files, and `muster data cat` prints them.",
            )
        asked = urlencode({"address": "azureml://" + path, **(query or {})})
        request = Request(
            "{}/api/v1/runs/{}/data?{}".format(address, run, asked),
            headers=dict(headers, Authorization="Bearer " + token),
        )
        try:
            # Requests to the node itself never go through a proxy.
            with build_opener(ProxyHandler({})).open(request, timeout=_TIMEOUT_S) as answer:
                return bytes(answer.read())
        except HTTPError as error:
            raise _refusal(error, path) from None
        except URLError as error:
            raise OSError("azureml://{}: {}".format(path, error.reason)) from error


class _File(AbstractBufferedFile):  # type: ignore[misc]
    """An open file, read in blocks."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        return bytes(self.fs.cat_file(self.path, start, end))


_VARIABLES = ("MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_TOKEN", "MUSTER_RUN_ID")
"""The node's own address for its ranks, the token and the run, by the names that most scripts know."""


def _refusal(error: HTTPError, path: str) -> OSError:
    try:
        said = json.loads(error.read())["error"]["message"]
    except (ValueError, KeyError, TypeError):
        said = str(error)
    if error.code == 404:
        return FileNotFoundError(said)
    return PermissionError(said) if error.code in (401, 403) else OSError("azureml://{}: {}".format(path, said))
