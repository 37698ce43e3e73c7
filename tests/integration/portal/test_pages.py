"""The portal in a real browser, with real runs."""

from __future__ import annotations

import re
import time

from playwright.sync_api import Route, expect
from tests.conftest import wait_until
from tests.integration.portal.conftest import SCRIPT_TAG, Portal
from tests.integration.storage.test_fileservers import require_nfs

from muster.wire.codec import to_json
from muster.wire.queue_jobs import JobUsage, QueueJob

ESCAPE = "\033]0;title\007\033[2J\033[31mred\033[0m"


def test_a_job_is_seen_while_it_runs(portal: Portal) -> None:
    page = portal.page("/")
    expect(page.get_by_text("No runs.")).to_be_visible()
    run = portal.train(steps=10_000, wait_s=0.1, name="watched")
    # The table shows it without being asked again.
    page.get_by_role("link", name="watched").click()
    expect(page.get_by_role("heading", name="watched")).to_be_visible()
    page.get_by_role("tab", name="Logs").click()
    expect(page.locator(".line", has_text="of 10000").last).to_be_visible()
    assert page.locator(".line .a-green").first.inner_text().startswith("step")
    page.get_by_role("tab", name="Metrics").click()
    legend = page.locator("[data-metric=loss] small")
    expect(legend).to_be_visible()
    before = legend.inner_text()
    wait_until(lambda: legend.inner_text() != before, what="a further point in the chart")
    expect(page.locator("[data-metric=loss] canvas")).to_be_visible()
    expect(page.get_by_role("progressbar")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel it").click()
    expect(page.locator(".head .status")).to_have_text("Canceled")
    assert portal.site.view(run)["status"] == "Canceled"


def test_the_chosen_stretch_of_a_chart_stays_while_points_come(portal: Portal) -> None:
    run = portal.train(steps=20_000, wait_s=0.05)
    page = portal.page(f"/runs/{run}?tab=metrics")
    over = page.locator("[data-metric=loss] .u-over")
    over.wait_for()
    box = over.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 60, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 160, box["y"] + 60, steps=5)
    page.mouse.up()
    axis = page.locator("[data-metric=loss] canvas")
    zoomed = axis.evaluate("canvas => canvas.toDataURL()")
    value = page.locator("[data-metric=loss] small")
    before = value.inner_text()
    wait_until(lambda: value.inner_text() != before, what="a further point")
    page.mouse.move(5, 5)
    assert axis.evaluate("canvas => canvas.toDataURL()") == zoomed
    portal.site.client.cancel(run, force=True)


def test_every_part_of_a_run_that_failed(portal: Portal) -> None:
    code = portal.site.folder / "bad"
    code.mkdir()
    (code / "bad.py").write_text("print('begin')\nraise ValueError('the rate is too high')\n")
    run = portal.site.run(code=str(code), command="python bad.py", experiment_name="bad")
    portal.site.wait(run)
    page = portal.page(f"/runs/{run}")
    expect(page.get_by_label("Verdict")).to_contain_text("the rate is too high")
    expect(page.locator(".story")).to_contain_text("Failed")
    expect(page.locator(".rank.failed")).to_contain_text("exit 1")
    page.get_by_role("tab", name="Logs").click()
    page.get_by_role("button", name="First error").click()
    expect(page.locator(".line.hit")).to_contain_text("Traceback")
    page.get_by_role("tab", name="Code").click()
    page.get_by_role("button", name="bad.py").click()
    expect(page.locator("pre.text")).to_contain_text("raise ValueError")
    page.get_by_role("tab", name="Job").click()
    expect(page.get_by_text("command: python bad.py")).to_be_visible()
    expect(page.get_by_text(f"muster rerun {run}")).to_be_visible()


