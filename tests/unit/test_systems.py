"""Systems that Muster does not run on are refused with a sentence."""

import subprocess
import sys
from pathlib import Path

import pytest

from muster.client.server_process import start_server
from muster.errors import UserError
from muster.paths import WorkspacePaths
from muster.systems import refusal, server_refusal

SOURCE = Path(__file__).parents[2] / "src"


def as_on_windows(code: str, argv0: str) -> subprocess.CompletedProcess[str]:
    """Run code that believes to be on Windows."""
    before = f"import sys; sys.platform = 'win32'; sys.path.insert(0, {str(SOURCE)!r}); sys.argv = [{argv0!r}]; "
    return subprocess.run([sys.executable, "-c", before + code], capture_output=True, text=True, check=False)


def test_the_command_says_wsl_on_windows_and_nothing_else() -> None:
    done = as_on_windows("from muster.cli.main import main", r"C:/Scripts/muster.exe")
    assert done.returncode != 0
    assert "WSL" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_import_on_windows_raises_an_error_to_catch() -> None:
    done = as_on_windows(
        """
try:
    import muster
except ImportError as error:
    print(error)
""",
        "train.py",
    )
    assert (done.returncode, "wsl --install" in done.stdout) == (0, True)


def test_linux_has_servers_and_macos_is_a_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal("linux") is None
    assert refusal("darwin") is None
    assert server_refusal("linux") is None
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(UserError, match="muster login"):
        start_server(WorkspacePaths(tmp_path))
