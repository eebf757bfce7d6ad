"""Lifts: order, no negative ones, no needless ones, no high ones, few updates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.policies.engine.job_rows import build_job_table
from slurm_soda.policies.engine.lift_bounds import LEAST_PRIORITY
from slurm_soda.policies.pools.kinds import NodeClass, PoolKind
from slurm_soda.policies.pools.layout.partitions import PoolPartition, PoolTable
from slurm_soda.policies.pools.stages.in_force import PoolsInForce
from slurm_soda.policies.snapshot import UNKNOWN_SITE_FACTOR, ClusterSnapshot, NodeTable
from slurm_soda.slurm_ext.read.snapshot import build_snapshot
from slurm_soda.slurm_ext.write.lifts import PRIORITY_CEILING, PRIORITY_SPACING
from slurm_soda.slurm_ext.write.site_factors import compute_site_factors
from tests.sampling import examples
from tests.slurm_ext import records
from tests.slurm_ext.order_cases import Case, cases, ids, least_priorities, ranked_cases


def test_a_requeued_job_is_lifted_past_one_of_its_priority_that_was_submitted_before_its_requeue() -> None:
    """Slurm breaks ties by its own time of submission, which the requeue moved: by ids alone job 1 would be first."""
    case = Case({1: (1, 0, 2), 2: (1, 0, 8)}, leading=(1,), waiting=(2,))
    assert case.changes() == {}
    case = replace(case, requeued=(1,))
    assert case.changes().keys() == {1}
    assert case.after().order() == [1, 2]


def test_a_job_is_lifted_past_a_task_of_its_priority_whose_array_was_submitted_before_it() -> None:
    """Slurm compares the id of the array, 100, not the one that the task got when it became a job of its own."""
    task = records.job(102, array_job_id=100, array_task="3")
    snapshot = build_snapshot(
        200.0, [records.job(100, array_task="4-9"), records.job(101), task], [records.node("n1")], {}, {}, {}
    )
    queue = Case({}, leading=(101,), waiting=(102,)).queue
    assert compute_site_factors(queue, snapshot, depth=9) == {101: PRIORITY_SPACING}
    queue = Case({}, leading=(102,), waiting=(100, 101)).queue
    assert compute_site_factors(queue, snapshot, depth=9) == {}


@pytest.mark.parametrize("nice", [50, 10_000])
def test_a_lift_of_jobs_that_slurm_shows_at_its_least_priority_takes_effect_soon(nice: int) -> None:
    """Job 1 is less nice, and nobody may pass it; the others' own priorities are far below 1, which Slurm does not show."""
    own, factors = {1: 500, 2: 90 - nice, 3: 60 - nice, 4: 80 - nice}, dict.fromkeys(range(1, 5), 0)
    for leading, waiting in (((4, 3), (1, 2)), ((3,), (1, 2, 4)), ((), (1, 2, 3, 4))):
        queue, changes = Case({}, leading=leading, waiting=waiting).queue, {}
        for _ in range(30):
            shown = {i: max(LEAST_PRIORITY, own[i] + factors[i]) for i in own}
            order = sorted(shown, key=lambda i: (-shown[i], i))
            assert order[0] == 1
            rows = [{"job_id": i, "priority": shown[i], "site_factor": factors[i], "nice": nice * (i > 1)} for i in own]
            jobs = build_job_table(rows)
            snapshot = ClusterSnapshot(0.0, jobs, NodeTable.uniform(1, 4), jobs.partitions)
            changes = compute_site_factors(queue, snapshot, depth=9)
            factors |= changes
        assert not changes
        assert order == [1, *leading, *waiting[1:]]
        assert shown[order[1]] <= shown[order[3]] + 4 * PRIORITY_SPACING


@given(cases())
@settings(max_examples=examples(100), deadline=None)
def test_the_plans_order_is_kept_without_a_negative_site_factor(case: Case) -> None:
    after = case.after()
    assert [(a, b) for a, b in case.pairs() if after.key(a) > after.key(b)] == []
    assert min(after.factors().values()) >= 0
    assert all(after.rows[i][1] == 0 for i in (*case.never, *case.others))