def test_a_run_shows_its_job_in_the_queue_of_slurm_and_ray(portal: Portal) -> None:
    run_id = portal.train(steps=1)
    portal.site.wait(run_id)
    usage = JobUsage("COMPLETED", "0:0", 62.0, 58.0, 1_200_000_000, 3400.0)
    job = QueueJob(
        "4711", state="PENDING", reason="Resources", partition="gpu", account="lab", qos="night", nodes="n[1-2]",
        starts_at=time.time() + 7200, link="http://10.0.0.1:8265", usage=usage,
    )  # fmt: skip

    def with_job(route: Route) -> None:
        answer = route.fetch()
        view = answer.json()
        view["attempts"][-1] |= {"job_id": job.id, "queue_job": to_json(job)}
        route.fulfill(response=answer, json=view)

    page = portal.page()
    page.route(f"**/api/v1/runs/{run_id}", with_job)
    page.goto(f"{portal.url}/portal/runs/{run_id}")
    for text in ("4711", "PENDING (Resources), partition gpu, account lab, QOS night", "n[1-2]",
                 "1.20 GB of memory at most, 3.4 kJ, COMPLETED with exit code 0:0"):  # fmt: skip
        expect(page.get_by_text(text)).to_be_visible()
    expect(page.get_by_role("link", name="http://10.0.0.1:8265")).to_have_attribute("href", "http://10.0.0.1:8265")
    page.context.close()


def test_runs_are_compared_and_filtered(portal: Portal) -> None:
    runs = [portal.train(rate=rate, experiment_name="sweep", name=f"rate-{rate}") for rate in (0.1, 0.2, 0.4)]
    for run in runs:
        portal.site.wait(run)
    page = portal.page("/?experiment=sweep")
    expect(page.get_by_text("3 runs")).to_be_visible()
    page.get_by_role("searchbox", name="Search runs").fill("rate-0.2")
    expect(page.get_by_text("1 run", exact=True)).to_be_visible()
    assert "text=rate-0.2" in page.url
    page.get_by_role("button", name="Clear").click()
    page.goto(f"{portal.url}/portal/?experiment=sweep&cols=m:best:loss,m:last:loss&sort=m:best:loss&up=1")
    names = page.locator(".row.body .name")
    expect(names).to_have_count(3)
    assert [text.split()[0] for text in names.all_inner_texts()] == ["rate-0.4", "rate-0.2", "rate-0.1"]
    page.get_by_label("All loaded runs").check()
    page.get_by_role("button", name="Tag", exact=True).click()
    page.get_by_label("NAME=VALUE").fill("team=vision")
    page.get_by_role("dialog").get_by_role("button", name="Tag").click()
    expect(page.get_by_text("3 runs tagged")).to_be_visible()
    assert portal.site.view(runs[0])["tags"]["team"] == "vision"
    page.get_by_label("All loaded runs").check()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="Compare 3 runs")).to_be_visible()
    expect(page.locator("td.differs").first).to_be_visible()
    expect(page.locator("[data-metric=loss] canvas")).to_be_visible()


def test_files_tables_and_the_other_pages(portal: Portal) -> None:
    run = portal.train(steps=3, name="with-files")
    portal.site.wait(run)
    page = portal.page(f"/runs/{run}?tab=files")
    page.get_by_role("button", name="outputs/table.csv").click()
    expect(page.locator("td", has_text="<b>bold</b>")).to_be_visible()
    portal.site.client.create_cluster("kept", options={"min_nodes": 1, "max_nodes": 1})
    page.goto(f"{portal.url}/portal/clusters")
    expect(page.get_by_role("heading", name="local local")).to_be_visible()
    expect(page.locator(".use canvas").first).to_be_visible()
    page.get_by_label("Stretch of time for local").select_option("last 7 days")
    expect(page.locator(".use", has_text="busy nodes").first).to_be_visible()
    page.locator("section", has_text="kept").get_by_role("button", name="Cordon").click()
    expect(page.get_by_text("cordoned: by hand")).to_be_visible()
    page.get_by_role("button", name="Uncordon").click()
    expect(page.get_by_text("cordoned: by hand")).to_be_hidden()
    portal.site.client.delete_cluster("kept", "now")
    page.goto(f"{portal.url}/portal/data")
    page.get_by_role("link", name="workspaceblobstore").click()
    expect(page.get_by_role("heading", name="Data / workspaceblobstore")).to_be_visible()
    for path, title in (("models", "Models"), ("environments", "Environments"), ("people", "People")):
        page.goto(f"{portal.url}/portal/{path}")
        expect(page.get_by_role("heading", name=title)).to_be_visible()
    page.goto(f"{portal.url}/portal/people?tab=audit")
    expect(page.get_by_text("signed in with a link").first).to_be_visible()


