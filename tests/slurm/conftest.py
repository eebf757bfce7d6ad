"""One cluster of two nodes for all tests on a real Slurm; it goes when the session ends, however it ends."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from slurm_soda.containers.cluster import ContainerCluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[ContainerCluster]:
    """Two nodes with four GPUs each. sodad does not run: a test that starts it stops it."""
    cluster = ContainerCluster.up(f"test-{secrets.token_hex(3)}", progress=print)
    try:
        yield cluster
    finally:
        cluster.down()