@given(cases(), st.data())
@settings(max_examples=examples(100), deadline=None)
def test_nobody_is_lifted_past_a_job_that_has_waited_long(case: Case, data: st.DataObject) -> None:
    overdue = data.draw(st.lists(st.sampled_from([0, *case.waiting, *case.unranked])))
    case = replace(case, overdue=tuple(overdue))
    after, natural = case.after(), case.natural()
    for one in {*overdue} - {0}:
        behind = [i for i in case.rows if natural.key(one) < natural.key(i)]
        assert all(natural.key(one) < after.key(i) for i in behind)
    assert min(after.factors().values()) >= 0


@given(ranked_cases())
@settings(max_examples=examples(200), deadline=None)
def test_nobody_is_lifted_past_a_job_that_is_ranked_before_it_and_does_not_fit(case: Case) -> None:
    after, natural = case.after(), case.natural()
    ranks = dict(zip((*case.leading, *case.waiting), case.ranks, strict=True)) | dict.fromkeys(case.unranked, -1)
    skipped = [i for i in (*case.waiting, *case.unranked) if i in case.overdue]
    for job in (*case.leading, *case.waiting):
        ahead = [i for i in skipped if ranks[i] < ranks[job] and natural.key(i) < natural.key(job)]
        assert all(after.key(i) < after.key(job) for i in ahead)
        if not ahead:
            assert all(after.key(job) < after.key(i) for one, i in case.pairs() if one == job)
    assert min(after.factors().values()) >= 0
    assert after.changes() == {}


@given(cases())
@settings(max_examples=examples(100), deadline=None)
def test_no_job_is_lifted_that_could_stay(case: Case) -> None:
    """From Slurm's own order: who is lifted is lifted in every solution, and by no more than the spacing of those below."""
    case = case.natural()
    after, least = case.after(), least_priorities(case)
    lifted = [i for i, factor in after.factors().items() if factor]
    assert lifted == [i for i, (natural, _, _) in case.rows.items() if least[i] > natural]
    for i in lifted:
        natural, factor, _ = after.rows[i]
        assert least[i] <= natural + factor <= least[i] + PRIORITY_SPACING * len(lifted)


@given(cases())
@settings(max_examples=examples(100), deadline=None)
def test_no_lift_goes_higher_than_just_above_those_that_it_passes(case: Case) -> None:
    after, least = case.after(), least_priorities(case)
    lifted = [i for i, factor in after.factors().items() if factor]
    for i in lifted:
        assert sum(after.rows[i][:2]) <= least[i] + PRIORITY_SPACING * (len(lifted) + 2)
        assert case.rows[i][0] <= least[i] + PRIORITY_SPACING * (len(lifted) + 2), (
            "a lift that nobody needs is withdrawn"
        )


@given(cases())
@settings(max_examples=examples(100), deadline=None)
def test_an_unchanged_queue_needs_no_update_as_it_grows_older(case: Case) -> None:
    case = case.after()
    for age in range(10):
        older = replace(case, rows={i: (n + 7 * age, f, g) for i, (n, f, g) in case.rows.items()})
        assert older.changes() == {}


@given(cases())
@settings(max_examples=examples(100), deadline=None)
def test_a_lifted_job_that_does_not_fit_stops_nobody_that_slurm_would_have_started(case: Case) -> None:
    """In the main loop, which stops at the first job that does not fit; natural priorities are far enough apart."""
    rows = {i: (1000 * n, 0, g) for i, (n, _, g) in case.rows.items()}
    case = replace(case, rows=rows, leading=(), waiting=(*case.leading, *case.waiting))
    after = case.after()
    waiting = set(case.waiting)
    for free in (0, 1, 2, 3):
        stock, ours = (
            next((i for i in one.order() if i in waiting and rows[i][2] > free), None) for one in (case, after)
        )
        if stock is not None and ours is not None:
            tried = [i for i in after.order() if i in waiting and after.key(i) < after.key(ours)]
            reached = [i for i in case.order() if i in waiting and case.key(i) < case.key(stock)]
            assert set(reached) <= set(tried)


def test_an_order_that_slurm_has_already_needs_no_lift() -> None:
    case = Case({1: (5, 0, 1), 2: (5, 0, 1), 3: (5, 0, 1), 4: (9, 0, 1)}, (4, 1), (2, 3))
    assert case.changes() == {}


def test_one_job_that_goes_first_is_one_small_lift() -> None:
    rows = dict.fromkeys(range(1, 201), (100, 0, 1))
    case = Case(rows, (150,), tuple(i for i in rows if i != 150))
    assert case.changes() == {150: PRIORITY_SPACING}