def test_a_notebook_or_picture_that_is_none_is_said_to_be_none(portal: Portal) -> None:
    code = portal.site.folder / "odd"
    code.mkdir()
    odd = {"cells.ipynb": '{"cells": 5}', "outputs.ipynb": '{"cells": [{"source": 7, "outputs": 7}]}', "x.png": "<p>"}
    (code / "run.py").write_text(
        f"import os\nos.makedirs('outputs', exist_ok=True)\nfor name, text in {odd!r}.items():\n"
        "    open('outputs/' + name, 'w').write(text)\n"
    )
    run = portal.site.run(code=str(code), command="python run.py")
    portal.site.wait(run)
    page = portal.page(f"/runs/{run}?tab=files")
    preview = page.locator(".preview")
    for name, said in (("cells.ipynb", "cannot be read"), ("outputs.ipynb", "7"), ("x.png", "cannot show this image")):
        page.get_by_role("button", name=name).click()
        expect(preview).to_contain_text(said)
    assert portal.trouble == []


def test_models_show_stage_alias_and_format(portal: Portal) -> None:
    file = portal.site.folder / "net.onnx"
    file.write_bytes(b"\x08\x08")
    registered = portal.muster("model", "register", "net", "--path", str(file), "--alias", "champion")
    assert registered.returncode == 0, registered.stderr
    assert portal.muster("model", "promote", "net:1", "--stage", "Staging").returncode == 0
    page = portal.page("/models")
    row = page.locator("tbody tr").first
    for text in ("Staging", "@champion", "2 B"):
        expect(row).to_contain_text(text)
    # On a phone the table is scrolled sideways; words are not cut into letters.
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert row.locator("td", has_text="Staging").evaluate("cell => cell.clientHeight") < 60


def test_a_model_is_looked_into_and_promoted(portal: Portal) -> None:
    run = portal.train(3)
    portal.site.wait(run)
    for _ in range(2):
        registered = portal.muster("model", "register", "scores", "--path", f"runs:/{run}/outputs/table.csv")
        assert registered.returncode == 0, registered.stderr
    page = portal.page("/models/scores?version=1")
    expect(page.locator("main")).to_contain_text("loss")
    expect(page.get_by_role("link", name=run).first).to_be_visible()
    expect(page.get_by_role("cell", name="<b>bold</b>")).to_be_visible()
    page.get_by_label("New alias").fill("champion")
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_role("button", name="Remove @champion")).to_be_visible()
    page.get_by_label("Stage").select_option("Production")
    expect(page.get_by_role("row", name="@champion")).to_contain_text("Production")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator("h1")).to_contain_text("version 2")
    assert portal.trouble == []


def test_an_invitation_is_the_line_that_a_colleague_types(portal: Portal) -> None:
    assert portal.muster("user", "add", "ada").returncode == 0
    page = portal.page("/people")
    page.get_by_role("row", name="ada").get_by_role("button", name="Invite").click()
    line = page.get_by_role("dialog").locator("code").inner_text()
    assert re.fullmatch(rf"muster login '{re.escape(portal.url)}/#muster_invite_[\w-]+'", line), line


def test_a_job_is_planned_and_run_from_the_page(portal: Portal) -> None:
    page = portal.page("/submit")
    job = page.get_by_label("Job file")
    job.fill("command: echo hello\nfoo: 1\n")
    page.get_by_role("button", name="See the plan").click()
    expect(page.get_by_role("alert")).to_contain_text("job.yml:2")
    job.fill("command: echo hello from rank $RANK\ndistribution:\n  type: pytorch\n  process_count_per_instance: 2\n")
    page.get_by_role("button", name="See the plan").click()
    expect(page.get_by_label("Plan", exact=True)).to_contain_text("rank 1")
    page.get_by_role("button", name="Run it").click()
    expect(page.locator(".head .status")).to_have_text("Completed")
    page.get_by_role("tab", name="Logs").click()
    expect(page.get_by_text("hello from rank 1")).to_be_visible()
    page.get_by_role("button", name="Run again").click()
    expect(page.get_by_label("Job file")).to_have_value(re.compile("hello from rank"))


