"""Where a run came from."""

import subprocess
from pathlib import Path

import pytest

from muster.client import provenance
from muster.client.history import MetricRecord, records
from muster.host.extras import installed_from
from muster.wire.runs import MetricSeries


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)\n")

    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=folder, check=True)

    git("init", "-q", "-b", "work")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    git("remote", "add", "origin", "https://ada:secret@example.org/code.git")
    return folder


def test_commit_branch_and_remote_are_kept_without_the_password(repository: Path) -> None:
    state, difference = provenance.git_state(repository)
    assert state is not None
    assert (len(state.commit), state.branch, state.dirty, difference) == (40, "work", False, b"")
    assert state.remote == "https://***@example.org/code.git"


def test_what_is_not_committed_is_kept_as_a_difference(repository: Path) -> None:
    (repository / "train.py").write_text("print(2)\n")
    (repository / "new.py").write_text("")
    state, difference = provenance.git_state(repository)
    assert state is not None
    assert (state.dirty, state.untracked) == (True, 1)
    assert b"-print(1)\n+print(2)" in difference


def test_a_folder_outside_of_git_has_none(tmp_path: Path) -> None:
    assert provenance.git_state(tmp_path) == (None, b"")


def test_the_freeze_is_remembered_until_something_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = provenance.freeze()
    assert any(line.startswith("pytest==") for line in first)
    kept = next((tmp_path / "muster" / "freezes").iterdir())
    kept.write_text('["kept==1"]')
    assert provenance.freeze() == ("kept==1",)
    monkeypatch.setattr("sys.version", "another")
    assert provenance.freeze() == first


def test_a_typed_secret_is_not_kept() -> None:
    typed = ["muster", "run", "--env", "HF_TOKEN=abc", "--api-key", "xyz", "https://u:p@host/x", "-i", "lr=1.0"]
    assert " ".join(provenance.without_secrets(typed)) == (
        "muster run --env HF_TOKEN=*** --api-key *** https://***@host/x -i lr=1.0"
    )


def test_what_a_run_logged_comes_with_step_time_and_rank_in_the_order_of_arrival() -> None:
    def series(rank: int, order: tuple[int, ...], values: tuple[object, ...]) -> MetricSeries:
        steps, at = tuple(float(n) for n in order), tuple(10.0 + n for n in order)
        return MetricSeries(
            "loss",
            f"rank_{rank}",
            rank,
            1,
            "scalar",
            2,
            None,
            None,
            values,
            steps,
            at,
            order,  # type: ignore[arg-type]
        )

    found = records([series(0, (1, 3), (0.5, 0.25)), series(1, (2, 4), (0.6, "NaN"))])
    assert [record.rank for record in found] == [0, 1, 0, 1]
    assert found[1] == MetricRecord("loss", 2.0, 12.0, 1, 1, 0.6)
    assert str(found[3].value) == "nan"
    assert [record.step for record in records([series(0, (1, 3), (0.5, 0.25))], rank=1)] == []


@pytest.mark.parametrize(
    ("direct_url", "said"),
    [
        (None, "'muster-ml[plot]'"),
        ('{"url": "file:///src/muster", "dir_info": {"editable": true}}', "-e '/src/muster[plot]'"),
        ('{"url": "file:///src/my%20clone", "dir_info": {}}', "'/src/my clone[plot]'"),
        ('{"url": "file:///tmp/muster_ml-1-py3-none-any.whl"}', "'/tmp/muster_ml-1-py3-none-any.whl[plot]'"),
        ('{"url": "https://example.org/x.whl"}', "'muster-ml[plot]'"),
        ("not json", "'muster-ml[plot]'"),
    ],
)
def test_a_hint_on_an_extra_fits_how_muster_was_installed(direct_url: str | None, said: str) -> None:
    assert installed_from(direct_url, "plot") == said
