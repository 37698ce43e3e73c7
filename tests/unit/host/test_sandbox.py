"""What bubblewrap is told, and files below folders that others write to."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from muster.agent.run.container.sandbox import devices
from muster.host.sandbox import machine
from muster.host.sandbox.command import Account, Shown, View, command
from muster.host.sandbox.fence import folder_inside, open_inside, put_inside

SYSTEM = (("/usr", ""), ("/bin", "usr/bin"), ("/opt", ""))


def told(view: View, account: Account | None = None) -> list[str]:
    return command("/usr/bin/bwrap", view, "/usr/bin/python3", account, ["/bin/true"])


def binds(line: list[str]) -> list[str]:
    return [line[at + 2] for at, word in enumerate(line) if word in ("--bind", "--ro-bind", "--dev-bind-try")]


def test_what_lies_in_something_shown_comes_after_it() -> None:
    shown = (Shown("/w/a/b/c", "/w/a/b/c", True), Shown("/w", "/w"), Shown("/w/a", "/w/a"))
    assert binds(told(View(SYSTEM, shown)))[-3:] == ["/w", "/w/a", "/w/a/b/c"]


def test_folders_that_lead_there_are_open_to_the_account() -> None:
    line = told(View(SYSTEM, (Shown("/root/x/y", "/root/x/y"),)))
    made = [line[at + 1] for at, word in enumerate(line) if word == "--dir"]
    assert made == ["/root", "/root/x"] and line.index("--dir") < line.index("/root/x/y")


def test_a_workspace_in_a_folder_of_the_system_is_hidden_before_the_own_part_of_it_is_shown() -> None:
    line = told(
        View(SYSTEM, (Shown("/opt/w/.muster/n/a", "/opt/w/.muster/n/a", True),), hidden=("/opt/w/.muster", "/h"))
    )
    assert line.index("/opt") < line.index("/opt/w/.muster") < line.index("/opt/w/.muster/n/a")
    assert "/h" not in line and line[line.index("/opt/w/.muster") - 1] == "--tmpfs"


def test_root_gives_itself_up_and_an_ordinary_user_gets_a_namespace() -> None:
    own, others = told(View(SYSTEM)), told(View(SYSTEM), Account(5, 6, (6, 7)))
    assert "--unshare-user" in own and own[-2:] == ["--", "/bin/true"]
    assert "--unshare-user" not in others and others[-4:] == ["5", "6", "6,7", "/bin/true"]
    added = [others[at + 1] for at, word in enumerate(others) if word == "--cap-add"]
    assert added == ["CAP_SETUID", "CAP_SETGID"]
    for line in (own, others):
        assert {"--unshare-pid", "--unshare-ipc", "--die-with-parent", "--as-pid-1"} <= set(line)


def test_a_job_with_gpus_gets_their_devices_and_one_without_gets_none(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm", "kfd", "sda", "kmem", "dri/card0", "infiniband/uverbs0"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    line = told(View(SYSTEM, tuple(devices(True, tmp_path))))
    bound = {line[at + 1] for at, word in enumerate(line) if word == "--dev-bind-try"}
    names = ("nvidia0", "nvidiactl", "nvidia-uvm", "kfd", "dri", "infiniband")
    assert bound == {str(tmp_path / name) for name in names}
    assert [item.source for item in devices(False, tmp_path)] == [str(tmp_path / "infiniband")]


def test_only_installations_of_python_are_shown(tmp_path: Path) -> None:
    base, environment, made_up = tmp_path / "base", tmp_path / "venv", tmp_path / "secrets"
    for folder in (base, environment, made_up):
        (folder / "bin").mkdir(parents=True)
    (base / "lib" / "python3.11").mkdir(parents=True)
    (base / "bin" / "python3.11").touch()
    (environment / "pyvenv.cfg").touch()
    (environment / "bin" / "python").symlink_to("../../base/bin/python3.11")
    (made_up / "bin" / "python").symlink_to(environment / "bin" / "python")
    found = machine.python_folders([str(made_up / "bin" / "python")])
    assert found == [str(environment), str(base)]
    (made_up / "bin" / "loop").symlink_to("loop")
    assert machine.python_folders([str(made_up / "bin" / "loop")]) == []


def test_everybody_gets_another_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    ada, bob = (machine.account_of("", f"w/{name}") for name in ("ada", "bob"))
    assert ada is not None and bob is not None and ada.uid != bob.uid and min(ada.uid, bob.uid) >= 0x71000000
    assert machine.account_of("", "w/ada") == ada
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert machine.account_of("", "w/ada") is None


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder that somebody else fills, next to what they must not reach."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("key")
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "private" / "key")
    (folder / "folder").symlink_to(tmp_path / "private")
    (folder / "real").mkdir()
    (folder / "real" / "file").write_text("content")
    os.mkfifo(folder / "fifo")
    return folder


def test_links_are_not_followed(theirs: Path) -> None:
    with os.fdopen(open_inside(theirs, Path("real/file"))) as file:
        assert file.read() == "content"
    for name in ("link", "folder/key", "real/../folder/key", "../private/key", "/etc/hostname", "missing"):
        with pytest.raises(OSError):
            open_inside(theirs, Path(name))
    os.close(open_inside(theirs, Path("fifo")))
    with pytest.raises(OSError), folder_inside(theirs, Path("folder/new"), make=True):
        pass


def test_what_is_put_there_stays_there(theirs: Path) -> None:
    put_inside(theirs, Path("new/deep/file"), ".part", io.BytesIO(b"bytes"))
    put_inside(theirs, Path("link"), ".part", io.BytesIO(b"bytes"))
    assert (theirs / "new/deep/file").read_bytes() == b"bytes" and (theirs / "link").read_bytes() == b"bytes"
    assert not (theirs / "link").is_symlink() and list((theirs / ".part").iterdir()) == []
    with pytest.raises(OSError):
        put_inside(theirs, Path("folder/key"), ".part", io.BytesIO(b"other"))
    assert (theirs.parent / "private" / "key").read_text() == "key" and list((theirs / ".part").iterdir()) == []
