"""From the parts of Slurm's priority to bands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurm_soda.policies.bands.bands import (
    BY_FAIR_SHARE,
    BY_QOS,
    FAIR_LEVELS,
    OFF,
    PriorityParts,
    assign_bands,
    find_tiers,
)
from slurm_soda.policies.pools.kinds import NodeClass, PoolKind
from slurm_soda.policies.pools.layout.partitions import PoolPartition, PoolTable
from slurm_soda.policies.pools.stages.in_force import PoolsInForce
from tests.policies.cases import cluster, mixed_nodes, waiting

NAN = float("nan")
WAIT, RUN = False, True

# name, bands, jobs as (tier, granted, earned, runs), their bands
CASES: list[tuple[str, str, list[tuple[int, float, float, bool]], list[int]]] = [
    ("off: one band", OFF, [(1, 0, 0, WAIT), (2, 9, 0, WAIT)], []),
    ("fair share does not count by QOS", BY_QOS, [(1, 5, 0, WAIT), (1, 5, 1000, WAIT)], []),
    ("QOS counts to the point", BY_QOS, [(1, 5, 0, WAIT), (1, 6, 0, WAIT), (1, 5, 0, RUN)], [1, 0, 1]),
    ("a tier before everything", BY_QOS, [(1, 900, 0, WAIT), (2, 0, 0, WAIT)], [1, 0]),
    ("levels of fair share", BY_FAIR_SHARE, [(1, 0, at * 1200 / FAIR_LEVELS, WAIT) for at in range(FAIR_LEVELS)],
     [*range(FAIR_LEVELS)][::-1]),
    ("the most that can be earned is in the best level", BY_FAIR_SHARE,
     [(1, 0, 1199.0, WAIT), (1, 0, 1200.0, WAIT), (1, 0, 0, WAIT)], [0, 0, 1]),
    ("QOS that is worth less than a level", BY_FAIR_SHARE, [(1, 100, 0, WAIT), (1, 0, 1200.0, WAIT)], [1, 0]),
    ("QOS that is worth more than all of it", BY_FAIR_SHARE, [(1, 1300, 0, WAIT), (1, 0, 1200.0, WAIT)], [0, 1]),
    ("not computed: last; a run of which nobody knows: first", BY_FAIR_SHARE,
     [(1, NAN, NAN, WAIT), (1, 0, 0, WAIT), (1, NAN, NAN, RUN)], [2, 1, 0]),
    ("nothing known of any that waits: one band", BY_FAIR_SHARE, [(1, NAN, NAN, WAIT), (1, 5, 5, RUN)], []),
    ("nobody waits", BY_FAIR_SHARE, [(1, 0, 0, RUN), (1, 900, 0, RUN)], []),
]  # fmt: skip


@pytest.mark.parametrize(("bands", "jobs", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_bands(bands: str, jobs: list[tuple[int, float, float, bool]], expected: list[int]) -> None:
    tier, granted, earned, runs = (np.array(column) for column in zip(*jobs, strict=True))
    parts = PriorityParts(tier, granted.astype(float), earned.astype(float), 1200.0)
    assert assign_bands(parts, bands, runs.astype(bool)).tolist() == expected


def test_there_are_no_more_levels_than_said() -> None:
    earned = np.linspace(0.0, 1200.0, 1201)
    parts: Any = PriorityParts(np.ones(1201, dtype=int), np.zeros(1201), earned, 1200.0)
    band = assign_bands(parts, BY_FAIR_SHARE, np.zeros(1201, dtype=bool))
    assert sorted(set(band.tolist())) == list(range(FAIR_LEVELS))
    assert (np.diff(band) <= 0).all()


def test_a_pools_tier_is_no_wish_of_the_site() -> None:
    nodes = replace(mixed_nodes(4), in_partition=np.ones((1, 2), dtype=np.bool_))
    pool = PoolPartition("p1", "p0", PoolKind.SMALL, NodeClass("", 4, 32), False, ("n1",), 20, 8)
    jobs = [waiting(1), waiting(2, partition="p1")]
    snapshot = replace(
        cluster(jobs, nodes), tiers={"p0": 3, "p1": 20}, pools=PoolsInForce(PoolTable({pool.name: pool}))
    )
    assert find_tiers(snapshot).tolist() == [3, 20]
    assert find_tiers(snapshot, of_base=True).tolist() == [3, 3]
