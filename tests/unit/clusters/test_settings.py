"""What can be said of a cluster: settings, files, sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.clusters.file import load_cluster_file, parse_cluster
from muster.clusters.file_server import parse_file_server
from muster.clusters.options import mount_notices, parse_options
from muster.clusters.sizes import catalogue, find_size, nearest
from muster.errors import JobError, NotFound

AZURE = """
$schema: https://azuremlschemas.azureedge.net/latest/amlCompute.schema.json
name: low-pri-example
type: amlcompute
size: STANDARD_NC24rs_v3
min_instances: 0
max_instances: 2
idle_time_before_scale_down: 120
tier: low_priority
location: westus
network_settings: {vnet_name: net, subnet: gpus}
"""


def test_a_compute_file_of_azure_ml_is_a_cluster(tmp_path: Path):
    path = tmp_path / "cluster.yml"
    path.write_text(AZURE)
    found = load_cluster_file(path)
    assert (found.name, found.engine) == ("low-pri-example", "local")
    options = parse_options(found.options)
    assert (options.min_nodes, options.max_nodes, options.idle_seconds_before_scaledown) == (0, 2, 120)
    assert (options.vm_priority, options.vnet, options.subnet) == ("lowpriority", "net", "gpus")
    assert options.hourly_price is None, "list prices are those of dedicated machines"
    assert found.notices == [
        "$schema names an editor's schema and is not used",
        "location names a region of Azure and is not used",
    ]


def test_settings_of_musters_own():
    found = parse_cluster({"name": "c", "setup": "true", "cpus": 2, "quotas": {"per_user": {"nodes": 1}}})
    options = parse_options(found.options)
    assert (options.setup, options.cpus, options.quotas.per_user.nodes) == ("true", 2, 1)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"max_nodes": 0}, "max_nodes"),
        ({"min_nodes": 3, "max_nodes": 2}, "min_nodes 3 is more than max_nodes 2"),
        ({"vm_priority": "spot"}, "vm_priority"),
        ({"size": "a", "vm_size": "b"}, "gives both size and vm_size"),
        ({"type": "computeinstance"}, "not a cluster"),
        ({"quotas": {"per_team": {}}}, "quotas.per_team: unknown key"),
        ({"max_nodes": "abc"}, "max_nodes: 'abc' is not a whole number"),
        ({"max_nodes": 0}, "max_nodes: 0 is out of range; give at least 1"),
        ({"mounts": "foo"}, "mounts: 'foo' is not a list"),
        ({"mounts": [{"source": "h:/e", "target": "a", "readonly": True}]}, "mounts[0].readonly: unknown key"),
        ({"mounts": [{"source": "h:/e"}]}, "mounts[0].target: is missing"),
    ],
)
def test_wrong_settings_are_refused(data, said):
    with pytest.raises(JobError) as refused:
        parse_cluster(data)
    assert said in str(refused.value)


@pytest.mark.parametrize("engine", ["local", "other"])
def test_settings_that_no_cluster_has_are_for_its_engine_to_refuse(engine):
    assert parse_cluster({"engine": engine, "max_node": 2}).options == {"max_node": 2}


def test_a_file_that_is_none_is_refused(tmp_path: Path):
    with pytest.raises(NotFound):
        load_cluster_file(tmp_path / "none.yml")
    (tmp_path / "list.yml").write_text("- a")
    with pytest.raises(JobError):
        load_cluster_file(tmp_path / "list.yml")


def test_the_catalogue_knows_the_usual_sizes():
    size = find_size("standard_nc24rs_v3")
    assert size == find_size("NC24rs_v3")
    assert (size.gpu, size.gpus, size.infiniband, size.price_per_hour) == ("V100", 4, True, 13.464)
    assert find_size("Standard_D2_v2").gpus == 0
    assert find_size("huge") is None and nearest("NC24rs_v4") == "Standard_NC24rs_v3"
    for size in catalogue().values():
        assert size.cpus > 0 and size.memory_gb > 0 and (size.gpus > 0) == (size.gpu is not None)
        assert size.price_per_hour is None or size.price_per_hour > 0
    assert parse_options({"vm_size": "NC6"}).hourly_price == 0.9
    assert parse_options({"vm_size": "NC6", "price_per_hour": 0.5}).hourly_price == 0.5


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("fileserver:imagenet", ("imagenet", None, None)),
        ("10.1.0.7:/export/data", (None, ("10.1.0.7", 2049, "/export/data"), None)),
        ("nfs://files.site:12049/data", (None, ("files.site", 12049, "/data"), None)),
        ("azureml://datastores/blob/paths/x", (None, None, "azureml://datastores/blob/paths/x")),
    ],
)
def test_what_nodes_mount(source: str, found: tuple[object, ...]) -> None:
    mount = parse_options({"mounts": [{"source": source, "target": "data"}]}).mounts[0]
    assert (mount.file_server, mount.nfs, mount.datastore) == found


@pytest.mark.parametrize(
    ("mounts", "why"),
    [
        ([{"source": "/mnt/x", "target": "x"}], "nothing that can be mounted"),
        ([{"source": "fileserver:Bad Name", "target": "x"}], "nothing that can be mounted"),
        ([{"source": "fileserver:a1", "target": "../x"}], "is no name"),
        ([{"source": "fileserver:a1", "target": "/mnt"}], "is no name"),
        ([{"source": "fileserver:a1", "target": "x", "read_only": False}], "is mounted read-only"),
        ([{"source": "a:/b", "target": "x"}, {"source": "a:/c", "target": "x"}], "two mounts have the target 'x'"),
        ([{"source": "a:/b", "target": "x", "options": "rw"}], "options"),
    ],
)
def test_mounts_that_cannot_work_are_refused(mounts: list[dict[str, object]], why: str) -> None:
    with pytest.raises(JobError, match=why):
        parse_options({"mounts": mounts})


def test_each_mount_comes_with_its_warning() -> None:
    mounts = [{"source": "azureml://datastores/blob", "target": "raw"}, {"source": "a:/b", "target": "share"}]
    raw, share = mount_notices(parse_options({"mounts": mounts}))
    assert "raw" in raw and "too slow to feed GPUs" in raw
    assert "share" in share and "one machine" in share


def test_volumes_of_batch_ais_clusters_are_mounts() -> None:
    volumes = {
        "fileServers": [{"fileServer": {"id": "/subscriptions/x/fileServers/imagenet"}, "relativeMountPath": "nfs"}],
        "azureBlobFileSystems": [{"accountName": "me", "containerName": "c", "relativeMountPath": "blob"}],
        "unmanagedFileSystems": [{"mountCommand": "mount -t nfs4 10.1.0.7:/data /mnt", "relativeMountPath": "own"}],
    }
    scale = {"manual": {"targetNodeCount": 2}}
    found = parse_cluster({"properties": {"scaleSettings": scale, "nodeSetup": {"mountVolumes": volumes}}})
    assert found.options["mounts"] == [
        {"source": "fileserver:imagenet", "target": "nfs"},
        {"source": "azureml://datastores/blob", "target": "blob"},
        {"source": "10.1.0.7:/data", "target": "own"},
    ]


def test_a_file_server_of_batch_ai_is_as_large_as_its_disks() -> None:
    properties = {"vmSize": "Standard_D2", "dataDisks": {"diskSizeInGB": 10, "diskCount": 2}}
    found = parse_file_server({"name": "nfs", "properties": properties}, "f.json")
    assert (found.name, found.size_bytes) == ("nfs", 20 * 10**9)
    assert any("vmSize" in notice for notice in found.notices)
    with pytest.raises(JobError, match="dataDisks"):
        parse_file_server({"vmSize": "x"}, "f.json")
    with pytest.raises(JobError, match="diskCount 0"):
        parse_file_server({"dataDisks": {"diskSizeInGB": 10, "diskCount": 0}}, "f.json")
