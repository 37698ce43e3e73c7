"""Where scripts find their models, as in Azure ML: AZUREML_MODEL_DIR, with each model below it by its own name."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Mapping, MutableMapping

MODELS = "SERVED_MODELS"
"""The models of a run: input to name, version and the name of the file or folder."""
PATHS = "MUSTER_MODEL_PATHS"
"""The path of each model, by its name, for `Model.get_model_path`."""
_INPUT = "MUSTER_INPUT_"


def tell(environ: "MutableMapping[str, str]" = os.environ) -> str:
    """Set the variables that scripts read; returns the path of the first model."""
    known = _known(environ)
    first = environ.get(_INPUT + "model", "")
    if not first:
        return ""
    paths = {key: Path(environ[_INPUT + key]).resolve() for key in known if environ.get(_INPUT + key)}
    path = Path(first).resolve()
    environ["MUSTER_MODEL_PATH"] = str(path)
    environ[PATHS] = json.dumps({known[key][0]: str(found) for key, found in paths.items()})
    below = Path(tempfile.gettempdir(), "azureml-models-{}".format(environ.get("MUSTER_RUN_ID", os.getpid())))
    if len(paths) > 1:
        for key, found in paths.items():
            name, version, own_name = known[key]
            _link(below / name / version / (found.name if found.is_file() else own_name or name), found)
        environ["AZUREML_MODEL_DIR"] = str(below)
    elif path.is_file():
        environ["AZUREML_MODEL_DIR"] = str(path.parent)
    else:
        name, version, own_name = known.get("model", ["", "", ""])
        environ["AZUREML_MODEL_DIR"] = str(_by_own_name(below / (name or "model") / (version or "1"), path, own_name))
    return str(path)


def _known(environ: Mapping[str, str]) -> Dict[str, List[str]]:
    given: Any = json.loads(environ.get(MODELS) or "{}")
    return {str(key): [str(part) for part in item] for key, item in given.items()}


def _by_own_name(folder: Path, path: Path, own_name: str) -> Path:
    """A folder with the model's folder under its own name, and with its contents: scripts look for either."""
    if not own_name or own_name in (".", ".."):
        return path
    for entry in sorted(os.listdir(str(path))):
        _link(folder / entry, path / entry)
    _link(folder / own_name, path)
    return folder


def _link(place: Path, target: Path) -> None:
    """Several replicas may do this at once, each the same."""
    place.parent.mkdir(parents=True, exist_ok=True)
    staged = place.parent / ".{}.{}".format(place.name, os.getpid())
    os.symlink(str(target), str(staged))
    os.replace(str(staged), str(place))
