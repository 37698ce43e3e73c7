"""Files of v2 read by a script: what they say, relative to where they lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster import ml
from muster.errors import JobError
from muster.ml.entities import (
    AccountKeyConfiguration,
    AzureBlobDatastore,
    AzureDataLakeGen2Datastore,
    AzureFileDatastore,
    KubernetesOnlineDeployment,
    ModelBatchDeployment,
    SasTokenConfiguration,
    ServicePrincipalConfiguration,
)

ASSETS = Path(__file__).parents[2] / "corpus" / "assets"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts are started from another folder than that of their files."""
    monkeypatch.chdir(tmp_path)


def test_endpoints_and_deployments() -> None:
    endpoint = ml.load_online_endpoint(ASSETS / "online_endpoint.yml", params_override=[{"name": "other"}])
    assert endpoint.said().name == "other"
    said = ml.load_online_deployment(ASSETS / "online_deployment.yml").said()
    assert said.script is not None and said.script.name == "score.py" and said.code == ASSETS / "src"
    assert said.model is not None and Path(said.model).is_dir()
    batch = ml.load_batch_deployment(ASSETS / "batch_deployment.yml")
    assert isinstance(batch, ModelBatchDeployment) and batch.said().name == "own-script"
    assert ml.load_batch_endpoint(ASSETS / "batch_endpoint.yml").said().name == "petals-nightly"


def test_what_was_read_can_be_changed() -> None:
    deployment = ml.load_online_deployment(ASSETS / "online_deployment.yml", params_override=[{"type": "kubernetes"}])
    assert isinstance(deployment, KubernetesOnlineDeployment)
    deployment.instance_count = 3
    assert deployment.said().scaling.least == 3


def test_a_key_that_is_wrong_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "endpoint.yml"
    file.write_text("name: good\nauth_mode: password\n")
    with pytest.raises(JobError, match=r"endpoint\.yml.*auth_mode"):
        ml.load_online_endpoint(file).said()


def test_datastores() -> None:
    kinds = {name: type(ml.load_datastore(ASSETS / f"{name}.yml")) for name in ("blob", "share", "lake")}
    assert kinds == {"blob": AzureBlobDatastore, "share": AzureFileDatastore, "lake": AzureDataLakeGen2Datastore}
    with pytest.raises(JobError, match="ended this kind of storage"):
        ml.load_datastore(ASSETS / "lake_first.yml")


def test_datastores_made_in_a_script_say_what_files_say() -> None:
    key = AccountKeyConfiguration(account_key="k")
    blob = AzureBlobDatastore(name="a", account_name="b", container_name="c", credentials=key, protocol="https")
    assert blob.said().credential == {"account_key": "k"}
    share = AzureFileDatastore(
        name="a", account_name="b", file_share_name="s", credentials=SasTokenConfiguration(sas_token="t")
    )
    assert share.said().options["share"] == "s" and share.said().credential == {"sas": "t"}
    principal = ServicePrincipalConfiguration(tenant_id="t", client_id="i", client_secret="s")
    lake = AzureDataLakeGen2Datastore(name="a", account_name="b", filesystem="f", credentials=principal)
    assert lake.said().options["tenant_id"] == "t" and lake.said().credential == {"client_secret": "s"}


def test_data() -> None:
    data = ml.load_data(ASSETS / "data_file.yml")
    assert (data.name, data.type) == ("flowers-file", "uri_file") and Path(data.path).is_file()
