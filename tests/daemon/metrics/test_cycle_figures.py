"""The cluster in figures: by partition and node, whatever jobs there are and whatever names they have."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.daemon.metrics.cycle_figures import ClusterFigures, QueueCounts, StartedWaits, cluster_figures
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.slurm_ext.client import SlurmJob, SlurmNode
from slurm_soda.slurm_ext.read.snapshot import build_snapshot
from slurm_soda.wire.core_tuning import GuestGpus
from tests.daemon.records import record

NODE = SlurmNode("n1", "MIXED", True, 28, 0, 64_000, 0, 4, 3, "", ("main", "long"))
DOWN = replace(NODE, name="n2", state="DOWN", usable=False, gpus_allocated=0, partitions=("main",))


def snapshot(*jobs: SlurmJob, now_s: float = 2000.0) -> ClusterSnapshot:
    return build_snapshot(now_s, jobs, [NODE, DOWN], {}, {}, {})


def figures(*jobs: SlurmJob, guests: dict[str, list[GuestGpus]] | None = None) -> ClusterFigures:
    return cluster_figures(snapshot(*jobs), [NODE, DOWN], guests or {})


def test_jobs_count_in_the_partitions_that_they_name() -> None:
    found = figures(
        record(1, "RUNNING", partition="main", gpus=3, start_s=1500.0),
        record(2, partition="main,long", gpus=2),
        record(3, partition="long", gpus=1, reason="JobHeldUser"),
        record(4, "COMPLETED", partition="main", gpus=4),
    )
    assert found.jobs == QueueCounts(pending=2, eligible=1, running=1, gpus_pending=2, gpus_alloc=3)
    assert found.jobs_in == {
        "main": QueueCounts(pending=1, eligible=1, running=1, gpus_pending=2, gpus_alloc=3),
        "long": QueueCounts(pending=2, eligible=1, gpus_pending=2),
    }


def test_gpus_are_held_idle_shared_or_of_no_use() -> None:
    guest = GuestGpus(9, 0, (0, 1))
    found = figures(guests={"n1": [guest, GuestGpus(10, 0, (1,))], "n2": [guest]})
    assert (found.gpus.gpus, found.gpus.alloc, found.gpus.idle, found.gpus.shared) == (8, 3, 1, 4)
    assert found.guests == 2, "a guest on two nodes is one"
    assert {name: (gpus.gpus, gpus.idle) for name, gpus in found.gpus_in.items()} == {"main": (8, 1), "long": (4, 1)}
    assert [(name, gpus.usable, gpus.idle) for name, gpus in found.gpus_on.items()] == [
        ("n1", True, 1),
        ("n2", False, 0),
    ]
    assert found.jobs_in == {"main": QueueCounts(), "long": QueueCounts()}, "partitions without jobs have zeros"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "COMPLETED"]),
            st.lists(st.sampled_from(["main", "long", "o\udcffdd"]), min_size=1, max_size=3, unique=True),
            st.integers(0, 8),
        ),
        max_size=30,
    )
)
def test_there_are_no_more_series_than_partitions(jobs: list[tuple[str, list[str], int]]) -> None:
    """However users combine them."""
    records = [
        record(number, state, partition=",".join(partitions), gpus=gpus, start_s=1500.0)
        for number, (state, partitions, gpus) in enumerate(jobs, 1)
    ]
    found = figures(*records)
    assert found.jobs_in.keys() <= {"main", "long", r"o\xffdd"}
    assert found.jobs.pending == sum(state == "PENDING" for state, _, _ in jobs)
    assert found.jobs.running == sum(state == "RUNNING" for state, _, _ in jobs)
    lengths = {
        state: sum(len(names) for found_state, names, _ in jobs if found_state == state) for state in ("PENDING",)
    }
    assert sum(part.pending for part in found.jobs_in.values()) == lengths["PENDING"]
    held = ("RUNNING", "COMPLETING", "SUSPENDED")
    assert found.jobs.gpus_alloc == sum(gpus for state, _, gpus in jobs if state in held)


def test_waits_count_once_and_not_of_jobs_that_ran_before() -> None:
    waits = StartedWaits()
    runs = record(1, "RUNNING", start_s=1500.0)
    assert waits.take(snapshot(runs)) == [], "nobody knows since when"
    pending = record(2, submit_s=1900.0, eligible_s=1900.0)
    assert waits.take(snapshot(runs, pending)) == []
    started = record(2, "RUNNING", submit_s=1900.0, eligible_s=1900.0, start_s=2005.0)
    assert waits.take(snapshot(runs, started, now_s=2010.0)) == [("main", 105.0)]
    assert waits.take(snapshot(runs, started, now_s=2020.0)) == []
    again = replace(runs, restarts=1, start_s=2025.0)
    assert [name for name, _ in waits.take(snapshot(again, started, now_s=2030.0))] == ["main"], "a run after a requeue"


@given(st.text(st.characters(codec="utf-8") | st.sampled_from(["\udcff", "\udc80"]), min_size=1))
def test_names_of_any_bytes_are_labels(name: str) -> None:
    node = replace(NODE, name=name)
    found = cluster_figures(snapshot(), [node], {})
    for label in found.gpus_on:
        label.encode("utf-8")
