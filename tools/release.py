"""Build a release and try it: wheel, sdist, a fresh environment from the lock, the quick start in an empty folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.sbom import document

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
SCRIPT = "import os\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])\n"
QUICK_START = (
    ("--version",),
    ("init",),
    ("run", "train.py", "--procs", "2"),
    ("run", "train.py", "--nodes", "2", "--procs", "2"),
    ("ps",),
    ("show", "@latest"),
    ("logs", "@latest"),
    ("down",),
)


def main() -> None:
    """Build, install, try, and write down what it is made of."""
    shutil.rmtree(DIST, ignore_errors=True)
    _call(sys.executable, "-m", "uv", "build", "--quiet", "--out-dir", str(DIST), cwd=ROOT)
    wheel, sdist = next(DIST.glob("*.whl")), next(DIST.glob("*.tar.gz"))
    with tempfile.TemporaryDirectory(prefix="muster-release-") as folder:
        _try_out(Path(folder), wheel)
    (DIST / "sbom.json").write_text(json.dumps(document(), indent=2))
    print(f"{wheel.name}\n{sdist.name}\nsbom.json\nin {DIST}; the quick start works from the wheel alone")


def _try_out(folder: Path, wheel: Path) -> None:
    """Neither the repository nor its environment is on the way."""
    python, work = folder / "venv" / "bin" / "python", folder / "work"
    work.mkdir()
    _call(sys.executable, "-m", "uv", "venv", "--quiet", "--python", sys.executable, str(folder / "venv"), cwd=folder)
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(python)]
    _call(*install, "--require-hashes", "-r", str(ROOT / "locks" / "base.txt"), cwd=folder)
    _call(*install, "--no-deps", str(wheel), cwd=folder)
    (work / "train.py").write_text(SCRIPT)
    home = folder / "home"
    home.mkdir()
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    for words in QUICK_START:
        _call(str(python.with_name("muster")), *words, cwd=work, env={**kept, "HOME": str(home)})


def _call(*command: str, cwd: Path, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, env=env, check=False, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
