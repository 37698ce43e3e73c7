"""`python -m muster.azureml SCRIPT [ARGS]`: run a script whose imports of Azure ML mean Muster."""

from __future__ import annotations

import runpy
import sys
import traceback
from pathlib import Path

from muster.azureml.absent import absent
from muster.azureml.finder import Refused, install
from muster.errors import MusterError

_USAGE = (
    "usage: python -m muster.azureml SCRIPT [ARGUMENTS]\n\nRun a submission script of Azure ML on Muster, unchanged."
)


def main(words: list[str]) -> int:
    """Run the script as if it had been started by Python itself; returns the exit code."""
    if not words or words[0] in ("-h", "--help"):
        print(_USAGE)
        return 0 if words else 2
    script = Path(words[0])
    if not script.is_file():
        print(f"error: there is no file {script}.\n{_USAGE}", file=sys.stderr)
        return 2
    install()
    sys.argv = words
    # Python puts a script's folder first on the path; for this module it was the current folder.
    sys.path[0] = str(script.resolve().parent)
    try:
        runpy.run_path(str(script), run_name="__main__")
    except MusterError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"  {error.hint}", file=sys.stderr)
        return 1
    except Refused as error:
        print(f"error: {_where(error, script)}{error.msg}", file=sys.stderr)
        return 1
    except (AttributeError, TypeError) as error:
        if (text := absent(error)) is None:
            raise
        print(f"error: {_where(error, script)}{text}", file=sys.stderr)
        print("  docs/coming-from-azureml.md has every name, and what is different.", file=sys.stderr)
        return 1
    return 0


def _where(error: BaseException, script: Path) -> str:
    """The line that caused the error, in the script or in one of its modules."""
    folder = script.resolve().parent
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if folder in Path(frame.filename).resolve().parents
    ]
    return f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
