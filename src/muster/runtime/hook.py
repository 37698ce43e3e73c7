"""The only code that enters a rank's processes: each Python runs it before the user's code (docs/launch-contract.md).

The agent copies this file as `sitecustomize.py` into the folder that comes first on PYTHONPATH, so `site` imports it.
`MUSTER_HOOKS` names the parts to install, such as `stacks`: modules of `parts/` with a function `install()`. Nothing
here may break a script or take noticeable time: it imports no package, not even `muster`, because a script may have a
module of that name. A part that fails is left out with one line on standard error, here and in all child processes.
The `sitecustomize` that would have run without Muster runs last, as if this one did not exist.
"""

import os
import sys
from _frozen_importlib import module_from_spec
from _frozen_importlib_external import PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

_VARIABLE = "MUSTER_HOOKS"


def _install(names: str, folder: str) -> None:
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    failed = []
    for name in wanted:
        try:
            _load("_muster_parts." + name, folder).install()
        except Exception as error:
            failed.append(name)
            # Without standard error, print would use standard output.
            if sys.stderr is not None:
                print("muster: the hook {!r} is left out: {!r}".format(name, error), file=sys.stderr)
    if failed:
        os.environ[_VARIABLE] = ",".join(name for name in wanted if name not in failed)


def _load(name: str, *folders: str) -> "ModuleType":
    """Import a module from these folders only, and only once."""
    if name in sys.modules:
        return sys.modules[name]
    spec = PathFinder.find_spec(name, folders)
    if spec is None or spec.loader is None:
        raise ImportError("there is no module {}".format(name), name=name)
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _run_next(here: str) -> None:
    """Run the sitecustomize that this one hides, if the path has another; it takes this one's name."""
    if here not in sys.path:
        return
    rest = sys.path[sys.path.index(here) + 1 :]
    if PathFinder.find_spec("sitecustomize", rest) is not None:
        del sys.modules["sitecustomize"]
        _load("sitecustomize", *rest)


if __name__ == "sitecustomize":
    _here = os.path.dirname(__file__)  # noqa: PTH120
    try:
        _install(os.environ.get(_VARIABLE, ""), os.path.join(_here, "muster", "runtime", "parts"))  # noqa: PTH118
    except Exception:
        # Standard error may be a pipe whose reader has ended.
        pass
    _run_next(_here)