def test_a_waiting_job_does_not_pass_smaller_ones() -> None:
    rows = {1: (30, 0, 1), 2: (20, 0, 4), 3: (10, 0, 2)}
    assert Case(rows, waiting=(3, 2, 1)).after().order() == [1, 3, 2]
    assert Case(rows, leading=(3,), waiting=(2, 1)).after().order() == [3, 1, 2]


def test_of_each_size_no_more_are_lifted_than_the_nodes_have_room_for() -> None:
    rows = {i: (i, 0, 4) for i in range(1, 101)}
    assert len(Case(rows, waiting=tuple(rows), nodes=3).changes()) == 6
    assert len(Case(rows, waiting=tuple(rows), depth=5).changes()) == 5


def test_no_job_that_nothing_can_hold_is_passed_by_one_that_waits() -> None:
    rows = {1: (10, 0, 1), 2: (90_000, 0, 4)}
    assert Case(rows, waiting=(1,), never=(2,)).changes() == {}
    assert Case(rows, leading=(1,), never=(2,)).changes() == {1: 89_990 + PRIORITY_SPACING}


def test_a_job_that_starts_goes_before_those_that_it_may_pass_below_the_one_that_it_must_not_skip() -> None:
    case = Case({1: (90, 0, 4), 2: (50, 0, 8), 3: (40, 0, 1), 4: (10, 0, 1)}, (4,), (2, 1, 3))
    assert case.after().order() == [4, 1, 2, 3]
    assert replace(case, ranks=(1, 0, 2, 3)).after().order() == [4, 1, 2, 3]
    assert replace(case, ranks=(1, 0, 2, 3), overdue=(2,)).after().order() == [1, 2, 4, 3]
    assert replace(case, ranks=(-1, 0, 2, 3), overdue=(2,)).after().order() == [4, 1, 2, 3]
    assert replace(case, waiting=(3,), unranked=(1, 2), ranks=(0, 1), overdue=(2,)).after().order() == [1, 2, 4, 3]


def test_a_job_that_starts_passes_what_the_one_that_it_must_not_skip_is_lifted_past() -> None:
    case = Case({1: (90, 0, 4), 2: (50, 0, 4), 3: (10, 0, 1)}, (3,), (2, 1), ranks=(1, 0, 2), overdue=(2,))
    assert case.after().order() == [2, 3, 1]


def test_a_job_that_waits_skips_no_larger_one_and_takes_no_smaller_one_with_it() -> None:
    case = Case({1: (90, 0, 2), 2: (50, 0, 4), 3: (10, 0, 2)}, (), (2, 3, 1), ranks=(0, 1, 2), overdue=(2,))
    assert case.after().order() == [1, 2, 3]
    assert replace(case, overdue=()).after().order() == [3, 1, 2]


def test_what_the_policy_says_nothing_about_keeps_its_priority_and_is_passed_by_what_starts_alone() -> None:
    case = Case({1: (10, 0, 1), 2: (20, 0, 1), 3: (30, 9, 1)}, (1,), (2,), unranked=(3,))
    assert case.changes() == {1: 20 + PRIORITY_SPACING, 3: 0}


def test_no_job_is_lifted_past_one_that_is_less_nice() -> None:
    case = Case({1: (10, 0, 1), 2: (20, 0, 1), 3: (5, 0, 1)}, (1, 3), (2,))
    snapshot = case.snapshot
    for nice, changes in (
        (ids(0, 0, 0), {1: 42, 3: 31}),
        (ids(100, 0, 0), {3: 31}),
        (ids(100, 100, 0), {1: 42, 3: 31}),
    ):
        jobs = snapshot.jobs.with_columns(nice=nice)
        assert compute_site_factors(case.queue, replace(snapshot, jobs=jobs), depth=9) == changes


def test_a_job_that_is_not_eligible_is_not_passed_and_not_lifted() -> None:
    assert Case({1: (10, 0, 1), 2: (900, 7, 1)}, leading=(1,), others=(2,)).changes() == {2: 0}


def test_a_job_whose_factor_slurm_does_not_tell_is_passed_over() -> None:
    case = Case({1: (900, 0, 1), 2: (5, 0, 1)}, (2, 1))
    table = case.snapshot.jobs
    unknown = table.with_columns(site_factor=ids(UNKNOWN_SITE_FACTOR, 0))
    assert compute_site_factors(case.queue, replace(case.snapshot, jobs=unknown), depth=10) == {}


