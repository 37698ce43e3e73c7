"""Every spelling of an address means one location; what is none, or holds a credential, is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import JobError
from muster.storage.addresses import Location, parse_address, safe_path

BLOB = Location("azure-blob", "a/b", "c", account="acct", endpoint="https://acct.blob.core.windows.net")


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("azureml://datastores/blob/paths/a/b", Location("datastore", "a/b", "blob")),
        ("azureml://datastores/blob/paths/", Location("datastore", "", "blob")),
        ("azureml://datastores/blob", Location("datastore", "", "blob")),
        ("azureml://datastores/blob/paths/a%20b", Location("datastore", "a b", "blob")),
        (
            "azureml://subscriptions/s/resourcegroups/r/workspaces/w/datastores/blob/paths/x",
            Location("datastore", "x", "blob"),
        ),
        ("azureml:images:3", Location("asset", store="images", version="3")),
        ("azureml:images@latest", Location("asset", store="images")),
        ("azureml:images", Location("asset", store="images")),
        ("azureml://data/images/versions/3", Location("asset", store="images", version="3")),
        ("wasbs://c@acct.blob.core.windows.net/a/b", BLOB),
        ("abfss://c@acct.dfs.core.windows.net/a/b/", BLOB),
        ("https://acct.blob.core.windows.net/c/a/b", BLOB),
        ("https://host/data.zip", Location("http", url="https://host/data.zip")),
        ("http://127.0.0.1:9/x?y=1", Location("http", url="http://127.0.0.1:9/x?y=1")),
        ("s3://bucket/key", Location("fsspec", url="s3://bucket/key")),
        ("file:///data/x%20y", Location("local", "/data/x y")),
        ("file:/data", Location("local", "/data")),
        ("data/train", Location("local", "data/train")),
        ("/data", Location("local", "/data")),
    ],
)
def test_every_spelling_means_one_location(text: str, location: Location) -> None:
    assert parse_address(text) == location


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "azureml://nowhere/x",
        "azureml:a@newest",
        "azureml:a b",
        "azureml://datastores/x/paths/../y",
        "azureml://datastores/x/paths/a/%2e%2e/%2e%2e/etc",
        "azureml://datastores/x/paths/a//b",
        "wasbs://acct.blob.core.windows.net/x",
        "wasbs://c@elsewhere/x",
        "file://host/x",
        "https:///x",
    ],
)
def test_what_is_no_address_is_refused_with_a_way_to_write_one(text: str) -> None:
    with pytest.raises(JobError) as caught:
        parse_address(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "https://acct.blob.core.windows.net/c/x?sv=2020&sig=SECRETSECRET",
        "https://bucket.s3.amazonaws.com/x?X-Amz-Signature=SECRETSECRET",
        "https://user:SECRETSECRET@host/x",
        "sftp://user:SECRETSECRET@host/x",
    ],
)
def test_an_address_that_holds_a_credential_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(JobError) as caught:
        parse_address(text)
    assert "SECRET" not in str(caught.value)
    assert "datastore" in caught.value.hint


@pytest.mark.parametrize("store, path", [("blob", "a/b c"), ("x", ""), ("x", "ü/%")])
def test_a_location_reads_as_an_address_that_means_it_again(store: str, path: str) -> None:
    location = Location("datastore", path, store)
    assert parse_address(str(location)) == location


@given(st.text(max_size=40))
def test_any_text_is_a_location_or_refused(text: str) -> None:
    try:
        found = parse_address(text)
    except JobError:
        return
    if found.kind == "datastore":
        assert ".." not in found.path.split("/")


@given(st.text(alphabet="ab./\\\0", max_size=12))
def test_a_safe_path_never_leaves_its_store(text: str) -> None:
    try:
        path = safe_path(text)
    except JobError:
        return
    assert not path.startswith("/")
    assert ".." not in path.split("/")
    assert "\0" not in path
