"""Batch deployments of Azure ML: newer and older files, and errors that name the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import JobError
from muster.job.endpoints.batch_deployment import read_batch_deployment


def written(folder: Path, text: str) -> Path:
    (folder / "src").mkdir(exist_ok=True)
    (folder / "src" / "score.py").write_text("")
    file = folder / "deployment.yml"
    file.write_text(text)
    return file


CODE = "code_configuration: {code: src, scoring_script: score.py}\n"
SETTINGS = (
    "mini_batch_size: '4'\n{0}max_concurrency_per_instance: 2\n{0}retry_settings: {{max_retries: 1, timeout: 9}}\n"
)


@pytest.mark.parametrize("text", ["settings:\n  " + SETTINGS.format("  "), SETTINGS.format("")])
def test_settings_stand_below_their_key_or_at_the_root(tmp_path: Path, text: str) -> None:
    head = f"name: one\nendpoint_name: scores\nmodel: azureml:net:1\nresources: {{instance_count: 3}}\n{CODE}"
    found = read_batch_deployment(written(tmp_path, head + text))
    settings = found.settings
    assert (found.model, found.nodes, found.procs, settings.mini_batch_size) == ("azureml:net:1", 3, 2, 4)
    assert (settings.max_retries, settings.timeout_s, settings.error_threshold) == (1, 9.0, -1)
    assert (settings.script, settings.format, found.code) == ("score.py", "files", tmp_path / "src")


def test_what_is_absent_is_as_azure_ml_has_it(tmp_path: Path) -> None:
    found = read_batch_deployment(written(tmp_path, f"name: one\n{CODE}"))
    settings = found.settings
    assert (settings.mini_batch_size, settings.max_retries, settings.timeout_s) == (10, 3, 30.0)
    assert (settings.output_action, settings.output_file) == ("append_row", "predictions.csv")


def test_a_model_without_a_script_reads_tables(tmp_path: Path) -> None:
    found = read_batch_deployment(written(tmp_path, "name: one\nmodel: {path: m}\n"))
    assert (found.settings.format, found.settings.mini_batch_size) == ("", 0)
    assert (found.model, found.code, found.settings.script) == (str(tmp_path / "m"), None, "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("type: pipeline\n", "cannot be scored"),
        ("code_configuration: {code: src}\n", "scoring_script is missing"),
        ("code_configuration: {code: src, scoring_script: no.py}\n", "no script"),
        ("settings: {mini_batch_size: 0}\n", "mini_batch_size"),
        ("settings: {output_action: shout}\n", "not allowed"),
        ("settings: {mini_batch_siz: 4}\n", "a batch deployment has no key 'settings.mini_batch_siz'"),
        ("settings: {retry_settings: {retries: 4}}\n", "no key 'settings.retry_settings.retries'"),
        ("retry_settings: {retries: 4}\n", "no key 'retry_settings.retries'"),
        ("resources: {instances: 4}\n", "no key 'resources.instances'"),
        ("modle: x\n", "deployment.yml:1: a batch deployment has no key 'modle'"),
        ("model: {name: x}\n", "no path"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(JobError, match=said):
        read_batch_deployment(written(tmp_path, text))
