"""Who is held back, when, how far, and when again free: tables and properties of the pure decision."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.node_limits.contention_sample import ContentionSample, CpuJob, GpuJob
from slurm_soda.policies.node_limits.eliminator import (
    EliminatorState,
    LimitAction,
    LimitCores,
    ReleaseBandwidth,
    RestoreCores,
    ThrottleBandwidth,
    decide_limits,
)
from slurm_soda.policies.node_limits.thresholds import ContentionThresholds

GB = 1e9
MBA = ContentionThresholds(mba_steps=(50, 20, 10), node_bytes_per_s=100 * GB)
CORES = ContentionThresholds(node_bytes_per_s=100 * GB)
BLIND = ContentionThresholds(mba_steps=(50, 20, 10), monitored=False, stable_samples=3, give_up_samples=4)
GPU = (GpuJob(900, util_ratio=0.9),)


def node(total_gb: float | None, *jobs: tuple[int, int, float | None], complete: bool = True) -> ContentionSample:
    """A sample with a GPU job; CPU jobs as (id, cores, GB/s)."""
    cpu = tuple(CpuJob(i, cores, None if gb is None else gb * GB) for i, cores, gb in jobs)
    return ContentionSample(cpu, GPU, None if total_gb is None else total_gb * GB, complete=complete)


def blind(util: float | None, *jobs: tuple[int, int]) -> ContentionSample:
    return ContentionSample(tuple(CpuJob(i, cores) for i, cores in jobs), (GpuJob(900, util),))


def replay(
    samples: Iterable[ContentionSample], limits: ContentionThresholds, state: EliminatorState | None = None
) -> tuple[list[LimitAction], EliminatorState]:
    """All actions, flat, and the last state."""
    state, actions = state or EliminatorState(), []
    for sample in samples:
        decision = decide_limits(sample, state, limits)
        state = decision.state
        actions += decision.actions
    return actions, state


@pytest.mark.parametrize(
    ("samples", "actions"),
    [
        ([node(80, (1, 4, 40))], []),
        ([node(80, (1, 4, 40))] * 2, [ThrottleBandwidth(1, 50)]),
        ([node(75, (1, 4, 40))] * 9, []),
        ([node(75.1, (1, 4, 40))] * 2, [ThrottleBandwidth(1, 50)]),
        ([node(80, (1, 4, 40)), node(70, (1, 4, 40))] * 3, []),
        ([node(80, (1, 4, 10), (2, 4, 40))] * 2, [ThrottleBandwidth(2, 50)]),
        ([node(80, (2, 4, 20), (1, 4, 20))] * 2, [ThrottleBandwidth(1, 50)]),
        ([node(80, (1, 4, 40))] * 8, [ThrottleBandwidth(1, 50), ThrottleBandwidth(1, 20), ThrottleBandwidth(1, 10)]),
        (
            [node(80, (1, 4, 40)), node(80, (1, 4, 40)), node(80, (1, 4, 20), (2, 4, 30)), node(80, (2, 4, 30))],
            [ThrottleBandwidth(1, 50), ThrottleBandwidth(2, 50)],
        ),
        # jobs without a counter come after those with one, most cores first
        (
            [node(80, (1, 4, None), (2, 9, None), (3, 1, 6))] * 10,
            [
                ThrottleBandwidth(3, 50),
                ThrottleBandwidth(3, 20),
                ThrottleBandwidth(3, 10),
                ThrottleBandwidth(2, 50),
                ThrottleBandwidth(2, 20),
            ],
        ),
        # what fills the memory is none of these
        ([node(90, (1, 4, 4.4))] * 9, []),
        # a value that is missing changes nothing; a lower bound is enough to throttle
        ([node(80, (1, 4, 40)), node(None, (1, 4, None)), node(80, (1, 4, 40))], [ThrottleBandwidth(1, 50)]),
        ([node(80, (1, 4, 40), complete=False)] * 2, [ThrottleBandwidth(1, 50)]),
        ([node(80, (1, 4, 40)), node(10, (1, 4, 5), complete=False), node(80, (1, 4, 40))], [ThrottleBandwidth(1, 50)]),
        ([node(80)] * 4, []),
    ],
)
def test_throttled_within_two_samples_over_the_threshold(
    samples: list[ContentionSample], actions: list[LimitAction]
) -> None:
    assert replay(samples, MBA)[0] == actions


def test_released_step_by_step_after_five_samples_well_below() -> None:
    loud, quiet = node(80, (1, 4, 40)), node(50, (1, 4, 10))
    between = node(65, (1, 4, 10))
    _, state = replay([loud] * 4, MBA)
    assert replay([quiet] * 4 + [between] + [quiet] * 4, MBA, state)[0] == []
    assert replay([between] * 50, MBA, state)[0] == []
    assert replay([quiet] * 5, MBA, state)[0] == [ThrottleBandwidth(1, 50)]
    assert replay([quiet] * 10, MBA, state)[0] == [ThrottleBandwidth(1, 50), ReleaseBandwidth(1)]
    assert replay([quiet] * 99, MBA, state)[0] == [ThrottleBandwidth(1, 50), ReleaseBandwidth(1)]


def test_the_most_limited_job_is_released_first() -> None:
    loud = [node(80, (1, 4, 40), (2, 4, 5.5))] * 6 + [node(80, (1, 4, 1), (2, 4, 30))] * 2
    _, state = replay(loud, MBA)
    quiet = [node(20, (1, 4, 5), (2, 4, 5))] * 20
    assert replay(quiet, MBA, state)[0] == [
        ThrottleBandwidth(1, 20),
        ThrottleBandwidth(1, 50),
        ReleaseBandwidth(1),
        ReleaseBandwidth(2),
    ]


def test_a_job_that_comes_back_over_the_threshold_waits_longer_each_time() -> None:
    loud, quiet = node(80, (1, 4, 40)), node(30, (1, 4, 20))
    state, waits = EliminatorState(), []
    for _ in range(7):
        _, state = replay([loud] * 2, MBA, state)
        wait = 0
        while any(h.level for h in state.held):
            _, state = replay([quiet], MBA, state)
            wait += 1
        waits.append(wait)
    assert waits == [5, 10, 20, 40, 80, 80, 80]


def test_without_mba_the_worst_job_loses_half_its_cores_once() -> None:
    loud = node(80, (1, 5, 40), (2, 1, 30), (3, 8, 10))
    actions, state = replay([loud] * 9, CORES)
    assert actions == [LimitCores(1, 3), LimitCores(3, 4)]
    assert replay([node(20, (1, 5, 1), (2, 1, 1), (3, 8, 1))] * 30, CORES, state)[0] == [
        RestoreCores(1),
        RestoreCores(3),
    ]
    twice = ContentionThresholds(node_bytes_per_s=100 * GB, most_halvings=2)
    assert replay([node(80, (3, 8, 10))] * 9, twice)[0] == [LimitCores(3, 4), LimitCores(3, 2)]


def test_mba_that_is_used_up_meanwhile() -> None:
    """Other jobs lose cores, and a job that is throttled is released in one step."""
    _, state = replay([node(80, (1, 4, 40), (2, 4, 30))] * 4, MBA)
    actions, state = replay([node(80, (1, 4, 40), (2, 4, 30))] * 4, CORES, state)
    assert actions == [LimitCores(2, 2)]
    quiet = [node(20, (1, 4, 1), (2, 4, 1))] * 20
    assert replay(quiet, CORES, state)[0] == [ReleaseBandwidth(1), RestoreCores(2)]


def test_a_limit_that_could_not_be_set_is_tried_again() -> None:
    _, state = replay([node(80, (1, 4, 40))] * 2, MBA)
    assert replay([node(80, (1, 4, 40))] * 2, MBA, state.without(1))[0] == [ThrottleBandwidth(1, 50)]


def test_without_a_gpu_job_all_limits_go_at_once() -> None:
    _, state = replay([node(80, (1, 4, 40), (2, 4, 6))] * 8, MBA)
    decision = decide_limits(ContentionSample((CpuJob(1, 4, 90 * GB), CpuJob(2, 4)), (), 99 * GB), state, MBA)
    assert decision.actions == (ReleaseBandwidth(1), ReleaseBandwidth(2))
    assert decide_limits(ContentionSample((CpuJob(1, 4, 90 * GB),), (), 99 * GB), decision.state, MBA).actions == ()


def test_a_job_that_ended_is_forgotten_and_starts_anew_under_its_number() -> None:
    _, state = replay([node(80, (1, 4, 40))] * 6, MBA)
    _, state = replay([node(20)], MBA, state)
    assert state.held == ()
    assert replay([node(80, (1, 4, 40))] * 2, MBA, state)[0] == [ThrottleBandwidth(1, 50)]


def test_a_bandwidth_that_is_not_configured_is_the_highest_seen() -> None:
    learning = ContentionThresholds(mba_steps=(50,), learned_floor_bytes_per_s=30 * GB)
    idle = [node(1, (1, 4, 1)), node(2, (1, 4, 2)), node(29, (1, 4, 29))] * 3
    actions, state = replay(idle, learning)
    assert actions == []
    assert state.peak_bytes_per_s == 29 * GB
    assert replay([node(60, (1, 4, 50))] * 2, learning, state)[0] == [ThrottleBandwidth(1, 50)]
    _, seen = replay([node(100), node(20)], learning)
    assert replay([node(70, (1, 4, 50))] * 5, learning, seen)[0] == []
    assert replay([node(76, (1, 4, 50))] * 2, learning, seen)[0] == [ThrottleBandwidth(1, 50)]


def test_one_full_socket_counts_where_its_bandwidth_is_configured() -> None:
    one_full = ContentionSample((CpuJob(1, 4, 40 * GB),), GPU, 48 * GB, domain_bytes_per_s=45 * GB)
    assert replay([one_full] * 3, MBA)[0] == []
    two_sockets = ContentionThresholds(mba_steps=(50,), node_bytes_per_s=100 * GB, domain_bytes_per_s=50 * GB)
    assert replay([one_full] * 2, two_sockets)[0] == [ThrottleBandwidth(1, 50)]


def test_without_monitoring_a_fall_of_gpu_utilisation_stands_for_it() -> None:
    calm, fallen = blind(0.9, (1, 4), (2, 8)), blind(0.75, (1, 4), (2, 8))
    assert replay([fallen] * 3, BLIND)[0] == [], "what is learned first is its level"
    actions, state = replay([calm] * 3 + [fallen] * 2, BLIND)
    assert actions == [ThrottleBandwidth(2, 50)]
    assert replay([blind(0.82, (1, 4), (2, 8))] * 20, BLIND, state)[0] == []
    assert replay([blind(None, (1, 4), (2, 8))] * 20, BLIND, state)[0] == []
    assert replay([blind(0.88, (1, 4), (2, 8))] * 5, BLIND, state)[0] == [ReleaseBandwidth(2)]


def test_a_level_known_from_before_needs_no_learning() -> None:
    sample = ContentionSample((CpuJob(1, 4),), (GpuJob(900, 0.7, stable_util_ratio=0.9),))
    assert replay([sample] * 2, BLIND)[0] == [ThrottleBandwidth(1, 50)]


def test_a_fall_that_cpu_jobs_are_not_the_reason_of_ends_with_all_free() -> None:
    calm, fallen = blind(0.9, (1, 4)), blind(0.5, (1, 4))
    actions, state = replay([calm] * 3 + [fallen] * 30, BLIND)
    assert actions == [
        ThrottleBandwidth(1, 50),
        ThrottleBandwidth(1, 20),
        ThrottleBandwidth(1, 10),
        ReleaseBandwidth(1),
    ]
    assert [s.util_ratio for s in state.stable] == [0.5]
    assert replay([fallen] * 50, BLIND, state)[0] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"release_ratio": 0.75},
        {"over_ratio": 1.2},
        {"release_ratio": 0.0},
        {"mba_steps": (20, 50)},
        {"mba_steps": (100,)},
        {"mba_steps": (50, 50)},
        {"mba_steps": (50, 0)},
        {"over_samples": 0},
    ],
)
def test_thresholds_that_contradict_each_other_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(PolicyError):
        ContentionThresholds(**wrong)  # type: ignore[arg-type]


ratio = st.floats(0, 1)
rate = st.one_of(st.none(), st.floats(0, 200 * GB))
cpu_jobs = st.lists(st.builds(CpuJob, st.integers(1, 4), st.integers(1, 64), rate), unique_by=lambda j: j.job_id)
gpu_jobs = st.lists(
    st.builds(GpuJob, st.integers(5, 7), st.one_of(st.none(), ratio), st.one_of(st.none(), ratio)),
    unique_by=lambda j: j.job_id,
)
any_sample = st.builds(ContentionSample, cpu_jobs.map(tuple), gpu_jobs.map(tuple), rate, rate, st.booleans())
any_limits = st.builds(
    ContentionThresholds,
    mba_steps=st.sampled_from([(), (50,), (60, 40, 20, 10)]),
    monitored=st.booleans(),
    node_bytes_per_s=st.sampled_from([0.0, 100 * GB]),
    domain_bytes_per_s=st.sampled_from([0.0, 50 * GB]),
    stable_samples=st.just(2),
    give_up_samples=st.just(3),
    most_halvings=st.integers(1, 3),
)


@given(samples=st.lists(any_sample, max_size=40), limits=any_limits)
def test_only_present_cpu_jobs_are_ever_touched_and_all_are_free_at_the_end(
    samples: list[ContentionSample], limits: ContentionThresholds
) -> None:
    state = EliminatorState()
    limited: set[int] = set()
    for sample in samples:
        decision = decide_limits(sample, state, limits)
        assert decision == decide_limits(sample, state, limits)
        present = {job.job_id: job for job in sample.cpu_jobs}
        limited &= set(present)
        for action in decision.actions:
            assert action.job_id in present
            match action:
                case ThrottleBandwidth(job_id, percent):
                    assert percent in limits.mba_steps
                    limited.add(job_id)
                case LimitCores(job_id, cores):
                    assert cores >= 1
                    limited.add(job_id)
                case _:
                    assert action.job_id in limited
                    limited.discard(action.job_id)
        state = decision.state
        assert {h.job_id for h in state.held if h.level} == limited
    quiet = [ContentionSample(tuple(CpuJob(i, 8, 0.0) for i in range(1, 5)), (), 0.0)]
    actions, state = replay(quiet, limits, state)
    assert {action.job_id for action in actions} == limited
    assert not any(h.level for h in state.held)


@given(before=st.lists(any_sample, max_size=20), limits=any_limits.filter(lambda found: found.monitored))
def test_never_later_than_two_samples_over(before: list[ContentionSample], limits: ContentionThresholds) -> None:
    """Whatever came before: two samples over and a CPU job that can be held back is."""
    _, state = replay(before, limits)
    loud = ContentionSample((CpuJob(77, 8, 150 * GB),), GPU, 300 * GB)
    actions, _ = replay([loud] * 2, limits, state)
    assert [action.job_id for action in actions] == [77]
