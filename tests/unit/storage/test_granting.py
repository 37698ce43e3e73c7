"""What a run is given is as narrow as the store can say it; signatures are those of the storage libraries."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from urllib.parse import parse_qsl

import pytest

from muster.errors import JobError
from muster.storage.granting import Asked, Terms, access_of, file_token
from muster.storage.grants import verify
from muster.storage.kinds import Credential, StoreSpec, make_store
from muster.storage.sas import Signer, is_narrow
from muster.wire.codec import Json, from_json, to_json
from muster.wire.data.access import READ, WRITE, Access, FileEntry

KEY = base64.b64encode(b"x" * 64).decode()
TERMS = Terms(b"k" * 32, 1_700_000_000.0, 3600.0)
BLOB = {"account": "acct", "container": "c"}


def blob(credential: dict[str, str], **options: Json) -> StoreSpec:
    return make_store("blob", "azure-blob", {**BLOB, **options}, credential)


def test_a_blob_signature_is_the_one_that_the_library_makes() -> None:
    azure = pytest.importorskip("azure.storage.blob")
    ours = dict(parse_qsl(Signer("blob", "acct", KEY, "c", TERMS.now, TERMS.expires_at).file("a/b c", READ)))
    start = datetime.strptime(ours["st"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    end = datetime.strptime(ours["se"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    theirs = azure.generate_blob_sas(
        "acct", "c", "a/b c", account_key=KEY, permission="r", start=start, expiry=end, protocol="https"
    )
    fields = dict(parse_qsl(theirs))
    assert {**fields, "sv": "", "sig": ""} == {**ours, "sv": "", "sig": ""}
    assert end.timestamp() == TERMS.expires_at


def test_a_signature_is_bound_to_a_subnet_as_the_library_does_it() -> None:
    azure = pytest.importorskip("azure.storage.blob")
    terms = Terms(b"k" * 32, TERMS.now, 3600.0, addresses="10.1.0.0-10.1.255.255")
    ours = file_token(blob({"account_key": KEY}), "a", READ, terms)
    signer = Signer("blob", "acct", KEY, "c", terms.now, terms.expires_at, addresses=terms.addresses)
    assert ours == signer.file("a", READ) and dict(parse_qsl(ours))["sip"] == "10.1.0.0-10.1.255.255"
    fields = dict(parse_qsl(ours))
    theirs = azure.generate_blob_sas(
        "acct", "c", "a", account_key=KEY, permission="r", start=fields["st"], expiry=fields["se"], protocol="https",
        ip=terms.addresses,
    )  # fmt: skip
    assert {**dict(parse_qsl(theirs)), "sv": "", "sig": ""} == {**fields, "sv": "", "sig": ""}
    assert fields["sig"] != dict(parse_qsl(file_token(blob({"account_key": KEY}), "a", READ, TERMS)))["sig"]


def test_a_file_signature_is_for_one_file() -> None:
    fields = dict(parse_qsl(Signer("file", "acct", KEY, "s", TERMS.now, TERMS.expires_at).file("a/b", WRITE)))
    assert (fields["sr"], fields["sp"], fields["spr"]) == ("f", "rcwd", "https")


def test_with_an_account_key_a_file_gets_a_signature_of_its_own() -> None:
    access = access_of(blob({"account_key": KEY}), Asked("a/x", READ, folder=False), TERMS)
    assert (access.kind, access.url) == ("azure-blob", "https://acct.blob.core.windows.net/c/a/x")
    fields = dict(parse_qsl(access.token))
    assert (fields["sr"], fields["sp"]) == ("b", "r")
    assert KEY not in str(to_json(access))


def test_a_folder_of_a_flat_container_is_signed_file_by_file() -> None:
    spec = blob({"account_key": KEY}, path="root")
    access = access_of(spec, Asked("a", WRITE), TERMS)
    assert access.per_file and not access.token and not access.manifest_by_reference
    assert access_of(spec, Asked("a", READ), TERMS).manifest_by_reference
    assert dict(parse_qsl(file_token(spec, "a/x", WRITE, TERMS)))["sp"] == "rcwd"
    assert access.url == "https://acct.blob.core.windows.net/c/root/a"


def test_a_folder_of_a_data_lake_has_one_signature() -> None:
    access = access_of(blob({"account_key": KEY}, hierarchical=True), Asked("a/b", READ), TERMS)
    fields = dict(parse_qsl(access.token))
    assert (fields["sr"], fields["sdd"], fields["sp"]) == ("d", "2", "rl")


def test_a_given_sas_is_handed_on_only_when_it_is_narrow() -> None:
    wide, narrow = "sv=1&sr=c&sp=rl&sig=x", "sv=1&sr=d&sp=rl&sig=x"
    assert access_of(blob({"sas": wide}), Asked("a", READ), TERMS).kind == "muster"
    assert access_of(blob({"sas": narrow}), Asked("a", READ), TERMS).kind == "muster"
    assert access_of(blob({"sas": narrow}), Asked("", READ), TERMS).token == narrow
    assert not is_narrow("sr=d&sp=rwl&sig=x", scope=READ, folder=True, whole_store=True)
    assert is_narrow("sr=b&sp=r&sig=x", scope=READ, folder=False, whole_store=True)


@pytest.mark.parametrize(
    "spec",
    [
        blob({"client_secret": "s"}, tenant_id="t", client_id="c"),
        blob({}, identity=True),
        make_store("s3", "fsspec", {"url": "s3://bucket"}, {"secret_options": {"key": "K", "secret": "S"}}),
        make_store("here", "local", {"path": "/data"}, {}),
    ],
)
def test_what_cannot_be_narrowed_goes_through_the_server_by_a_grant(spec: StoreSpec) -> None:
    access = access_of(spec, Asked("a", READ, subject="run/r/1"), TERMS)
    assert access.kind == "muster" and access.url == f"/api/v1/data/{spec.name}/a"
    grant = verify(access.token, TERMS.key, TERMS.now)
    assert (grant.store, grant.path, grant.scope, grant.subject) == (spec.name, "a", READ, "run/r/1")
    assert not access.options


def test_a_node_on_the_same_machine_reads_a_folder_itself() -> None:
    here = Terms(b"k", 0.0, 1.0, same_machine=True, own_folder="/w/store/data")
    local = make_store("here", "local", {"path": "/data"}, {})
    assert access_of(local, Asked("a"), here) == Access("file", "/data/a", label="azureml://datastores/here/paths/a")
    sealed = make_store("here", "local", {"path": "/data", "encrypted": True}, {})
    assert access_of(sealed, Asked("a"), here).kind == "muster"
    share = make_store("share", "nfs", {"path": "/mnt/x"}, {})
    assert access_of(share, Asked("a"), TERMS).url == "/mnt/x/a"


def test_an_access_travels_as_json() -> None:
    access = Access("azure-blob", "https://x", token="t", manifest=(FileEntry("a", 1, "f" * 64),), per_file=True)
    assert from_json(Access, to_json(access)) == access
    assert "token='t'" not in repr(access)


@pytest.mark.parametrize(
    ("kind", "options", "credential", "message"),
    [
        ("nowhere", {}, {}, "there is no kind of datastore"),
        ("local", {}, {}, "needs path"),
        ("local", {"path": "x"}, {}, "is not absolute"),
        ("local", {"path": "/x"}, {"sas": "sig=1"}, "takes no sas"),
        ("azure-blob", {"account": "a"}, {}, "needs container"),
        ("azure-blob", BLOB, {"sas": "no signature here"}, "the SAS has no signature"),
        ("azure-blob", BLOB, {"sas": "sig=1", "account_key": KEY}, "two credentials"),
        ("azure-blob", BLOB, {"account_key": "not base64"}, "the account key is not base64"),
        ("azure-blob", {**BLOB, "path": "../x"}, {}, "leaves its store"),
        ("fsspec", {"url": "s3://key:SECRET@bucket"}, {}, "holds a credential"),
        ("fsspec", {"url": "bucket"}, {}, "no address that fsspec knows"),
        ("fsspec", {"url": "s3://b", "options": {"secret": "x"}}, {}, "the option secret is a credential"),
        ("fsspec", {"url": "s3://b", "options": {"account_key": "x"}}, {}, "the option account_key is a credential"),
    ],
)
def test_a_datastore_that_cannot_work_is_refused(
    kind: str, options: dict[str, Json], credential: dict[str, str], message: str
) -> None:
    with pytest.raises(JobError, match=message) as caught:
        make_store("name", kind, options, credential)
    assert caught.value.hint
    assert "SECRET" not in str(caught.value)


def test_a_pasted_sas_is_taken_with_what_people_paste_around_it() -> None:
    for text in ("?sv=1&sig=x", " sv=1&sig=x\n", "https://acct.blob.core.windows.net/c?sv=1&sig=x"):
        assert blob({"sas": text}).credential == Credential(sas="sv=1&sig=x")
    assert "sig=x" not in repr(blob({"sas": "sig=x"}))
