"""Slowdowns of kinds on more nodes than they need, from jobs in a real store, as sodad learns them."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from slurm_soda.daemon.learning.observations import record_observations
from slurm_soda.daemon.learning.profile_rows import value_from_row
from slurm_soda.daemon.learning.quantities import QUANTITIES
from slurm_soda.daemon.learning.spread_observations import (
    most_gpus_by_type,
    record_spread_observations,
    spread_quantity,
)
from slurm_soda.daemon.store import kind_profiles as stored
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.tables.progress import JobPaceRow
from slurm_soda.daemon.store.tables.scheduling import Job, JobRun
from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.sharing.pair_knowledge.kind_profiles import KindProfiles
from slurm_soda.policies.spreading.learner import SpreadLearner
from slurm_soda.policies.spreading.measurements import TimedRun, slowdown_row
from slurm_soda.policies.spreading.slowdowns import EXTRA_NODES
from tests.slurm_ext.records import node

R50 = JobKind("ResNet-50", 64, "v100", 4)
KEY = JobKind("resnet50", 64, "v100", 4)
GPU_TYPES = {f"n{at}": "V100" for at in range(1, 9)}


def end(
    store: Store, user: str, nodes: str, iteration_s: float, *, progress: bool = True, beside: str = "", gpus: int = 4
) -> None:
    """A job of 1 000 s on these nodes ends, and is learned from at once."""
    with store.write() as session:
        number = len(session.scalars(select(Job.id)).all()) + 1
        hints = {"model": "resnet50", "batch_size": "64"}
        if not progress:
            hints["iterations"] = str(round(1000 / iteration_s))
        job = Job(
            job_id=number, submit_s=9000.0, user=user, state="COMPLETED", gpus=gpus, end_s=11_000.0, hints=hints,
        )  # fmt: skip
        session.add(job)
        session.flush()
        run = JobRun(job_pk=job.id, restart=0, node_names=nodes, start_s=10_000.0, end_s=11_000.0, shared=bool(beside))
        session.add(run)
        if progress:
            done = {"iterations": 900 / iteration_s, "clock_s": 900.0, "co_runners": beside}
            session.add(JobPaceRow(job_id=number, restart=0, first_s=10_000.0, began_s=10_010.0, at_s=10_990.0, **done))
        session.flush()
        record_observations(session, [job], {job.id: [run]}, GPU_TYPES, 20_000.0)
        record_spread_observations(
            session, [job], {job.id: [run]}, gpu_types=GPU_TYPES, most_gpus={"v100": 4}, now_s=20_000.0
        )


def read(store: Store) -> KindProfiles:
    with store.read() as session:
        return KindProfiles(value_from_row(row) for row in stored.all_values(session))


def known(store: Store, owner: str) -> dict[int, float]:
    profiles = read(store).of_owner(owner)
    found = {extra: profiles.estimate(spread_quantity(extra), R50) for extra in range(1, EXTRA_NODES + 1)}
    return {extra: one.value for extra, one in found.items() if one is not None}


def test_each_number_of_nodes_has_a_value_and_it_may_be_set_by_hand(store: Store) -> None:
    assert {spread_quantity(extra) for extra in range(1, EXTRA_NODES + 1)} <= QUANTITIES.keys()
    for nodes, iteration_s in (("n1", 0.1), ("n[1-2]", 0.2), ("n[3-5]", 0.3), ("n[1-6]", 0.5)):
        end(store, "alice", nodes, iteration_s)
    assert known(store, "alice") == pytest.approx({1: 2.0, 2: 3.0, 3: 5.0})
    assert known(store, "bob") == {}


@pytest.mark.parametrize("progress", [True, False])
def test_both_sides_must_have_been_seen(store: Store, *, progress: bool) -> None:
    end(store, "alice", "n[1-2]", 0.2, progress=progress)
    assert known(store, "alice") == {}
    end(store, "bob", "n1", 0.1, progress=progress)
    assert known(store, "alice") == {}, "another owner's job may be another program"
    end(store, "alice", "n7", 0.1, progress=progress)
    assert known(store, "alice") == pytest.approx({1: 2.0})


def test_what_ran_beside_others_does_not_count(store: Store) -> None:
    end(store, "alice", "n1", 0.1)
    end(store, "alice", "n[1-2]", 0.9, beside="77.0")
    assert known(store, "alice") == {}


def test_jobs_of_another_size_are_another_kind(store: Store) -> None:
    end(store, "alice", "n1", 0.1)
    end(store, "alice", "n[1-3]", 0.2, gpus=8)
    assert known(store, "alice") == {}


def test_a_lie_harms_nobody_else(store: Store) -> None:
    for owner, slowdown in (("alice", 1.1), ("bob", 1.2), ("carol", 1.3)):
        end(store, owner, "n1", 0.1)
        end(store, owner, "n[1-2]", 0.1 * slowdown)
    assert known(store, "dave") == pytest.approx({1: 1.2})
    end(store, "liar", "n1", 1e-6)
    for _ in range(5):
        end(store, "liar", "n[1-2]", 1000.0)
    assert known(store, "dave")[1] == pytest.approx(1.25)
    assert known(store, "alice")[1] == pytest.approx(1.1)
    assert known(store, "liar")[1] > 1e6


def test_sodad_and_simulations_learn_the_same(store: Store) -> None:
    learner = SpreadLearner()
    seen = [("alice", 1, 0.1), ("alice", 2, 0.25), ("alice", 2, 0.2), ("alice", 1, 0.12), ("alice", 3, 0.2),
            ("bob", 1, 0.1), ("bob", 2, 0.3), ("carol", 1, 0.2), ("carol", 2, 0.2)]  # fmt: skip
    for owner, nodes, iteration_s in seen:
        end(store, owner, f"n[1-{nodes}]", iteration_s)
        learner.learn(owner, KEY, nodes - 1, TimedRun(iteration_s, 900.0))
    profiles = read(store)
    for owner in ("alice", "bob", "carol", "dave"):
        mine = profiles.of_owner(owner)
        found = {extra: mine.estimate(spread_quantity(extra), R50) for extra in range(1, EXTRA_NODES + 1)}
        row, same = slowdown_row({extra: one for extra, one in found.items() if one}), learner.known(owner, KEY)
        assert row is not None
        assert same is not None
        assert row.expected == pytest.approx(same.expected)
        assert row.at_most == pytest.approx(same.at_most)


def test_the_largest_node_of_a_type_says_how_many_nodes_are_needed() -> None:
    nodes = [node(name, gpus=gpus, gpu_type=kind) for name, gpus, kind in (("n1", 4, "V100"), ("n2", 8, "v100"))]
    assert most_gpus_by_type([*nodes, node("n3", gpus=0), node("n4", gpus=2)]) == {"v100": 8, "a100": 2}
