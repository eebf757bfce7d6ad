"""What is shown of nodes: valid for every name, current, and no more than Slurm has."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.metrics.catalog import NODES
from slurm_soda.daemon.metrics.cycle_figures import GpuCounts
from slurm_soda.daemon.metrics.label_text import label_text
from slurm_soda.daemon.metrics.node_board import AgentSign, NodeBoard
from slurm_soda.daemon.metrics.node_text import node_text
from slurm_soda.wire.mps import MpsJob
from slurm_soda.wire.node_use import COUNTS, HeldGpu, NodeUse
from slurm_soda.wire.records import NodeReport
from tests.daemon.metrics.metered import names, parsed, series

USE = NodeUse(
    (HeldGpu(0, 0.5, 1024.0), HeldGpu(3, 1.0, 0.5)), {name: at for at, name in enumerate(COUNTS, 1)}, 12.5, 40_000_000
)
REPORT = NodeReport("n1", "a", 1, 100.0, gpu_count=4, faults=("NVML",), mps_jobs=(MpsJob(7, "0", (0,)),), use=(USE,))
GPUS = GpuCounts(4, 3, 1, 1)


def sign(report: NodeReport = REPORT) -> AgentSign:
    board = NodeBoard()
    board.note(report, Instant(1_700_000_000.0, 100.0))
    return board.signs()[report.node]


def test_everything_of_a_node() -> None:
    text = node_text({"n1": GPUS}, {"n1": sign(), "stranger": sign()}, 110.0)
    assert names(text) == {metric.name for metric in NODES}
    assert series(text) == {
        ("soda_node_gpus", "node=n1"): 4,
        ("soda_node_gpus_alloc", "node=n1"): 3,
        ("soda_node_gpus_shared", "node=n1"): 1,
        ("soda_node_usable", "node=n1"): 1,
        ("soda_node_gpu_util_ratio", "gpu=0", "node=n1"): 0.5,
        ("soda_node_gpu_util_ratio", "gpu=3", "node=n1"): 1.0,
        ("soda_node_gpu_memory_used_bytes", "gpu=0", "node=n1"): 1 << 30,
        ("soda_node_gpu_memory_used_bytes", "gpu=3", "node=n1"): 1 << 19,
        ("soda_node_jobs_limited", "by=cores", "node=n1"): 1,
        ("soda_node_jobs_limited", "by=memory_bandwidth", "node=n1"): 3,
        ("soda_node_jobs_limited", "by=network", "node=n1"): 4,
        ("soda_node_cores_taken", "node=n1"): 2,
        ("soda_node_mps_daemons", "node=n1"): 5,
        ("soda_node_mps_jobs", "node=n1"): 1,
        ("soda_agent_last_report_timestamp_seconds", "node=n1"): 1_700_000_000.0,
        ("soda_agent_faults", "node=n1"): 1,
        ("soda_agent_cpu_seconds_total", "node=n1"): 12.5,
        ("soda_agent_resident_memory_bytes", "node=n1"): 40_000_000,
    }


def test_types_and_meanings_are_the_catalogues() -> None:
    families = {family.name: family for family in parsed(node_text({"n1": GPUS}, {"n1": sign()}, 110.0))}
    for metric in NODES:
        family = families[metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name]
        assert (family.type, family.documentation) == (metric.kind, metric.meaning)
        assert {name for sample in family.samples for name in sample.labels} == set(metric.labels)


def test_a_silent_agent_leaves_only_when_it_spoke_last() -> None:
    shown = series(node_text({"n1": GPUS}, {"n1": sign()}, 161.0))
    assert {key[0] for key in shown if key[0].startswith(("soda_agent", "soda_node_gpu_", "soda_node_jobs"))} == {
        "soda_agent_last_report_timestamp_seconds"
    }


def test_an_older_agent_tells_less_and_a_newer_one_more() -> None:
    older = series(node_text({"n1": GPUS}, {"n1": sign(replace(REPORT, use=()))}, 100.0))
    assert ("soda_agent_faults", "node=n1") in older
    assert not any(key[0] == "soda_agent_cpu_seconds_total" for key in older)
    newer = replace(REPORT, use=(replace(USE, counts={"mps_daemons": 2, "of the future": 7}),))
    shown = series(node_text({"n1": GPUS}, {"n1": sign(newer)}, 100.0))
    assert shown["soda_node_mps_daemons", "node=n1"] == 2
    assert not any(key[0] == "soda_node_jobs_limited" for key in shown)


def test_no_more_gpus_than_slurm_has_whatever_an_agent_says() -> None:
    many = replace(USE, gpus=tuple(HeldGpu(index % 200, 0.1, 1.0) for index in range(256)))
    shown = series(node_text({"n1": GPUS}, {"n1": sign(replace(REPORT, use=(many,)))}, 100.0))
    assert sum(key[0] == "soda_node_gpu_util_ratio" for key in shown) == 4


@given(st.sets(st.text(st.characters(codec="utf-8") | st.sampled_from('\\"\n\r\t{},=\udcff'), max_size=12), max_size=5))
def test_any_name_comes_back_as_it_was(nodes: set[str]) -> None:
    labels = {label_text(name) for name in nodes}
    shown = series(node_text(dict.fromkeys(labels, GPUS), {name: sign() for name in nodes}, 100.0))
    assert {key[1] for key in shown if key[0] == "soda_node_gpus"} == {f"node={label}" for label in labels}
    assert {key[1] for key in shown if key[0] == "soda_agent_faults"} == {f"node={label}" for label in labels}
