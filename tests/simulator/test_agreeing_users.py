"""Who can checkpoint and who consents, drawn by user."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.generators.registry import generate_workload
from slurm_soda.simulator.runs.agreeing_users import LEAST_USERS, AgreeingUsers
from slurm_soda.simulator.workload import Workload

RATIOS = (0.0, 0.1, 0.3, 0.5, 0.9, 1.0)


def jobs_of(*sizes: int) -> Workload:
    """So many jobs of each user, in turns."""
    rows = [(turn, user) for user, size in enumerate(sizes) for turn in range(size)]
    return Workload.build("users", [{"submit_s": turn, "run_s": 10, "user": f"u{user}"} for turn, user in sorted(rows)])


HEAVY = jobs_of(*(60 // rank for rank in range(1, 21)))
"""20 users, the k-th with 1 / k of the first one's jobs."""
FEW = jobs_of(*[10] * (LEAST_USERS - 1))


@pytest.mark.parametrize("workload", [HEAVY, FEW], ids=["users", "jobs"])
@pytest.mark.parametrize("seed", range(5))
def test_whoever_agrees_at_a_ratio_does_at_every_larger_one(workload: Workload, seed: int) -> None:
    drawn = [AgreeingUsers(ratio, ratio).drawn(workload, seed) for ratio in RATIOS]
    for less, more in itertools.pairwise(drawn):
        assert (less.preemptible <= more.preemptible).all()
        assert (less.shares <= more.shares).all()
    assert not drawn[0].preemptible.any()
    assert drawn[-1].shares.all()


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("seed", range(5))
def test_the_ratio_is_met_within_the_jobs_of_one_user(ratio: float, seed: int) -> None:
    drawn = AgreeingUsers(can_checkpoint=ratio).drawn(HEAVY, seed)
    most = np.bincount(HEAVY.user).max()
    assert abs(drawn.preemptible.sum() - ratio * len(HEAVY)) <= most / 2
    assert drawn.shares.all()


def test_all_jobs_of_a_user_agree_or_none() -> None:
    drawn = AgreeingUsers(0.5, 0.5).drawn(HEAVY, 1)
    for user in range(len(HEAVY.users)):
        for column in (drawn.preemptible, drawn.shares):
            assert len(np.unique(column[HEAVY.user == user])) == 1
    assert (drawn.preemptible != drawn.shares).any(), "the two are drawn apart from each other"


@pytest.mark.parametrize("ratio", RATIOS)
def test_of_few_users_each_job_is_drawn(ratio: float) -> None:
    drawn = AgreeingUsers(consent=ratio).drawn(FEW, 1)
    assert drawn.shares.sum() == round(ratio * len(FEW))
    agreeing = AgreeingUsers(consent=ratio).notes(drawn)
    assert agreeing == (f"{100 * ratio:.0f} % of the jobs may share their GPUs (--consent {ratio}, drawn by job, as there"
                        f" are fewer than {LEAST_USERS} users)",)  # fmt: skip


def test_a_seed_is_a_draw() -> None:
    ratio = AgreeingUsers(0.5)
    columns = [ratio.drawn(HEAVY, seed).preemptible for seed in (1, 1, 2, 3)]
    assert (columns[0] == columns[1]).all()
    assert (columns[1] != columns[2]).any()
    assert (ratio.drawn(HEAVY, None).preemptible == columns[0]).all()


def test_jobs_of_nobody_are_drawn_one_by_one() -> None:
    workload = HEAVY.with_columns(user=np.where(HEAVY.user == 0, -1, HEAVY.user))
    drawn = AgreeingUsers(0.5).drawn(workload, 1)
    assert 0 < drawn.preemptible[workload.user < 0].sum() < (workload.user < 0).sum()


def test_inference_jobs_have_no_state_to_save() -> None:
    workload = generate_workload("soda-month", 1, 2000)
    served = workload.category == workload.categories.index("inference")
    drawn = AgreeingUsers(can_checkpoint=1.0).drawn(workload, 1)
    assert (drawn.preemptible == ~served).all()


@pytest.mark.parametrize("ratio", [-0.1, 1.01, float("nan")])
def test_what_is_no_ratio(ratio: float) -> None:
    with pytest.raises(SimulatorError, match=r"^can_checkpoint = \S+ is not allowed; use a ratio from 0 to 1$"):
        AgreeingUsers(can_checkpoint=ratio)
    with pytest.raises(SimulatorError, match=r"^consent = \S+ is not allowed; use a ratio from 0 to 1$"):
        AgreeingUsers(consent=ratio)
