"""Files of data assets and datastores, in the shapes of public ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import JobError
from muster.job.assets.data import read_data_file
from muster.job.assets.datastore import datastore_of, read_datastore_file

ASSETS = Path(__file__).parents[3] / "corpus" / "assets"


def test_data_of_this_machine() -> None:
    said = read_data_file(ASSETS / "data_file.yml")
    assert (said.name, said.type, said.version, said.tags) == ("flowers-file", "uri_file", None, {"origin": "made"})
    assert Path(said.path).is_file()


def test_data_in_the_words_of_the_preview() -> None:
    said = read_data_file(ASSETS / "data_folder_older.yml")
    assert (said.name, said.version) == ("flowers-folder", "1") and Path(said.path).is_dir()


def test_data_at_an_address(tmp_path: Path) -> None:
    file = tmp_path / "data.yml"
    file.write_text("name: a\npath: azureml://datastores/blob/paths/a\n")
    assert read_data_file(file, "b").path == "azureml://datastores/blob/paths/a"
    file.write_text("name: a\ntype: table\npath: x\n")
    with pytest.raises(JobError, match="'table' is not allowed"):
        read_data_file(file)


def test_a_container_with_its_key() -> None:
    said = read_datastore_file(ASSETS / "blob.yml")
    assert (said.name, said.kind) == ("flower_blobs", "azure-blob")
    assert said.options == {"account": "flowersblobs", "container": "pictures"}
    assert list(said.credential) == ["account_key"]


def test_a_container_without_a_credential_and_a_protocol_of_hadoop() -> None:
    said = read_datastore_file(ASSETS / "blob_open.yml")
    assert said.options == {"account": "flowersblobs", "container": "pictures"} and not said.credential


def test_a_share_and_a_lake() -> None:
    share = read_datastore_file(ASSETS / "share.yml")
    assert share.kind == "azure-file" and share.options["share"] == "garden" and list(share.credential) == ["sas"]
    lake = read_datastore_file(ASSETS / "lake.yml")
    assert lake.kind == "azure-blob" and lake.options["hierarchical"] is True and "identity" not in lake.options
    assert lake.credential == {"client_secret": "secret"} and "client_secret" not in lake.options


def test_another_cloud() -> None:
    values = {"type": "azure_blob", "name": "a", "account_name": "acc", "container_name": "c", "endpoint": "core.x.cn"}
    assert datastore_of("here", values).options["endpoint"] == "https://acc.blob.core.x.cn"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"type": "azure_data_lake_gen1", "name": "a"}, "ended this kind of storage"),
        ({"type": "one_lake", "name": "a"}, "OneLake"),
        ({"type": "tape", "name": "a"}, "'tape' is not allowed"),
        ({"name": "a"}, "type: is missing"),
        ({"type": "azure_blob", "name": "a", "account_name": "b"}, "`container_name` is missing"),
        (
            {
                "type": "azure_blob",
                "name": "a",
                "account_name": "b",
                "container_name": "c",
                "credentials": {"certificate": "x"},
            },
            "certificates open no storage",
        ),
    ],
)
def test_what_is_not_there_is_refused_by_name(values: dict[str, object], said: str) -> None:
    with pytest.raises(JobError, match=said) as caught:
        datastore_of("here", values)  # type: ignore[arg-type]
    assert caught.value.hint
