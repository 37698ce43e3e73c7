"""The portal in Chromium: 50,000 runs, a chart of a million points, the delay of a metric, 50 open portals."""

from __future__ import annotations

import json
import random
import shutil
import sys
import threading
import time
from http.client import HTTPConnection
from urllib.parse import urlsplit

import psutil
from playwright.sync_api import Browser, Page, sync_playwright
from sqlalchemy import insert

from bench.measure import Figure, Workspace, median, quick, report, temporary_workspace
from muster.client.server_process import wait_until_gone
from muster.client.workspace import find_workspace
from muster.job.spec import JobSpec
from muster.server.database import tables
from muster.server.database.connection import connect
from muster.server.portal.assets import portal_assets
from muster.wire.runs import MetricReport

PORTALS = 50
BATCH = 5000
LIVE_S = 2.0
"""How often a table of runs asks whether something changed."""
DRAWN = """async ([base, lines, points]) => {
  const { Chart } = await import(`${base}/parts/chart.js`);
  const { html, render } = await import(`${base}/view.js`);
  const x = Array.from({ length: points }, (_, i) => i);
  const curves = Array.from({ length: lines }, (_, n) => ({ label: `run ${n}`, x, y: x.map((i) => Math.sin(i / 500 + n) + Math.random()) }));
  const box = document.createElement("div");
  document.body.replaceChildren(box);
  const began = performance.now();
  render(html`<${Chart} curves=${curves} many="lines" height=${500} />`, box);
  while (!box.querySelector("canvas")) await new Promise(requestAnimationFrame);
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return performance.now() - began;
}"""  # noqa: E501
FILTERED = """async (text) => {
  const field = document.querySelector("input[type=search]");
  const said = document.querySelector(".head [role=status]");
  const before = said.textContent;
  const began = performance.now();
  field.value = text;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  while (said.textContent === before || said.textContent === "…") await new Promise(requestAnimationFrame);
  return performance.now() - began;
}"""


def main() -> None:
    is_quick = quick(__doc__)
    count, rounds = (2000, 2) if is_quick else (50_000, 5)
    with temporary_workspace() as workspace, sync_playwright() as playwright:
        fill(workspace, count)
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = signed_in(workspace, browser)
        url = workspace.client.portal_url()
        shown = [first_page(page, url) for _ in range(rounds)]
        filtered = [measure_filter(page, url, number) for number in range(rounds)]
        assets = portal_assets()
        page.goto(f"{url}/portal/")
        page.wait_for_selector(".row.body")
        base, lines, points = f"{url}/portal/files/{assets.digest}", 100, 1000 if is_quick else 10_000
        drawn = [page.evaluate(DRAWN, [base, lines, points]) / 1000 for _ in range(rounds)]
        seen = metric_delays(workspace, page, url, rounds)
        browser.close()
        alone, watched = cpu_of(workspace, 0), cpu_of(workspace, PORTALS)
    size = sum(len(asset.packed) for asset in assets.files.values()) + len(assets.page.packed)
    figures = [
        median(f"first page of {count:,} runs shown", shown, "s", at_most=1.0),
        median(f"{count:,} runs filtered by text, with the 80 ms that typing waits", filtered, "s", at_most=0.3),
        median(f"{lines} curves of {points:,} points drawn", drawn, "s", at_most=0.5),
        median("a metric seen after it was logged", seen, "s", at_most=1.0),
        Figure(f"{PORTALS} open portals beside a run that logs, of one core", watched - alone, "%", at_most=20.0),
        Figure("first load, compressed", size / 1000, "KB", at_most=300.0),
    ]
    report("portal", figures, is_quick)


def fill(workspace: Workspace, count: int) -> None:
    """Put runs with parameters and metrics into the database, while no server has it."""
    paths = find_workspace(workspace.folder).paths
    workspace.client.shutdown(force=True)
    wait_until_gone(paths)
    chosen = random.Random(1)
    engine = connect(f"sqlite:///{paths.database}")
    spec = JobSpec(command=("python", "train.py", "--epochs", "90"), compute="local").model_dump(mode="json")
    with engine.begin() as connection:
        for begin in range(0, count, BATCH):
            numbers = range(begin, min(count, begin + BATCH))
            connection.execute(insert(tables.runs), [_run(number, spec, chosen) for number in numbers])
            connection.execute(insert(tables.params), [_param(number) for number in numbers])
            connection.execute(insert(tables.metric_series), [_series(number, chosen) for number in numbers])
    engine.dispose()
    workspace.client.health()


