"""Progress that a script prints and does not report."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import wait_until
from tests.integration.server.conftest import Site, on_both_databases

_WAIT = "while not os.path.exists({go!r}): time.sleep(0.1)\n"


@on_both_databases
def test_printed_steps_are_the_progress_until_the_script_reports_its_own(site: Site, tmp_path: Path) -> None:
    go = str(tmp_path / "go")
    (site.folder / "printed.py").write_text(
        "import os, sys, time\nprint('Downloading 3/4', flush=True)\nprint('Epoch 2/4', flush=True)\n"
        "sys.stderr.write('\\r 45%|####5     | 45/100 [00:04<00:05, 9.9it/s]')\n"
        "sys.stderr.write('\\r 50%|#####     | 50/100 [00:05<00:05, 9.9it/s]\\r')\nsys.stderr.flush()\n"
        + _WAIT.format(go=go)
        + "print('Epoch 4/4 loss 0.1')\n"
    )
    (site.folder / "reported.py").write_text(
        "import os, time\nfrom muster import Run\nRun.get_context().progress(1, 3, 'rounds')\n"
        "print('step 90/100', flush=True)\n" + _WAIT.format(go=go)
    )
    printed, reported = (site.run(command=f"python {name}.py", code=".") for name in ("printed", "reported"))

    def progress(run: str) -> tuple[float, float, str] | None:
        found = site.view(run)["progress"]
        return found and (found["done"], found["total"], found["unit"])

    wait_until(lambda: progress(printed) == (1.5, 4, "epochs"), 60, "the printed progress")
    wait_until(lambda: progress(reported) == (1, 3, "rounds"), 60, "the reported progress")
    (tmp_path / "go").touch()
    for run in (printed, reported):
        assert site.wait(run)["status"] == "Completed"
    assert (progress(printed), progress(reported)) == ((4, 4, "epochs"), (1, 3, "rounds"))