def test_what_people_give_is_only_ever_text(portal: Portal) -> None:
    code = portal.site.folder / "hostile"
    code.mkdir()
    (code / "run.py").write_text(
        "import os\nfrom muster import Run\nrun = Run.get_context()\n"
        f"text = {SCRIPT_TAG!r}\nrun.log(text[:60], 1.0, step=0)\nrun.log('plain', 1.0, step=0)\n"
        f"print(text)\nprint({ESCAPE!r})\n"
        "os.makedirs('outputs', exist_ok=True)\n"
        "open('outputs/<img src=x onerror=window.hacked=1>.html', 'w').write(text)\n"
        "raise ValueError(text)\n"
    )
    run = portal.site.run(
        code=str(code), command="python run.py", display_name=SCRIPT_TAG, experiment_name=SCRIPT_TAG,
        description=SCRIPT_TAG, tags={SCRIPT_TAG: SCRIPT_TAG},
    )  # fmt: skip
    portal.site.wait(run)
    page = portal.page("/")
    expect(page.locator(".row.body .name", has_text="<script>").first).to_be_visible()
    for tab in ("overview", "logs", "metrics", "files", "code", "job"):
        page.goto(f"{portal.url}/portal/runs/{run}?tab={tab}")
        expect(page.get_by_role("heading", name="<script>").first).to_be_visible()
        page.wait_for_load_state("networkidle") if tab in ("code", "job") else None
    page.goto(f"{portal.url}/portal/runs/{run}?tab=logs")
    expect(page.locator(".line", has_text="red").last).to_be_visible()
    lines = page.locator(".line").all_inner_texts()
    assert SCRIPT_TAG in lines
    assert "red" in lines
    page.goto(f"{portal.url}/portal/compare?run={run}&run={run}")
    assert page.evaluate("window.hacked") is None
    # A file of a run, opened by itself, is no page of this server.
    answer = page.request.get(
        f"{portal.url}/api/v1/runs/{run}/files/outputs/%3Cimg%20src=x%20onerror=window.hacked=1%3E.html"
    )
    assert answer.ok
    assert answer.headers["content-type"] == "application/octet-stream"
    assert "sandbox" in answer.headers["content-security-policy"]


def test_a_broken_connection_is_said_and_mended(portal: Portal) -> None:
    run = portal.train(steps=20_000, wait_s=0.05, name="long")
    page = portal.page(f"/runs/{run}?tab=logs")
    expect(page.locator(".line", has_text="of 20000").last).to_be_visible()
    table = portal.page("/")
    expect(table.get_by_role("link", name="long")).to_be_visible()
    portal.site.server().kill()
    expect(table.locator(".lost")).to_be_visible()
    # The same port again, so that pages find it.
    portal.site.client.health()
    expect(table.locator(".lost")).to_be_hidden()
    count = page.locator(".line").count()
    assert count > 0
    last = page.locator(".line").last.inner_text()
    wait_until(lambda: page.locator(".line").last.inner_text() != last, 40.0, "lines after the server was gone")
    portal.site.client.cancel(run, force=True)


def test_an_endpoint_is_asked_from_its_page_and_its_traffic_changed(portal: Portal) -> None:
    folder = portal.site.folder
    (folder / "scoring").mkdir()
    (folder / "scoring" / "score.py").write_text(
        "import json\n\ndef init():\n    pass\n\ndef run(data):\n"
        "    return {'twice': 2 * json.loads(data)['x'], 'said': '<b>bold</b>'}\n"
    )
    (folder / "blue.yml").write_text(
        "name: blue\nendpoint_name: digits\ncode_configuration: {code: scoring, scoring_script: score.py}\n"
    )
    made = portal.muster("endpoint", "create", "digits")
    assert made.returncode == 0, made.stderr
    deployed = portal.muster("endpoint", "deploy", "-f", "blue.yml", "--all-traffic")
    assert deployed.returncode == 0, deployed.stderr + deployed.stdout
    page = portal.page("/endpoints")
    page.get_by_role("link", name="digits").click()
    expect(page.get_by_role("heading", name="Endpoints / digits")).to_be_visible()
    page.get_by_label("Request").fill('{"x": 21}')
    page.get_by_role("button", name="Send").click()
    answer = page.get_by_label("Answer")
    expect(answer).to_contain_text("HTTP 200")
    expect(answer).to_contain_text('"twice": 42')
    expect(answer).to_contain_text("<b>bold</b>")
    page.get_by_label("Request").fill("nonsense")
    page.get_by_role("button", name="Send").click()
    expect(answer).to_contain_text("HTTP 424")
    page.get_by_role("button", name="Change the traffic").click()
    page.get_by_label("Traffic of blue").fill("50")
    expect(page.get_by_role("button", name="Save")).to_be_disabled()
    page.get_by_label("Traffic of blue").fill("0")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("tbody tr").first).to_contain_text("0 %")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert portal.muster("endpoint", "delete", "digits", "--yes").returncode == 0
    assert portal.trouble == []


