"""From watching pairs to knowing them."""

from __future__ import annotations

from slurm_soda.policies.sharing.job_kinds import JobKind, Source, TimeSlicingPrior
from slurm_soda.policies.sharing.pair_knowledge.learned_slowdowns import LearnedSlowdowns, PredictedSlowdowns
from slurm_soda.policies.sharing.pair_knowledge.slowdown_learner import MEASURED_AFTER_S, SlowdownLearner, WatchedJob
from tests.policies.sharing.scenes import Table

A, B, C = (JobKind(model, 16, "v100") for model in "ABC")


def learner(*, observes: bool = True) -> SlowdownLearner:
    return SlowdownLearner(LearnedSlowdowns(PredictedSlowdowns(TimeSlicingPrior(), Table())), observes=observes)


def value(known: LearnedSlowdowns, slowed: JobKind, other: JobKind) -> tuple[float, Source]:
    found = known.xi(slowed, (other,))
    assert found is not None
    return found.value, found.source


def test_a_pair_is_known_once_both_made_progress_for_a_minute() -> None:
    watch = learner()
    watch.meet(1, WatchedJob(A, 10.0), [WatchedJob(B, 30.0)], 1, now_s=20.0)
    assert list(watch.watched()) == [(30.0 + MEASURED_AFTER_S, 1)]
    watch.observe(89.9, {1: 1.4}.__getitem__)
    assert value(watch.known, A, B) == (2.0, Source.PRIOR)
    watch.observe(90.0, {1: 1.4}.__getitem__)
    assert value(watch.known, A, B) == (1.4, Source.MEASURED)
    assert value(watch.known, B, A) == (2.0, Source.PRIOR), "the other way round it is another slowdown"


def test_what_was_known_at_an_instant_stays_what_it_was() -> None:
    watch = learner()
    before = watch.known
    assert value(before, A, B) == (2.0, Source.PRIOR)
    watch.meet(1, WatchedJob(A, 0.0), [WatchedJob(B, 0.0)], 1, now_s=0.0)
    watch.observe(60.0, {1: 1.4}.__getitem__)
    watch.do_not_fit(A, C)
    assert (value(before, A, B), before.fits((A, C))) == ((2.0, Source.PRIOR), None)
    assert (value(watch.known, A, B), watch.known.fits((A, C))) == ((1.4, Source.MEASURED), False)
    assert before.has_measured(A, B) is False


def test_a_change_of_co_runners_voids_what_was_to_be_seen() -> None:
    watch = learner()
    watch.meet(1, WatchedJob(A, 0.0), [WatchedJob(B, 0.0)], 1, now_s=0.0)
    watch.meet(1, WatchedJob(A, 0.0), [WatchedJob(C, 0.0)], 1, now_s=30.0)
    watch.meet(2, WatchedJob(B, 0.0), [WatchedJob(A, 0.0)], 1, now_s=0.0)
    watch.leave(2)
    assert list(watch.watched()) == [(90.0, 1)]
    watch.observe(90.0, {1: 1.4}.__getitem__)
    assert value(watch.known, A, C) == (1.4, Source.MEASURED)
    assert [value(watch.known, *pair)[1] for pair in ((A, B), (B, A))] == [Source.PRIOR, Source.PRIOR]


def test_only_a_pair_tells_of_a_pair() -> None:
    watch = learner()
    one, two = WatchedJob(B, 0.0), WatchedJob(C, 0.0)
    watch.meet(1, WatchedJob(A, 0.0), [one, two], 1, now_s=0.0)  # a gang with another kind on each GPU
    watch.meet(2, WatchedJob(A, 0.0), [one, one], 2, now_s=0.0)  # two on one GPU
    watch.meet(3, WatchedJob(None, 0.0), [one], 1, now_s=0.0)
    watch.meet(4, WatchedJob(A, 0.0), [WatchedJob(None, 0.0)], 1, now_s=0.0)
    watch.meet(5, WatchedJob(A, 0.0), [], 0, now_s=0.0)
    assert list(watch.watched()) == []
    watch.meet(6, WatchedJob(A, 0.0), [one, one], 1, now_s=0.0)  # a gang with one of a kind on each GPU
    assert list(watch.watched()) == [(60.0, 6)]


def test_who_does_not_observe_learns_of_memory_only() -> None:
    watch = learner(observes=False)
    watch.meet(1, WatchedJob(A, 0.0), [WatchedJob(B, 0.0)], 1, now_s=0.0)
    watch.do_not_fit(A, B)
    assert (list(watch.watched()), watch.known.fits((A, B))) == ([], False)
