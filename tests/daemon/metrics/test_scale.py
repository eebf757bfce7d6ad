"""How many series there are depends on nodes, GPUs and partitions, and on nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.metrics import Site, measure
from slurm_soda.daemon.metrics.catalog import NODES, PROCESS, SITE
from slurm_soda.daemon.metrics.cycle_meter import WAIT_BOUNDS_S
from slurm_soda.daemon.store.engine import Store

BY_PARTITION = sum(metric.kind == "gauge" and metric.labels == ("partition",) for metric in SITE)
OF_A_WAIT = len(WAIT_BOUNDS_S) + 3
"""Buckets with that of all, sum and count."""
BY_NODE = sum(metric.labels == ("node",) for metric in NODES)
LIMITS = 3
BY_GPU = sum(metric.labels == ("node", "gpu") for metric in NODES)


def constant(store: Store) -> int:
    """Series of a site without partitions, nearly: what is left of one."""
    return measure(Site(1, 1, 1, 10), store, 1).site_series - BY_PARTITION - OF_A_WAIT


@pytest.mark.parametrize("site", [Site(20, 4, 3, 100), Site(20, 8, 20, 400)], ids=["nodes", "partitions"])
def test_series_of_a_small_site(store: Store, site: Site) -> None:
    of_site = constant(store)
    assert of_site < 130 - len(PROCESS)
    for jobs in (site.jobs, 10 * site.jobs):
        measured = measure(replace(site, jobs=jobs), store, 1)
        assert measured.site_series == of_site + site.partitions * (BY_PARTITION + OF_A_WAIT)
        assert measured.node_series == site.nodes * (BY_NODE + LIMITS + site.gpus * BY_GPU)


def test_series_of_a_thousand_nodes(store: Store) -> None:
    measured = measure(Site(), store, 1)
    assert measured.node_series == 1000 * (BY_NODE + LIMITS + 8 * BY_GPU) == 30_000
    assert measured.site_series < 400
