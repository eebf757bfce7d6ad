"""What becomes of a guest and its host where run times are uncertain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.run_times.expected_run_times import ExpectedRunTimes
from slurm_soda.policies.run_times.remaining_time_curve import BINS, RemainingTimeCurve, find_bins
from slurm_soda.policies.sharing.arithmetic.completion_times import OverlappedJob
from slurm_soda.policies.sharing.arithmetic.revocation import GuestTerms, schedule_as_guest
from slurm_soda.policies.sharing.mechanism.mechanism import SLURM
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.sharing.soda.guest_outcome import WaitingGuest, expect_outcomes
from slurm_soda.policies.sharing.soda.policy import Soda
from slurm_soda.policies.sharing.soda.remaining_work import VALUES, expect_remaining_s
from slurm_soda.policies.snapshot import NodeTable
from tests.policies.cases import verdicts
from tests.policies.sharing.scenes import Table, scene
from tests.policies.sharing.test_soda import job, on

TIMES_S = st.floats(1.0, 1e6)
XIS = st.floats(1.0, 4.0)


@given(
    st.lists(TIMES_S, min_size=1, max_size=4), st.lists(TIMES_S, min_size=1, max_size=4), XIS, XIS,
    st.floats(0.0, 1e5), st.sampled_from([100.0, np.inf]), st.booleans(), st.sampled_from([0.0, 60.0, np.inf]),
)  # fmt: skip
def test_the_outcome_is_the_mean_over_all_that_may_be(
    guest_s: list[float], host_s: list[float], guest_xi: float, host_xi: float, wait_s: float, every_s: float,
    revokes: bool, move_s: float,
) -> None:  # fmt: skip
    terms = GuestTerms(1.5, 2.0, every_s, revokes)
    found = expect_outcomes(
        WaitingGuest(np.array(guest_s), terms, wait_s, move_s),
        np.array([host_s]), np.array([guest_xi]), np.array([host_xi]), np.ones(1),
    )  # fmt: skip
    sooner, later, out_of_turn, moving = [], [], [], []
    for mine_s in guest_s:
        for its_s in host_s:
            both = schedule_as_guest(mine_s, [OverlappedJob(its_s, host_xi, guest_xi)], terms)
            outlives_s = both.new_end_s - both.ends_s[0]
            early_s = max(wait_s - both.ends_s[0], 0.0) if outlives_s > 0 else 0.0
            waits_on_s = early_s if revokes or move_s < np.inf else 0.0
            out_of_turn.append(min(early_s - waits_on_s, max(outlives_s, 0.0)))
            sooner.append(wait_s + mine_s - both.new_end_s - waits_on_s)
            later.append(both.ends_s[0] - its_s)
            moving.append(wait_s < min(both.new_end_s, its_s))
    stays = found[0]
    assert stays.sooner_s[0] == pytest.approx(np.mean(sooner), rel=1e-6, abs=1e-3)
    assert stays.later_s[0] == pytest.approx(np.mean(later), rel=1e-6, abs=1e-3)
    assert stays.out_of_turn_s[0] == pytest.approx(np.mean(out_of_turn), rel=1e-6, abs=1e-3)
    assert 0.0 <= stays.guest_work_s[0] <= np.mean(guest_s) * (1 + 1e-9)
    assert len(found) == (2 if move_s < np.inf and any(moving) else 1)
    if len(found) > 1:
        apart_s = max(wait_s - 1.5, 0.0)
        before_s = apart_s / guest_xi - move_s
        slowed_s = apart_s * (1.0 - 1.0 / host_xi)
        mixed = [before_s if moved else one for moved, one in zip(moving, sooner, strict=True)]
        assert found[1].sooner_s[0] == pytest.approx(np.mean(mixed), rel=1e-6, abs=1e-3)
        mixed = [slowed_s if moved else one for moved, one in zip(moving, later, strict=True)]
        assert found[1].later_s[0] == pytest.approx(np.mean(mixed), rel=1e-6, abs=1e-3)


def test_who_moves_has_done_by_its_turn_what_it_did_beside_its_host() -> None:
    """900 s of work, and a GPU of its own in 300 s: until then it does 200 s of it, and its host 240 s instead of 300."""
    guest = WaitingGuest(np.array([900.0]), GuestTerms(revokes=False), 300.0, move_s=20.0)
    _, moves = expect_outcomes(guest, np.array([[5000.0]]), np.array([1.5]), np.array([1.25]), np.ones(1))
    assert moves.sooner_s[0] == moves.guest_work_s[0] == pytest.approx(200.0 - 20.0)
    assert moves.later_s[0] == pytest.approx(60.0)
    assert moves.out_of_turn_s[0] == 0.0


def wide(*run_s: float) -> np.ndarray:
    """Each of these run times as likely, and all others nearly impossible."""
    found = np.full(BINS, 1e-9)
    np.add.at(found, find_bins(np.array(run_s)), 1.0)
    return found / found.sum()


def learned(snapshot: SharingSnapshot, *probability: np.ndarray, worked_s: tuple[float, ...]) -> SharingSnapshot:
    """A distribution for each job of the table, and what it has done."""
    times = ExpectedRunTimes(np.array(probability), np.arange(len(probability)), np.array(worked_s))
    left_s = [RemainingTimeCurve.of(one).remaining(done).value for one, done in zip(probability, worked_s, strict=True)]
    return replace(
        snapshot, run_times=times, mechanism=SLURM, jobs=snapshot.jobs.with_columns(remaining_s=np.array(left_s))
    )


def test_what_is_left_is_spread_around_the_median_and_ends_with_what_was_done() -> None:
    jobs = [on(1, 1.0, 0), job(2, 1.0), job(3, 777.0)]
    snapshot = scene(jobs, NodeTable.uniform(1, 1), Table(else_xi=1.1))
    even = np.full(BINS, 1.0 / BINS)
    snapshot = learned(snapshot, even, even, even, worked_s=(5000.0, 0.0, 0.0))
    snapshot = replace(snapshot, run_times=replace(snapshot.run_times, kind=np.array([0, 1, -1])))
    snapshot = replace(
        snapshot, jobs=snapshot.jobs.with_columns(remaining_s=np.append(snapshot.jobs.remaining_s[:2], 777.0))
    )
    left_s = expect_remaining_s(snapshot, np.arange(3))
    assert left_s.shape == (3, VALUES)
    assert (np.diff(left_s[:2], axis=1) > 0).all()
    assert (left_s[2] == 777.0).all()
    middle = VALUES // 2
    for row in (0, 1):
        assert left_s[row, middle - 1] < snapshot.jobs.remaining_s[row] < left_s[row, middle]


@pytest.mark.parametrize(("host_may_end", "joins"), [(False, True), (True, False)])
def test_nobody_joins_a_host_that_may_well_end_first(host_may_end: bool, joins: bool) -> None:
    """By the medians the guest ends long before its host, whatever the rest of the host's distribution says."""
    jobs = [
        on(1, 1.0, 0, preemptible=False),
        on(2, 500.0, 1, preemptible=False, shares=False),
        job(3, 1.0, preemptible=False),
    ]
    host, guest = wide(*([5_000.0] * 4 if host_may_end else [40_000.0] * 4), *[40_000.0] * 5), wide(6_000.0)
    snapshot = scene(jobs, NodeTable.uniform(1, 2), Table(else_xi=1.01))
    snapshot = learned(snapshot, host, wide(600.0), guest, worked_s=(100.0, 100.0, 0.0))
    assert snapshot.jobs.remaining_s[0] > 5 * snapshot.jobs.remaining_s[2]
    verdict = verdicts(Soda(change_s=10.0).decide(snapshot))[3]
    assert verdict == ("START" if joins else "WAIT")


def test_one_value_says_of_points_what_as_many_equal_ones_say() -> None:
    snapshot = scene([on(1, 400.0, 0), job(2, 70.0)], NodeTable.uniform(1, 1), Table(else_xi=1.1))
    left_s = expect_remaining_s(snapshot, np.arange(2))
    assert left_s.tolist() == [[400.0], [70.0]]
    slowdown, terms = np.array([1.2]), GuestTerms(1.5, 2.0, 100.0, revokes=True)
    one, many = (
        expect_outcomes(
            WaitingGuest(np.repeat(left_s[1], times), terms, 90.0, 60.0), left_s[:1], slowdown, slowdown, np.ones(1)
        )[0]
        for times in (1, VALUES)
    )
    np.testing.assert_allclose(np.stack(one), np.stack(many), rtol=1e-12)
