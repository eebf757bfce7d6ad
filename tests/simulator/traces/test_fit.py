"""Jobs larger than the cluster."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.baselines.fifo import Fifo
from slurm_soda.policies.engine.job_rows import build_job_table
from slurm_soda.policies.plan import JobVerdict
from slurm_soda.policies.snapshot import ClusterSnapshot, NodeTable
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.errors import TraceError
from slurm_soda.simulator.traces.cluster_fit import drop_oversized_jobs, select_jobs_that_fit
from slurm_soda.simulator.traces.trace import JobTrace, SkippedEntry
from slurm_soda.simulator.workload import Workload

SMALL = {"submit_s": 0, "run_s": 1, "label": "small", "gpus": 1}


@pytest.mark.parametrize(
    ("cluster", "job", "why"),
    [
        ("2x4", {"gpus": 9}, "needs 9 GPUs, but there are 8"),
        ("2x4:a+9x4:b", {"gpus": 9, "gpu_type": "a"}, "needs 9 GPUs of type a, but there are 8"),
        ("2x4:a", {"gpus": 1, "gpu_type": "z"}, "needs 1 GPUs of type z, but there are 0"),
        ("2x4/8c", {"gpus": 1, "cpus": 17}, "needs 17 CPUs, but there are 16"),
        ("2x4/8c/1g", {"gpus": 1, "memory_mib": 2049}, "needs 2049 MiB, but there are 2048"),
        ("2x4", {"gpus": 6, "nodes": 3, "gpus_per_node": 2}, "needs 3 nodes, but there are 2"),
        ("2x4", {"gpus": 8, "nodes": 1, "gpus_per_node": 8},
         "needs 8 GPUs, 8 GPUs on each, which no set of nodes has (a node has up to 4 GPUs)"),
        ("2x4/8c", {"gpus": 1, "cpus": 9},
         "needs 1 GPUs with 9 CPUs, which no set of nodes has (a node has up to 4 GPUs and 8 CPUs)"),
        ("2x4", {"gpus": 1, "partition": "debug"}, "needs partition 'debug', but there are main"),
    ],
)  # fmt: skip
def test_a_job_that_is_too_large_is_an_error_or_listed(cluster, job, why):
    jobs = Workload.build("w", [SMALL, {**SMALL, "label": "big", **job}])
    nodes = parse_cluster(cluster)
    with pytest.raises(TraceError) as caught:
        select_jobs_that_fit(jobs, nodes, lenient=False, path="w.csv", line=np.array([2, 3]))
    assert str(caught.value) == (
        f"w.csv:3: job 'big' is larger than the cluster {cluster}: it {why}; choose a larger --cluster, or leave such jobs "
        "out with --lenient"
    )
    kept, skipped = select_jobs_that_fit(jobs, nodes, lenient=True, path="w.csv")
    assert kept.label == ("small",)
    assert skipped == (SkippedEntry(0, f"larger than the cluster {cluster}: it {why}", "big"),)


def test_jobs_that_fit_stay_as_they_are():
    jobs = Workload.build("w", [SMALL, {**SMALL, "gpus": 8}, {**SMALL, "gpus": 8, "nodes": 2, "gpus_per_node": 4}])
    assert select_jobs_that_fit(jobs, parse_cluster("2x4"), lenient=False, path="w.csv") == (jobs, ())


def test_when_no_job_fits_lenient_reading_ends_too():
    with pytest.raises(TraceError, match="no job fits"):
        select_jobs_that_fit(
            Workload.build("w", [{**SMALL, "gpus": 2}]), parse_cluster("1x1"), lenient=True, path="w.csv"
        )


def test_the_columns_of_a_trace_stay_in_step():
    jobs = Workload.build("w", [SMALL, {**SMALL, "label": "big", "gpus": 9}, {**SMALL, "label": "end"}])
    trace = JobTrace(jobs, "tiresias", (SkippedEntry(9, "bad", "x"),), line=np.array([2, 3, 4]),
                  observed_start_s=np.array([5.0, 6.0, 7.0]))  # fmt: skip
    fitted = drop_oversized_jobs(trace, parse_cluster("2x4"), lenient=True, path="w.csv")
    assert fitted.workload.label == ("small", "end")
    assert fitted.line.tolist() == [2, 4]
    assert fitted.observed_start_s.tolist() == [5, 7]
    assert [entry.line for entry in fitted.skipped] == [3, 9]
    assert drop_oversized_jobs(trace, parse_cluster("3x4"), lenient=False, path="w.csv") is trace


ROWS = st.fixed_dictionaries({
    "gpus": st.integers(0, 9), "nodes": st.integers(1, 3), "gpus_per_node": st.integers(0, 4), "cpus": st.integers(1, 20),
    "memory_mib": st.sampled_from([0, 1000, 3000]), "gpu_type": st.sampled_from(["", "a", "b"]),
})  # fmt: skip


@given(st.lists(ROWS, min_size=1, max_size=8))
def test_it_is_what_policies_set_aside(rows):
    cluster = parse_cluster("2x4:a/8c/2g+1x2:b/4c/1g")
    jobs = Workload.build("w", [{**SMALL, "label": str(at), **row} for at, row in enumerate(rows)])
    nodes = NodeTable(
        name=cluster.node_names, usable=np.ones(3, dtype=bool), gpus=cluster.gpus, gpus_free=cluster.gpus,
        gpu_type=cluster.gpu_type, cpus=cluster.cpus, cpus_free=cluster.cpus, memory_mib=cluster.memory_mib,
        memory_free_mib=cluster.memory_mib, in_partition=cluster.in_partition, gpu_types=cluster.gpu_types,
    )  # fmt: skip
    snapshot = ClusterSnapshot(0.0, build_job_table([{"job_id": at + 1, **row} for at, row in enumerate(rows)]), nodes)
    notes = Fifo(skip=True).decide(snapshot).notes
    too_large = set(notes.job_id[notes.verdict == JobVerdict.TOO_LARGE].tolist())
    try:
        kept, _ = select_jobs_that_fit(jobs, cluster, lenient=True, path="w")
        fitting = {int(label) + 1 for label in kept.label}
    except TraceError:
        fitting = set()
    assert too_large == set(range(1, len(rows) + 1)) - fitting
