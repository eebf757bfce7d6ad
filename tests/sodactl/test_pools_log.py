"""``sodactl pools log``: what each pool did, from the store."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_soda.daemon.store.tables.pools import PoolRunRow

from .conftest import NOW_S, Bench


def run(soda: Bench, job_id: int, **values: Any) -> None:
    defaults: dict[str, Any] = {
        "submit_s": NOW_S - 900, "restart": 0, "user": "alice", "base": "gpu", "kind": "cpu", "partition": "gpu_cpu_lend",
        "borrowing": True, "gpus": 0, "cpus": 4, "queued_s": 60.0, "start_s": NOW_S - 800, "end_s": NOW_S - 500,
        "aborted": False,
    }  # fmt: skip
    soda.add(PoolRunRow(job_id=job_id, **{**defaults, **values}))


@pytest.fixture
def site(soda: Bench) -> Bench:
    """A CPU job aborted twice that runs on in its own pool, another that ended long ago, and a GPU job."""
    soda.daemon()
    run(soda, 1, aborted=True)
    run(soda, 1, restart=1, queued_s=None, start_s=None, end_s=NOW_S - 400, aborted=True)
    run(soda, 1, restart=2, partition="gpu_cpu", borrowing=False, queued_s=10.0, start_s=NOW_S - 100, end_s=None)
    run(soda, 2, submit_s=NOW_S - 90_000, start_s=NOW_S - 89_000, end_s=NOW_S - 88_000)
    run(soda, 3, kind="small", partition="gpu_small", borrowing=False, gpus=2, cpus=8, queued_s=2.0)
    return soda


def test_each_pool_has_a_line(site: Bench) -> None:
    cpu, small = site("pools", "log", "--json").document["pools"]
    assert (cpu["base"], cpu["kind"], cpu["runs"], cpu["running"]) == ("gpu", "cpu", 2, 1)
    assert (cpu["aborts"], cpu["most_aborts"], cpu["queue_mean_s"]) == (2, 2, 35.0)
    assert (cpu["core_s"], cpu["borrowed_core_s"]) == (4 * 400, 4 * 300)
    assert (small["kind"], small["gpu_s"], small["borrowed_gpu_s"], small["aborts"]) == ("small", 600, 0, 0)
    out = site("pools", "log").out
    for text in ("gpu", "cpu", "small", "35 s"):
        assert text in out


def test_further_back_there_is_more(site: Bench) -> None:
    cpu, _ = site("pools", "log", "--hours", "48", "--json").document["pools"]
    assert cpu["core_s"] == 4 * 1400


def test_without_pools_it_says_where_to_look(soda: Bench) -> None:
    soda.daemon()
    assert "sodactl pools status" in soda("pools", "log").out
    assert soda("pools", "log", "--json").document["pools"] == []
