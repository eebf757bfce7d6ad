"""What a guest gains that is requeued when its host ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.sharing.arithmetic.completion_times import OverlappedJob, schedule_together
from slurm_soda.policies.sharing.arithmetic.revocation import (
    GuestTerms,
    kept_ratios,
    mean_guest_completions_s,
    schedule_as_guest,
)
from slurm_soda.policies.sharing.arithmetic.sharing_decision import (
    Footprint,
    NewJob,
    PairSlowdown,
    Partner,
    SharingDecision,
    decide_sharing,
)
from slurm_soda.policies.sharing.arithmetic.throughput import Throughput
from slurm_soda.policies.sharing.job_kinds import Estimate, Source

WORK = st.floats(0.0, 1e4)
XI = st.floats(1.0, 4.0)
TERMS = st.builds(
    GuestTerms, start_s=st.sampled_from([0.0, 1.3, 100.0]), readmit_s=st.sampled_from([0.0, 5.0]),
    saves_every_s=st.sampled_from([np.inf, 7.0]), revokes=st.booleans(),
)  # fmt: skip


def test_a_guest_that_ends_first_loses_nothing() -> None:
    host = OverlappedJob(100.0, 1.2, 1.5)
    found = schedule_as_guest(10.0, [host], GuestTerms(start_s=2.0, readmit_s=9.0))
    assert found.new_end_s == pytest.approx(2.0 + 15.0)
    assert found.ends_s == pytest.approx((17.0 + 98.0 - 15.0 / 1.2,))
    assert found.lost_s == 0.0


@pytest.mark.parametrize(("every_s", "kept_s"), [(np.inf, 0.0), (2.0, 6.0), (6.75, 6.75), (6.8, 0.0)])
def test_a_guest_that_outlives_its_host_does_again_what_it_had_not_saved(every_s: float, kept_s: float) -> None:
    terms = GuestTerms(start_s=1.0, readmit_s=5.0, saves_every_s=every_s)
    found = schedule_as_guest(100.0, [OverlappedJob(10.0, 1.5, 2.0)], terms)
    assert found.ends_s == pytest.approx((14.5,))
    assert found.lost_s == pytest.approx(6.75 - kept_s)
    assert found.new_end_s == pytest.approx(14.5 + 5.0 + 100.0 - kept_s)


def test_the_first_host_that_ends_ends_it_and_the_last_one_makes_room() -> None:
    hosts = [OverlappedJob(10.0, 1.0, 1.5), OverlappedJob(50.0, 1.0, 2.0)]
    found = schedule_as_guest(100.0, hosts, GuestTerms())
    assert found.ends_s == (10.0, 50.0)
    assert found.lost_s == pytest.approx(5.0)
    assert found.new_end_s == pytest.approx(150.0)


@given(WORK, WORK, XI, XI, TERMS)
def test_columns_say_the_same_as_single_pairs(
    work_s: float, host_s: float, xi: float, its: float, terms: GuestTerms
) -> None:
    one = schedule_as_guest(work_s, [OverlappedJob(host_s, its, xi)], terms)
    mean = mean_guest_completions_s(np.array(work_s), np.array(host_s), np.array(xi), np.array(its), terms)
    assert float(mean) == pytest.approx(one.mean_s, rel=1e-6, abs=1e-6)


@given(WORK, WORK, XI, XI)
def test_without_revocation_and_delay_it_is_theorem_1(work_s: float, host_s: float, xi: float, its: float) -> None:
    hosts = [OverlappedJob(host_s, its, xi)]
    found, plain = schedule_as_guest(work_s, hosts, GuestTerms(revokes=False)), schedule_together(work_s, hosts)
    assert (found.new_end_s, found.ends_s) == (plain.new_end_s, plain.ends_s)


@pytest.mark.parametrize(("guest_s", "host_s", "every_s", "ratio"), [
    (10.0, 100.0, np.inf, 1.0), (100.0, 40.0, np.inf, 0.0), (100.0, 40.0, 25.0, 25.0 / 30.0),
    (np.nan, 40.0, 25.0, 0.5), (10.0, np.nan, np.inf, 0.5), (100.0, 0.0, np.inf, 0.0),
])  # fmt: skip
def test_what_counts_of_the_work_of_a_guest(guest_s: float, host_s: float, every_s: float, ratio: float) -> None:
    columns = (np.array(value) for value in (guest_s, host_s, 2.0, 1.5))
    assert float(kept_ratios(*columns, start_s=0.0, saves_every_s=np.array(every_s))) == pytest.approx(ratio)


def decided(new_s: float, host_s: float, terms: GuestTerms | None) -> SharingDecision:
    new = NewJob(Throughput(1.0, 0.0), 1, new_s, Footprint(0.0, 0.0))
    xi = Estimate(1.1, 0.0, Source.MEASURED)
    return decide_sharing(new, [Partner(host_s, np.inf)], lambda _: [PairSlowdown(xi, xi)], terms=terms)


def test_a_pair_is_made_where_the_guest_ends_first_or_saves_enough() -> None:
    assert decided(100.0, 80.0, None).share
    assert decided(50.0, 80.0, GuestTerms()).share
    lost = decided(100.0, 80.0, GuestTerms())
    assert not lost.share
    assert "its host is expected to end first, which would cost it 80 s of work" in lost.reason
    assert decided(100.0, 80.0, GuestTerms(saves_every_s=10.0)).share
    assert not decided(100.0, 80.0, GuestTerms(saves_every_s=10.0, readmit_s=75.0)).share
