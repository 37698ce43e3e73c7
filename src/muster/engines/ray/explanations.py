"""Ray's messages in plain words: why it cannot be attached to, and why a gang waits. Pure."""

from __future__ import annotations

import re

from muster import errors
from muster.engines.ray.messages import GangReport

_CLUSTER = re.compile(r"cluster was started with:\s*Ray:\s*(\S+)\s*Python:\s*(\S+)", re.S)
_PROCESS = re.compile(r"This process.*?was started with:\s*Ray:\s*(\S+)\s*Python:\s*(\S+)", re.S)


class NotNow(errors.JobError):
    """Ray could not be attached to, for a reason that may pass."""


def why_not_attached(address: str, said: str, kind: str, python: str) -> errors.JobError:
    """What to change, for a cluster that could not be attached to."""
    there, here = _CLUSTER.search(said), _PROCESS.search(said)
    if there and here:
        return _other_versions(there.groups(), here.groups(), python)
    if "No module named 'ray'" in said:
        return errors.JobError(
            f"{python} has no ray", "Install it there (`pip install 'ray[default]'`), or give another `python`."
        )
    if "No module named 'muster" in said:
        return errors.JobError(
            "Muster is not installed in the Python with which Ray runs at " + address,
            "Install the same version of Muster there on every node: Ray's workers start its agents.",
        )
    if "node ip" in said.lower() or "Can't find a node" in said or "could not find any running Ray instance" in said:
        return errors.JobError(
            f"this machine is no node of the Ray cluster at {address}",
            "Give the address of Ray's client server, ray://HEAD:10001, or run the server on a node of the cluster.",
        )
    last = said.strip().splitlines()[-1] if said.strip() else kind
    return NotNow(
        f"Ray at {address} cannot be attached to: {last}",
        "Look whether its head runs, and whether token_file and the tls_ settings are those of the cluster.",
    )


def _other_versions(there: tuple[str, ...], here: tuple[str, ...], python: str) -> errors.JobError:
    wrong = []
    if there[0] != here[0]:
        wrong.append(f"ray=={there[0]}")
    if there[1].split(".")[:2] != here[1].split(".")[:2] or not wrong:
        wrong.insert(0, f"Python {there[1]}")
    return errors.JobError(
        f"the cluster has Ray {there[0]} on Python {there[1]}; {python} has Ray {here[0]} on Python {here[1]}",
        f"Set `python` of this cluster to one with {' and '.join(wrong)} and this Muster, "
        "or start Ray with the versions that are here.",
    )


def other_muster(there: str, here: str) -> errors.JobError:
    return errors.JobError(
        f"the Ray cluster's nodes have Muster {there}, the server has {here}",
        f"Install muster-ml=={here} on the nodes, or muster-ml=={there} here.",
    )


def why_it_waits(report: GangReport, num_nodes: int) -> str:
    """Why a gang that was requested from Ray has no nodes yet."""
    if report.state == "starting":
        return f"its agents start on {', '.join(report.hosts)}"
    return (
        f"waits until Ray has {num_nodes} node{'s' * (num_nodes != 1)} free for it; "
        f"{report.living} are in the cluster now"
    )
