"""What `muster doctor --nodes` concludes from measurements, and how it says so."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from muster.cli.console import Paint
from muster.cli.doctor import advice
from muster.cli.doctor.advice import GRADIENT_BYTES, Measurement, Pair, judge, node_images_per_s
from muster.cli.doctor.gang import measure
from muster.cli.doctor.nodes import GANG, job, lines, report
from muster.job.explain import make_spec
from muster.wire.codec import from_json

GBIT = 1e9 / 8


def measured(bytes_per_s: float, gpus: list[str] | None = None, infiniband: float = 0.0, **changes: Any) -> Measurement:
    nodes = [
        {
            "rank": rank,
            "address": f"10.0.0.{rank + 4}",
            "host": f"gpu-{rank}",
            "machine": f"m{rank}",
            "cpus": 24,
            "memory_bytes": 448 << 30,
            "gpus": gpus if gpus is not None else ["Tesla V100-PCIE-16GB"] * 4,
            "interface": "eth0",
            "infiniband_gbit": infiniband,
            "disk_bytes_per_s": 1e9,
            **changes,
        }
        for rank in range(2)
    ]
    pairs = [{"nodes": [0, 1], "round_trip_s": 1e-4, "bytes_per_s": bytes_per_s}]
    return from_json(Measurement, {"nodes": nodes, "pairs": pairs, "all_pairs": True})


def shown(found: Measurement, run_view: Callable[..., Any]) -> str:
    return "\n".join(lines(report(run_view(), found), Paint(color=False)))


def test_the_case_of_2018_in_which_a_second_node_added_nothing_is_recognised() -> None:
    """Four V100 did 1,245 images/s, eight on two nodes without InfiniBand 1,248."""
    effective = GRADIENT_BYTES / (512 / 1248 - 256 / 1245)
    found = judge(measured(effective / advice.SOCKET_SHARE), images_per_s=1245)
    assert found.speedup == pytest.approx(1248 / 1245, rel=0.01)
    assert found.level == "warn"
    assert "too slow" in found.said


def test_the_same_nodes_with_infiniband_gain() -> None:
    """980 images/s on one node became 1,811 on two."""
    effective_gbit = GRADIENT_BYTES / (512 / 1811 - 256 / 980) / GBIT
    found = judge(measured(GBIT, infiniband=effective_gbit / advice.INFINIBAND_SHARE), images_per_s=980)
    assert found.speedup == pytest.approx(1811 / 980, rel=0.01)
    assert found.level == "ok"
    assert "over InfiniBand" in found.said


@pytest.mark.parametrize(
    ("gbit", "gpus", "level", "said"),
    [
        (0.1, 4, "warn", "The network is too slow: 2 nodes"),
        (10, 4, "warn", "adds little"),
        (100, 4, "ok", "times what one does"),
        (10, 0, "ok", "24 CPU cores"),
    ],
)
def test_the_conclusion_follows_the_bandwidth(gbit: float, gpus: int, level: str, said: str) -> None:
    found = judge(measured(gbit * GBIT, gpus=["Tesla V100"] * gpus))
    assert (found.level, said in found.said) == (level, True), found.said


def test_more_bandwidth_never_makes_it_worse() -> None:
    gains = [judge(measured(gbit * GBIT)).speedup or 0 for gbit in (0.1, 1, 5, 10, 25, 100, 400)]
    assert gains == sorted(gains)
    assert gains[-1] < 2


def test_simulated_nodes_add_nothing() -> None:
    assert "share its cores and GPUs" in judge(measured(3e9, address="127.0.0.1")).said


def test_nodes_that_do_not_reach_each_other_are_named(run_view: Callable[..., Any]) -> None:
    found = replace(measured(1e9), pairs=(Pair((0, 1), error="10.0.0.5: timed out"),))
    judged = judge(found)
    assert judged.said == "Nodes 0 and 1 do not reach each other: 10.0.0.5: timed out."
    assert "node-0 and node-1  -           10.0.0.5: timed out" in shown(found, run_view)


def test_speeds_of_known_gpus_are_those_of_the_published_figures() -> None:
    for name in ("K80", "P40", "P100", "V100"):
        assert node_images_per_s([f"Tesla {name}"], 8)[0] == advice.IMAGES_PER_S[name]
    assert node_images_per_s(["NVIDIA Something"] * 2, 8)[0] == 2 * advice.UNKNOWN_GPU_IMAGES_PER_S


def test_the_report_has_a_table_and_a_conclusion(run_view: Callable[..., Any]) -> None:
    text = shown(measured(5 * GBIT), run_view)
    assert "node-0  10.0.0.4  eth0       24    481 GB  4 x Tesla V100-PCIE-16GB" in text
    assert "node-0 and node-1  0.100 ms    5.00 Gb/s" in text
    assert "warn  " in text


def test_one_node_is_fine() -> None:
    found = measured(1e9)
    alone = replace(found, nodes=found.nodes[:1], pairs=())
    assert judge(alone).level == "ok"


def test_every_pair_is_measured_while_that_is_quick() -> None:
    assert measure.pairs_of(3) == [(0, 1), (0, 2), (1, 2)]
    assert measure.pairs_of(1) == []
    assert measure.pairs_of(40) == [(rank, rank + 1) for rank in range(39)]


def test_the_job_is_a_valid_one_and_its_script_is_shipped() -> None:
    assert make_spec(job(3, "local")).resources.instance_count == 3
    assert (GANG / "measure.py").is_file()


def test_the_script_needs_no_more_than_python_3_8() -> None:
    command = [sys.executable, "-c", "from vermin import main; main()", "-t=3.8-", "--no-tips", str(GANG)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
