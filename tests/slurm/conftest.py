"""One cluster of two nodes for all tests on a real Slurm; it goes when the session ends, however it ends."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_soda.containers.cluster import ContainerCluster
from tests.slurm.daemon_site import DaemonSite

LONG_FIRST = (
    "services",
    "sodactl",
    "packages",
    "faults",
    "daemon",
    "campaign",
    "wide_jobs",
    "pyslurm",
    "demo",
    "pools",
    "cluster",
    "expiry",
    "nodes",
    "cores",
    "consent",
    "walls",
    "newcomers",
    "silent_slurm",
    "sharing",
    "scope",
    "parting",
    "share_by_hand",
    "quarantine",
    "progress",
    "fit_gang",
    "snapshot",
    "fit",
    "fit_limits",
    "burst",
    "network",
    "client",
    "hints",
    "mps",
    "moves",
    "accounting_past",
    "package_upgrade",
)
"""Files in the order in which the workers take them, so that no long one is left for the end; a new one comes first.

A worker takes its next file when two tests of the one before are left: a file of one or two tests is never the first.
"""


_WITHOUT_GUESTS = ("22.05",)
"""Tested releases whose jobs have no ``Extra``, so that none becomes a guest (docs/operations.md)."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    release = str(config.getoption("--slurm"))
    if release in _WITHOUT_GUESTS:
        skip = pytest.mark.skip(reason=f"no job becomes a guest on Slurm {release}, whose jobs have no Extra")
        for item in items:
            if item.get_closest_marker("guests"):
                item.add_marker(skip)
    order = {Path(__file__).with_name(f"test_{name}.py"): at for at, name in enumerate(LONG_FIRST)}
    items.sort(key=lambda item: order.get(item.path, -1))


@pytest.fixture(scope="session")
def slurm(pytestconfig: pytest.Config) -> str:
    """Release of Slurm that is tested."""
    return str(pytestconfig.getoption("--slurm"))


@pytest.fixture(scope="session")
def cluster(slurm: str) -> Iterator[ContainerCluster]:
    """Two nodes with four GPUs each. sodad does not run: a test that starts it stops it."""
    cluster = ContainerCluster.up(f"test-{secrets.token_hex(3)}", slurm=slurm, progress=print)
    try:
        yield cluster
    finally:
        cluster.down()


@pytest.fixture
def site(cluster: ContainerCluster) -> Iterator[DaemonSite]:
    """The cluster as a test leaves it to the next one: without jobs and without sodad."""
    site = DaemonSite(cluster)
    yield site
    site.clear()
