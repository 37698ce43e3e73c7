"""Pictures of the portal for the documents: real runs in a workspace of their own, seen by Chromium."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).parents[1] / "docs" / "images"
MUSTER = Path(sys.executable).with_name("muster")
SCRIPT = """
import math, os, random, sys, time
from muster import Run
run, rank = Run.get_context(), int(os.environ.get("RANK", 0))
rate, steps, pause_s = float(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
chosen = random.Random(f"{rate} {rank}")
for step in range(steps):
    noise = chosen.gauss(0, 0.03)
    run.log("train/loss", 2.3 * math.exp(-step * rate) + 0.12 + abs(noise), step=step)
    run.log("val/accuracy", 0.94 - 0.85 * math.exp(-step * rate) + noise / 3, step=step)
    run.log("images_per_s", 1180 + 40 * noise, step=step)
    run.progress(step + 1, steps, "steps")
    print(f"\\033[36mstep {step:>4}\\033[0m loss {2.3 * math.exp(-step * rate) + 0.12:.4f}", flush=True)
    time.sleep(pause_s)
if rank == 0:
    os.makedirs("outputs", exist_ok=True)
    with open("outputs/model.pt", "wb") as file:
        file.write(bytes(4096))
    with open("outputs/scores.csv", "w") as file:
        file.write("class,correct,of\\ncats,41,50\\ndogs,46,50\\n")
    with open("outputs/notes.md", "w") as file:
        file.write(f"# Digits\\n\\nLearning rate {rate}, {steps} steps.\\n")
if rate > 0.5:
    raise ValueError(f"loss is NaN at step {steps}: the learning rate {rate} is too high")
"""
SCORING = """
def init():
    pass

def run(data):
    return {"label": "seven", "probability": 0.93}
"""


def main() -> None:
    """Start the runs, sign in, and take a picture of each page."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with _workspace() as (folder, environment):
        _endpoint(folder, environment)
        ids = _runs(folder, environment)
        _assets(folder, environment, ids["rate-0.1"])
        link = _muster(folder, environment, "portal", "--json")
        base = json.loads(link)["sign_in_url"]
        with sync_playwright() as playwright:
            chromium = shutil.which("chromium") or shutil.which("google-chrome")
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            context = browser.new_context(viewport={"width": 1360, "height": 850})
            page = context.new_page()
            page.goto(base)
            page.wait_for_selector("text=Sign out")
            _take_all(page, base.partition("/portal")[0], ids)
            browser.close()


def _take_all(page: Page, url: str, ids: Mapping[str, str]) -> None:
    columns = "cols=experiment,created,duration,m:best:val/accuracy,m:last:train/loss,progress"
    compared = "&".join(f"run={ids[name]}" for name in ("rate-0.02", "rate-0.05", "rate-0.1"))
    pages = {
        "runs": (f"/?{columns}", ".row.body"),
        "run": (f"/runs/{ids['too-high']}", "canvas"),
        "logs": (f"/runs/{ids['live']}?tab=logs", ".line"),
        "metrics": (f"/runs/{ids['rate-0.05']}?tab=metrics&smooth=0.6", "canvas"),
        "compare": (f"/compare?{compared}", "canvas"),
        "clusters": ("/clusters", ".node"),
        "system": (f"/runs/{ids['live']}?tab=system", "canvas"),
        "code": (f"/runs/{ids['rate-0.1']}?tab=code", ".list button"),
        "job": (f"/runs/{ids['rate-0.1']}?tab=job", "td, dd, pre"),
        "data": ("/data", "td"),
        "data-folder": ("/data/nas/cats", ".list button"),
        "models": ("/models/digits", "td"),
        "environments": ("/environments", ".card pre"),
        "people": ("/people?tab=tokens", "td"),
        "receivers": ("/people?tab=receivers", "td"),
    }
    for name, (path, shown) in pages.items():
        page.goto(f"{url}/portal{path}")
        _take(page, name, shown)
    page.goto(f"{url}/portal/runs/{ids['rate-0.1']}?tab=files")
    page.get_by_role("button", name="scores.csv").click()
    _take(page, "files", ".preview td")
    page.goto(f"{url}/portal/submit")
    page.get_by_role("button", name="See the plan").click()
    _take(page, "submit", "[aria-label=Plan] summary")
    page.goto(f"{url}/portal/endpoints/digits")
    page.get_by_label("Request").fill('{"pixels": [0, 3, 15, 8]}')
    page.get_by_role("button", name="Send").click()
    _take(page, "endpoint", "[aria-label=Answer]")
    page.emulate_media(color_scheme="dark")
    page.reload()
    _take(page, "endpoint-dark", "td")
    page.goto(f"{url}/portal/runs/{ids['live']}")
    _take(page, "dark", "canvas")
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{url}/portal/runs/{ids['rate-0.05']}")
    _take(page, "phone", ".story li")
    page.goto(f"{url}/portal/endpoints/digits")
    _take(page, "endpoint-phone", "td")


def _take(page: Page, name: str, shown: str) -> None:
    page.locator(shown).first.wait_for()
    page.wait_for_timeout(600)
    page.screenshot(path=IMAGES / f"portal-{name}.png")
    print(f"portal-{name}.png")


def _runs(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    (folder / "train.py").write_text(SCRIPT)
    ids = {}
    for name, rate, steps, pause_s in (
        ("rate-0.02", 0.02, 120, 0.01),
        ("rate-0.05", 0.05, 120, 0.01),
        ("rate-0.1", 0.1, 120, 0.01),
        ("too-high", 0.9, 30, 0.01),
    ):
        ids[name] = _run(folder, environment, name, rate, steps, pause_s)
        _muster(folder, environment, "wait", ids[name])
    ids["live"] = _run(folder, environment, "live", 0.01, 3000, 0.05)
    time.sleep(3.0)
    return ids


def _assets(folder: Path, environment: Mapping[str, str], run: str) -> None:
    """A datastore, a data asset, an environment, and a model that a run made."""
    pictures = folder / "pictures"
    for label in ("cats", "dogs"):
        (pictures / label).mkdir(parents=True)
        for number in range(3):
            (pictures / label / f"{number}.txt").write_text(f"{label} {number}\n")
    _muster(folder, environment, "datastore", "create", "nas", "--path", str(pictures))
    _muster(folder, environment, "data", "create", "pets", "--path", str(pictures))
    (folder / "vision.yml").write_text("python: '3.11'\npip: [numpy==2.3.4, pillow]\n")
    _muster(folder, environment, "env", "register", "vision", "vision.yml")
    place = f"runs:/{run}/outputs/model.pt"
    _muster(folder, environment, "model", "register", "digits", "--path", place, "--alias", "champion")


def _endpoint(folder: Path, environment: Mapping[str, str]) -> None:
    """One with two deployments that share the traffic, and a receiver of notifications."""
    (folder / "scoring").mkdir()
    (folder / "scoring" / "score.py").write_text(SCORING)
    _muster(folder, environment, "endpoint", "create", "digits")
    for name in ("blue", "green"):
        served = "code_configuration: {code: scoring, scoring_script: score.py}"
        (folder / f"{name}.yml").write_text(f"name: {name}\nendpoint_name: digits\n{served}\n")
        _muster(folder, environment, "endpoint", "deploy", "-f", f"{name}.yml")
    _muster(folder, environment, "endpoint", "traffic", "digits", "blue=90", "green=10")
    for _ in range(5):
        _muster(folder, environment, "endpoint", "invoke", "digits", "--data", "{}")
    _muster(folder, environment, "notify", "add", "team", "ntfy+https://ntfy.example.org/vision", "--runs", "all")


def _run(folder: Path, environment: Mapping[str, str], name: str, rate: float, steps: int, pause_s: float) -> str:
    words = ["run", "train.py", "--procs", "2", "--name", name, "-d", "--", str(rate), str(steps), str(pause_s)]
    return _muster(folder, environment, *words).strip()


def _muster(folder: Path, environment: Mapping[str, str], *words: str) -> str:
    done = subprocess.run([MUSTER, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stdout


@contextmanager
def _workspace() -> Iterator[tuple[Path, dict[str, str]]]:
    with tempfile.TemporaryDirectory(prefix="mp-") as parent:
        home, folder = Path(parent) / "home", Path(parent) / "vision"
        home.mkdir()
        folder.mkdir()
        environment = {**os.environ, "HOME": str(home), "XDG_RUNTIME_DIR": str(home)}
        _muster(folder, environment, "init")
        try:
            yield folder, environment
        finally:
            for run in json.loads(_muster(folder, environment, "ps", "--json") or "[]"):
                _muster(folder, environment, "cancel", run["id"], "--force")
            _muster(folder, environment, "down", "--force")


if __name__ == "__main__":
    main()