def test_a_batch_endpoint_scores_data_from_its_page(portal: Portal) -> None:
    folder = portal.site.folder
    (folder / "batch").mkdir()
    (folder / "batch" / "score.py").write_text("def run(mini_batch):\n    return ['seen' for _ in mini_batch]\n")
    for name in ("first", "second"):
        (folder / f"{name}.yml").write_text(
            f"name: {name}\nendpoint_name: nightly\ncode_configuration: {{code: batch, scoring_script: score.py}}\n"
        )
    assert portal.muster("batch-endpoint", "create", "nightly").returncode == 0
    for name in ("first", "second"):
        assert portal.muster("batch-endpoint", "deploy", "-f", f"{name}.yml").returncode == 0
    page = portal.page("/endpoints")
    page.get_by_role("link", name="nightly").click()
    expect(page.get_by_role("heading", name="Endpoints / nightly")).to_be_visible()
    page.get_by_role("button", name="Make it the default").click()
    row = page.locator("tbody tr", has_text="second")
    expect(row.locator("td").last).to_have_text("default")
    page.get_by_label("Data").fill(str(folder / "batch"))
    page.get_by_role("button", name="Score").click()
    page.get_by_role("status").get_by_role("link").click()
    expect(page.locator("h1")).to_contain_text("nightly-second")
    assert portal.muster("batch-endpoint", "delete", "nightly", "--yes").returncode == 0
    assert portal.trouble == []


def test_a_file_server_is_filled_and_deleted_from_its_page(portal: Portal) -> None:
    require_nfs()
    folder = portal.site.folder
    (folder / "images").mkdir()
    (folder / "images" / "a.txt").write_text("one")
    address = "azureml://datastores/workspaceblobstore/paths/set"
    assert portal.muster("data", "upload", "images", address).returncode == 0
    made = portal.muster("fileserver", "create", "pictures", "--size", "1GB", "--folder", str(folder / "served"))
    assert made.returncode == 0, made.stderr
    page = portal.page("/fileservers")
    page.get_by_role("link", name="pictures").click()
    expect(page.get_by_role("heading", name="File servers / pictures")).to_be_visible()
    expect(page.get_by_text("nfs://127.0.0.1:")).to_be_visible()
    page.get_by_label("Source").fill("./images")
    page.get_by_role("button", name="Fill").click()
    expect(page.get_by_text("is no address of a datastore")).to_be_visible()
    page.get_by_label("Source").fill(address)
    page.get_by_label("To").fill("train")
    page.get_by_role("button", name="Fill").click()
    expect(page.locator("tbody tr")).to_contain_text("filled", timeout=30_000)
    assert (folder / "served" / "data" / "train" / "a.txt").read_text() == "one"
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("muster fileserver create NAME --size SIZE")).to_be_visible(timeout=30_000)
    assert not (folder / "served").exists()
    assert portal.trouble == []


def test_receivers_are_added_tested_and_removed(portal: Portal) -> None:
    page = portal.page("/people?tab=receivers")
    expect(page.get_by_text("No receivers yet")).to_be_visible()
    page.get_by_role("button", name="Add a receiver").click()
    page.get_by_role("textbox", name="Name").fill("hook")
    page.get_by_role("textbox", name="Address").fill("http://127.0.0.1:9/me")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_text("It is shown only once")).to_be_visible()
    page.get_by_role("button", name="Done").click()
    row = page.locator("tbody tr", has_text="hook")
    row.get_by_role("button", name="Test").click()
    expect(page.get_by_text("hook did not take it")).to_be_visible()
    row.get_by_role("button", name="Remove").click()
    expect(page.get_by_text("No receivers yet")).to_be_visible()
    assert portal.trouble == []