def test_whoever_stands_above_the_ceiling_is_not_passed() -> None:
    assert Case({1: (4_000_000_000, 0, 1), 2: (5, 0, 1), 3: (9, 0, 1)}, (2, 3, 1)).after().order() == [1, 2, 3]
    top = Case({1: (PRIORITY_CEILING - 100, 0, 1), 2: (5, 0, 1)}, (2, 1)).after()
    assert top.order() == [2, 1]


def test_partitions_without_a_common_node_or_tier_are_not_compared() -> None:
    case = Case({1: (10, 0, 1), 2: (90, 0, 1)}, (1,), (2,), partitions=((1, "a"), (2, "b")))
    snapshot = case.snapshot
    assert case.changes() == {1: 80 + PRIORITY_SPACING}
    apart = replace(snapshot.nodes, in_partition=np.arange(100)[:, None] % 2 == np.arange(2))
    assert compute_site_factors(case.queue, replace(snapshot, nodes=apart), depth=9) == {}
    node_class = NodeClass("", 8, 64)
    parts = [
        PoolPartition(name, "main", PoolKind.SMALL, node_class, False, ("n1",), tier, 8)
        for name, tier in (("a", 2), ("b", 1))
    ]
    tiers = replace(snapshot, pools=PoolsInForce(PoolTable({part.name: part for part in parts})))
    assert compute_site_factors(case.queue, tiers, depth=9) == {}
    read = replace(snapshot, tiers={"a": 2, "b": 1})
    assert compute_site_factors(case.queue, read, depth=9) == {}
    equal = replace(snapshot, tiers={"a": 1, "b": 1})
    assert compute_site_factors(case.queue, equal, depth=9) == compute_site_factors(case.queue, snapshot, depth=9) != {}


@pytest.mark.parametrize("place", [lambda n: 0, lambda n: n // 2, lambda n: n])
def test_jobs_that_come_one_by_one_cost_few_updates(place: Callable[[int], int]) -> None:
    case, written = Case({1: (10, 0, 1), 2: (11, 0, 1)}, waiting=(1, 2)), 0
    for job_id in range(3, 43):
        waiting = list(case.waiting)
        waiting.insert(place(len(waiting)), job_id)
        case = replace(case, rows={**case.rows, job_id: (10, 0, 1)}, waiting=tuple(waiting))
        written += len(case.changes())
        case = case.after()
        assert case.order() == list(case.waiting)
    assert written <= 4 * 40


def test_no_pending_job_is_no_lift() -> None:
    assert Case({}).changes() == {}


def test_priorities_that_waver_with_rounding_cost_no_updates() -> None:
    rng = np.random.default_rng(7)
    rows = {i: (int(rng.integers(1000, 1030)), 0, 1) for i in range(1, 60)}
    case = Case(rows, waiting=tuple(rng.permutation(np.arange(1, 60)).tolist())).after()
    written = []
    for _ in range(30):
        wavering: Sequence[int] = rng.integers(0, 2, 60).tolist()
        case = replace(case, rows={i: (n + wavering[i], f, g) for i, (n, f, g) in case.rows.items()})
        written.append(len(case.changes()))
        case = case.after()
        case = replace(case, rows={i: (n - wavering[i], f, g) for i, (n, f, g) in case.rows.items()})
    assert sum(written[10:]) <= 20


@pytest.mark.parametrize(("bands", "passes"), [((0, 1), False), ((0, 0), True), ((1, 0), True)])
def test_nobody_is_lifted_past_a_waiting_job_of_a_better_band(bands: tuple[int, int], passes: bool) -> None:
    """Job 1 waits and does not fit, job 2 starts now, and the policy ranks it behind; nobody is to be kept from skipping."""
    case = Case({1: (100, 0, 8), 2: (50, 0, 1)}, leading=(2,), waiting=(1,), ranks=(1, 0))
    jobs = case.snapshot.jobs.with_columns(band=ids(*bands))
    snapshot = replace(case.snapshot, jobs=jobs)
    changes = compute_site_factors(case.queue, snapshot, depth=1000, skipping_limit_s=math.inf)
    assert (changes.get(2, 0) > 50) == passes
    assert 1 not in changes
