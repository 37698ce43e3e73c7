"""A workspace with runs, and Chromium to look at it with."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from tests.conftest import MUSTER, _end_workspace
from tests.integration.server.conftest import Site

from muster.client.connect import connect
from muster.client.workspace import create_workspace

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
expect.set_options(timeout=30_000)

# Into a log, a tag, a name, a metric's name and a file's name: wherever a page shows what somebody gave.
SCRIPT_TAG = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>"
TRAINING = """
import math, os, sys, time
from muster import Run
run = Run.get_context()
steps, rate, wait_s = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
for step in range(steps):
    run.log("loss", 2.5 * math.exp(-step * rate), step=step)
    run.progress(step + 1, steps, "steps")
    print(f"\\033[32mstep {step}\\033[0m of {steps}", flush=True)
    time.sleep(wait_s)
os.makedirs("outputs", exist_ok=True)
with open("outputs/table.csv", "w") as file:
    file.write("name,value\\n<b>bold</b>,1\\n")
"""


@dataclass
class Portal:
    """A workspace that is looked at."""

    site: Site
    browser: Browser
    trouble: list[str] = field(default_factory=list)
    """What pages complained of: errors of scripts, and what the content-security policy refused."""

    @property
    def url(self) -> str:
        return self.site.client.portal_url()

    def muster(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([MUSTER, *words], cwd=self.site.folder, capture_output=True, text=True, timeout=60)

    def link(self, *words: str) -> str:
        """What `muster portal` opens."""
        printed = self.muster("portal", "--json", *words)
        assert printed.returncode == 0, printed.stderr
        found: str = json.loads(printed.stdout)["sign_in_url"]
        return found

    def context(self) -> BrowserContext:
        context = self.browser.new_context(viewport={"width": 1400, "height": 900}, ignore_https_errors=True)
        context.set_default_timeout(30_000)
        return context

    def page(self, path: str = "/") -> Page:
        """A page of the owner, signed in."""
        page = self.context().new_page()
        page.on("pageerror", lambda error: self.trouble.append(str(error)))
        page.on("console", lambda message: self.trouble.append(message.text) if is_trouble(message.text) else None)
        page.goto(self.link())
        page.wait_for_selector("text=Sign out")
        page.goto(f"{self.url}/portal{path}")
        return page

    def train(self, steps: int = 30, rate: float = 0.1, wait_s: float = 0.0, **more: object) -> str:
        code = self.site.folder / "code"
        code.mkdir(exist_ok=True)
        (code / "train.py").write_text(TRAINING)
        command = [sys.executable, "train.py", str(steps), str(rate), str(wait_s)]
        job = {"code": str(code), "command": command, "experiment_name": "first", **more}
        return self.site.run(**job)


def is_trouble(text: str) -> bool:
    return "Content Security Policy" in text or "Uncaught" in text


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for longer than a file: while Playwright runs, its event loop does too, and no other can in this process."""
    if CHROMIUM is None:
        pytest.skip("not installed: chromium (apt-get install chromium)")
    with sync_playwright() as playwright:
        # As root there is no sandbox; these are our own pages.
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def portal(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Portal]:
    folder = tmp_path_factory.mktemp("portal")
    before = Path.cwd()
    os.chdir(folder)
    create_workspace(folder, "test")
    found = Portal(Site(folder, connect()), browser)
    yield found
    for context in browser.contexts:
        context.close()
    os.chdir(before)
    _end_workspace(folder)
    assert not found.trouble, found.trouble


@pytest.fixture
def team(workspace: Path) -> Iterator[str]:
    """The address of a server for a team, with TLS."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ready, told = os.pipe()
    command = [sys.executable, "-m", "muster.server", "--workspace", str(workspace / ".muster")]
    command += ["--tcp", f"127.0.0.1:{port}", "--tls-self-signed", "--foreground", "--ready-fd", str(told)]
    with subprocess.Popen(command, pass_fds=(told,), stderr=subprocess.DEVNULL) as process:
        os.close(told)
        try:
            assert os.read(ready, 1), "the server did not start"
            yield f"https://127.0.0.1:{port}"
        finally:
            os.close(ready)
            process.terminate()
