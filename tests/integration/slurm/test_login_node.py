"""A login node that is not the server: Slurm's commands go over ssh, and the shared folder is the way back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.integration.server.conftest import Site
from tests.sites.slurm import SlurmSite

from muster import errors
from muster.client.connect import connect
from muster.client.workspace import find_workspace

SSH = """\
#!/bin/bash
# Stands for ssh and the login node behind it: another environment, a shell, and what ssh says when it fails.
echo "$@" >>"$(dirname "$0")/calls"
while [[ $1 == -o ]]; do shift 2; done
host=$1; shift 2
if [[ -e "$(dirname "$0")/down" ]]; then echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255; fi
if [[ $host != ada@login.site ]]; then echo "$host: Permission denied (publickey)." >&2; exit 255; fi
exec env -i HOME="$HOME" PATH="/usr/sbin:/usr/bin:/bin:$PATH" SLURM_CONF={config} /bin/sh -c "$*"
"""
OPTIONS = {"partition": "batch", "poll_seconds": 0.5, "connection": "files", "ssh": "ada@login.site"}


@pytest.fixture
def apart(slurm: SlurmSite, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A workspace on a machine that has no Slurm of its own."""
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(SSH.format(config=slurm.config))
    program.chmod(0o755)
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    client = connect(find_workspace(workspace))
    yield Site(workspace, client)
    client.close()


def test_a_gang_goes_through_a_login_node_and_comes_back_through_the_folder(apart: Site, tmp_path: Path):
    apart.client.create_cluster("far", "slurm", OPTIONS)
    job = {"type": "pytorch", "process_count_per_instance": 1}
    command = f"echo rank $RANK; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done"
    run_id = apart.run(command=command, compute="far", resources={"instance_count": 2}, distribution=job)
    apart.wait(run_id, "Running")
    # The link breaks for a while: nobody is given up.
    (tmp_path / "bin" / "down").touch()
    wait_until(lambda: apart.client.cluster("far").state == "unreachable", 30, "the trouble")
    assert "No route to host" in apart.client.cluster("far").reason
    (tmp_path / "bin" / "down").unlink()
    (tmp_path / "go").touch()
    view = apart.wait(run_id)
    assert view["status"] == "Completed", view["verdict"]
    assert [apart.log(run_id, rank["log"]) for rank in view["attempts"][0]["ranks"]] == [b"rank 0\n", b"rank 1\n"]
    assert view["attempts"][0]["queue_job"]["partition"] == "batch"
    calls = (tmp_path / "bin" / "calls").read_text()
    assert "-o BatchMode=yes" in calls
    assert "sbatch --parsable" in calls

    with pytest.raises(errors.JobError, match=r"Permission denied \(publickey\)") as refused:
        apart.client.create_cluster("never", "slurm", {**OPTIONS, "ssh": "eve@login.site"})
    assert "`ssh -o BatchMode=yes eve@login.site squeue --version`" in refused.value.hint