def _run(number: int, spec: dict[str, object], chosen: random.Random) -> dict[str, object]:
    at = time.time() - 86_400 * 30 + number
    return {
        "id": f"resnet50-{number:08}", "key": f"bench-{number}", "display_name": f"resnet50 {number % 97}",
        "experiment": f"experiment-{number % 40}", "status": chosen.choice(["Completed"] * 8 + ["Failed", "Canceled"]),
        "created_at": at, "queued_at": at, "started_at": at + 1, "ended_at": at + chosen.random() * 5000, "spec": spec,
        "submitted_by": f"person-{number % 12}", "compute": "local", "priority": 0, "num_nodes": 1 + number % 8,
        "num_ranks": 8, "ranks_per_node": 8, "attempt": 1, "tags": {"team": f"t{number % 5}"}, "notices": [],
    }  # fmt: skip


def _param(number: int) -> dict[str, object]:
    rate = 10.0 ** -(number % 6)
    return {"run_id": f"resnet50-{number:08}", "name": "lr", "value": str(rate), "attempt": 1, "number": rate}


def _series(number: int, chosen: random.Random) -> dict[str, object]:
    value = chosen.random()
    return {
        "run_id": f"resnet50-{number:08}", "number": 0, "attempt": 1, "source": "rank_0", "name": "loss",
        "type": "scalar", "num_points": 1, "stored": 0, "last": value, "last_number": value, "least": value,
        "least_step": 0, "greatest": value, "greatest_step": 0, "first_step": 0, "last_step": 0, "first_at": 0.0,
        "last_at": 0.0, "last_order": 1,
    }  # fmt: skip


def signed_in(workspace: Workspace, browser: Browser) -> Page:
    link = workspace.client.sign_in_link()
    page = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
    page.goto(f"{link.url}/portal/sign-in#link={link.link}&to=/portal/")
    page.wait_for_selector(".row.body")
    return page


def first_page(page: Page, url: str) -> float:
    """From a browser with only a session to rows on the screen."""
    page.context.new_cdp_session(page).send("Network.clearBrowserCache")
    page.goto("about:blank")
    began = time.perf_counter()
    page.goto(f"{url}/portal/", wait_until="commit")
    page.wait_for_selector(".row.body")
    return time.perf_counter() - began


def measure_filter(page: Page, url: str, number: int) -> float:
    page.goto(f"{url}/portal/")
    page.wait_for_selector(".row.body")
    found: float = page.evaluate(FILTERED, f"experiment-{number + 1} person-{number + 1}") / 1000
    return found


def metric_delays(workspace: Workspace, page: Page, url: str, rounds: int) -> list[float]:
    """From the call that logs a value to its figure in the page."""
    client = workspace.client
    run = client.submit(JobSpec(command=("sleep", "120")), python=sys.executable).id
    client.log_metrics(run, [MetricReport("loss", 1.0, 0)])
    page.goto(f"{url}/portal/runs/{run}?tab=metrics")
    page.wait_for_selector("[data-metric=loss] canvas")
    found = []
    for number in range(rounds):
        value = 1000 + number
        began = time.perf_counter()
        client.log_metrics(run, [MetricReport("loss", value, number + 1)])
        page.wait_for_function(
            "text => document.querySelector('[data-metric=loss] small').textContent.startsWith(text)", arg=f"{value:,}"
        )
        found.append(time.perf_counter() - began)
    client.cancel(run, force=True)
    return found


def cpu_of(workspace: Workspace, portals: int) -> float:
    """The share of a core that the server uses while a run logs ten times a second and `portals` tables are open."""
    client = workspace.client
    logging = "for n in range(250): Run.get_context().log('loss', 1 / (n + 1)); time.sleep(0.1)"
    script = f"import time\nfrom muster import Run\n{logging}"
    run = client.submit(JobSpec(command=(sys.executable, "-c", script)), python=sys.executable).id
    while client.run(run).status != "Running":
        time.sleep(0.1)
    ended = threading.Event()
    token, parts = client.create_token("bench").token, urlsplit(client.portal_url())
    threads = [threading.Thread(target=watch, args=(parts.netloc, token, ended)) for _ in range(portals)]
    for thread in threads:
        thread.start()
    server = psutil.Process(client.health().pid)
    time.sleep(3.0)
    before, began = server.cpu_times(), time.perf_counter()
    time.sleep(15.0)
    after, took_s = server.cpu_times(), time.perf_counter() - began
    ended.set()
    for thread in threads:
        thread.join()
    client.cancel(run, force=True)
    return 100.0 * (after.user + after.system - before.user - before.system) / took_s


def watch(host: str, token: str, ended: threading.Event) -> None:
    """The requests of an open table of runs."""
    connection, tag = HTTPConnection(host), ""
    ended.wait(random.random() * LIVE_S)
    while not ended.is_set():
        given = {"Authorization": f"Bearer {token}", **({"If-None-Match": tag} if tag else {})}
        connection.request("GET", "/api/v1/summaries?limit=100", headers=given)
        answer = connection.getresponse()
        body, tag = answer.read(), answer.headers["ETag"] or ""
        if answer.status == 200:
            json.loads(body)
        ended.wait(LIVE_S)
    connection.close()


if __name__ == "__main__":
    main()
