"""Algorithm 2 of SJF-BSBF against exhaustive search, and the bounds of users."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.arithmetic.completion_times import OverlappedJob, schedule_at
from slurm_soda.policies.sharing.arithmetic.sharing_decision import (
    Consent,
    Footprint,
    NewJob,
    PairSlowdown,
    Partner,
    decide_sharing,
    list_sub_batches,
)
from slurm_soda.policies.sharing.arithmetic.throughput import Throughput
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, Source, TimeSlicingPrior
from tests.sampling import examples

Slowdowns = Callable[[int], list[PairSlowdown]]


def measured(value: float, error: float = 0.0) -> Estimate:
    return Estimate(value, error, Source.MEASURED)


def always(*pairs: tuple[float, float]) -> Slowdowns:
    return lambda _size: [PairSlowdown(measured(new), measured(partner)) for new, partner in pairs]


def job(batch: int = 64, iterations: float = 1000.0, consent: Consent | None = None) -> NewJob:
    return NewJob(Throughput(0.02, 0.002, 0.05, 2.0), batch, iterations, Footprint(1000, 100), consent or Consent())


def random_case(rng: random.Random) -> tuple[NewJob, list[Partner], Slowdowns]:
    model = Throughput(rng.uniform(0, 0.05), rng.uniform(1e-4, 1e-2), rng.uniform(0, 0.3), rng.uniform(1, 5))
    new = NewJob(model, rng.randint(1, 300), rng.uniform(10, 1e4), Footprint(rng.uniform(0, 4000), rng.uniform(1, 80)))
    partners = [
        Partner(rng.uniform(1, 5000), rng.uniform(500, 16000), Consent(max_slowdown=rng.choice((math.inf, 1.5))))
        for _ in range(rng.choice((1, 1, 1, 2, 3)))
    ]
    # a larger sub-batch disturbs more
    slopes = [(rng.uniform(0.0, 1.0), rng.uniform(0.0, 1.5)) for _ in partners]

    def xi(size: int) -> list[PairSlowdown]:
        share = size / new.batch
        return [PairSlowdown(measured(1 + own), measured(1 + other * share)) for own, other in slopes]

    return new, partners, xi


def exhaustive(new: NewJob, partners: list[Partner], xi: Slowdowns, sizes: list[int], steps: int) -> float:
    """Least mean over sub-batches and a grid of starts, from the definitions."""
    after = max(partner.work_s for partner in partners)
    least = (after + new.work_s(new.batch) + sum(partner.work_s for partner in partners)) / (1 + len(partners))
    for size in sizes:
        if any(new.footprint.mib(size) > partner.free_mib for partner in partners):
            continue
        pairs = xi(size)
        if any(one.partner.value > partner.consent.max_slowdown for one, partner in zip(pairs, partners, strict=True)):
            continue
        running = [
            OverlappedJob(p.work_s, one.partner.value, one.new.value) for p, one in zip(partners, pairs, strict=True)
        ]
        for step in range(steps + 1):
            least = min(least, schedule_at(new.work_s(size), running, after * step / steps).mean_s)
    return least


def test_algorithm_2_against_exhaustive_search() -> None:
    rng = random.Random(5)
    shared, smaller, cases = 0, 0, examples(600)
    for _ in range(cases):
        new, partners, xi = random_case(rng)
        decision = decide_sharing(new, partners, xi)
        halves = [math.ceil(new.batch / 2**power) for power in range(10)]
        least = exhaustive(new, partners, xi, halves, 40)
        found = decision.chosen.best.mean_s if decision.chosen and decision.chosen.best else decision.sequential.mean_s
        assert found <= least * (1 + 1e-9)
        if len(partners) == 1:
            assert found == pytest.approx(least, rel=1e-9)
            assert decision.start_s in {0.0, partners[0].work_s}
        shared += decision.share
        smaller += decision.share and decision.chosen is not None and decision.chosen.steps > 1
    assert shared > cases / 6
    assert smaller > cases / 20


def test_halving_costs_little_against_all_sub_batches() -> None:
    rng = random.Random(6)
    ratios = []
    for _ in range(150):
        new, partners, xi = random_case(rng)
        decision = decide_sharing(new, partners, xi)
        found = decision.chosen.best.mean_s if decision.chosen and decision.chosen.best else decision.sequential.mean_s
        ratios.append(found / exhaustive(new, partners, xi, list(range(1, new.batch + 1)), 1))
    assert sum(ratios) / len(ratios) < 1.02
    assert max(ratios) < 1.3


@pytest.mark.parametrize(("batch", "sizes"), [(1, [1]), (8, [8, 4, 2, 1]), (100, [100, 50, 25, 13, 7, 4, 2, 1])])
def test_sub_batches_reach_one(batch: int, sizes: list[int]) -> None:
    assert list(list_sub_batches(batch)) == sizes


def test_memory_makes_the_sub_batch_smaller() -> None:
    decision = decide_sharing(job(), [Partner(200.0, 3000.0)], always((1.1, 1.1)))
    assert decision.share
    assert decision.chosen is not None
    assert (decision.chosen.sub_batch, decision.chosen.steps, decision.chosen.memory_mib) == (16, 4, 2600.0)
    assert [bool(trial.refused) for trial in decision.trials] == [True, True, False, False, False, False, False]
    assert "7400 MiB where 3000" in decision.trials[0].refused


def test_every_number_is_told() -> None:
    decision = decide_sharing(job(), [Partner(200.0, 9000.0)], always((1.2, 1.1)))
    full = decision.trials[0]
    assert decision.alone_s == (job().work_s(64), 200.0)
    assert decision.sequential.new_end_s == 200.0 + job().work_s(64)
    assert full.together is not None
    assert full.slowdowns == (1.2, 1.1)
    assert full.xi[0].new.source is Source.MEASURED
    assert decision.chosen is full
    gain = decision.sequential.mean_s - full.together.mean_s
    assert decision.reason == f"start now: ends on average {gain:.0f} s earlier than one after the other"


@pytest.mark.parametrize(
    ("new", "partner", "says"),
    [
        (Consent(shares=False), Consent(), "not everybody"),
        (Consent(), Consent(shares=False), "not everybody"),
        (Consent(max_slowdown=1.15), Consent(), "allowed 1.150"),
        (Consent(), Consent(max_slowdown=1.05), "slows a job 1.100 times"),
    ],
)
def test_bounds_hold(new: Consent, partner: Consent, says: str) -> None:
    decision = decide_sharing(job(consent=new), [Partner(200.0, 9000.0, partner)], always((1.2, 1.1)))
    assert not decision.share
    assert decision.start_s == 200.0
    assert says in decision.reason


def test_accumulation_counts_as_slowdown() -> None:
    # memory calls for 16 passes of 4, whose fixed time is more than the bound leaves
    bound = Consent(max_slowdown=1.5)
    assert decide_sharing(job(), [Partner(500.0, 1400.0)], always((1.01, 1.01))).share
    refused = decide_sharing(job(consent=bound), [Partner(500.0, 1400.0)], always((1.01, 1.01)))
    assert not refused.share
    assert refused.trials[4].slowdowns[0] > 1.5


def test_bounds_hold_for_random_jobs() -> None:
    rng = random.Random(8)
    for _ in range(300):
        new, partners, xi = random_case(rng)
        decision = decide_sharing(new, partners, xi)
        if decision.chosen is not None:
            limits = [new.consent.max_slowdown, *(partner.consent.max_slowdown for partner in partners)]
            assert all(slow <= limit for slow, limit in zip(decision.chosen.slowdowns, limits, strict=True))
            assert decision.chosen.memory_mib <= min(partner.free_mib for partner in partners)


def test_caution_takes_errors_as_worse() -> None:
    def unsure(_size: int) -> list[PairSlowdown]:
        return [PairSlowdown(measured(1.1, 0.3), measured(1.1, 0.3))]

    assert decide_sharing(job(), [Partner(200.0, 9000.0)], unsure).share
    assert not decide_sharing(job(), [Partner(200.0, 9000.0)], unsure, caution=3.0).share

    def hopeless(_size: int) -> list[PairSlowdown]:
        return [PairSlowdown(measured(1.1, math.inf), measured(1.1))]

    assert "nobody knows" in decide_sharing(job(), [Partner(200.0, 9000.0)], hopeless, caution=1.0).reason


def test_a_bound_counts_errors_that_completion_times_do_not() -> None:
    def unsure(error: float) -> Slowdowns:
        return lambda _size: [PairSlowdown(measured(1.1), measured(1.1, error))]

    bounded, free = (Partner(200.0, 9000.0, Consent(max_slowdown=bound)) for bound in (1.3, math.inf))
    assert decide_sharing(job(), [bounded], unsure(0.2)).share
    refused = decide_sharing(job(), [bounded], unsure(0.2), bound_caution=2.0)
    assert not refused.share
    assert refused.trials[0].refused == "may slow a job 1.500 times (1.100 expected), allowed 1.300"
    assert decide_sharing(job(), [bounded], unsure(0.1), bound_caution=2.0).share
    assert not decide_sharing(job(), [bounded], unsure(0.2), caution=2.0, bound_caution=0.5).share
    for error in (0.2, math.inf):
        same = decide_sharing(job(), [free], unsure(error), bound_caution=2.0)
        assert same == decide_sharing(job(), [free], unsure(error))
        assert same.share


@pytest.mark.parametrize(("caution", "times"), [(0.0, 2.0), (1.0, 10.0)])
def test_on_the_word_of_the_prior_only_much_shorter_jobs_share(caution: float, times: float) -> None:
    rng = random.Random(9)
    prior, model = TimeSlicingPrior(), JobKind("resnet18", 64, "v100")
    turns = PairSlowdown(prior.xi(model, [model]), prior.xi(model, [model]))
    shared = 0
    for _ in range(200):
        new, partners, _ = random_case(rng)
        roomy = Partner(partners[0].work_s, 1e6)
        share = decide_sharing(new, [roomy], lambda _size: [turns], caution).share
        assert share == (roomy.work_s > times * new.work_s(new.batch))
        shared += share
    assert 0 < shared < 200


def test_of_equal_means_the_later_start_and_the_larger_sub_batch() -> None:
    # no fixed time, so accumulation costs nothing
    new = NewJob(Throughput(0.0, 0.5), 64, 10.0, Footprint(0.0, 1.0))
    chosen = decide_sharing(new, [Partner(1000.0, 100.0)], always((1.5, 1.5))).chosen
    assert chosen is not None
    assert chosen.sub_batch == 64
    equal = decide_sharing(new, [Partner(160.0, 100.0)], always((1.5, 1.5)))  # ends at 400 and 240, or at 480 and 160
    assert equal.trials[0].together is not None
    assert equal.trials[0].together.mean_s == equal.sequential.mean_s
    assert (equal.share, equal.chosen, equal.start_s) == (False, None, 160.0)


def test_alone_it_starts_with_its_whole_batch() -> None:
    decision = decide_sharing(job(), [], lambda _size: [])
    assert decision.share
    assert decision.chosen is not None
    assert decision.chosen.sub_batch == 64


def test_senseless_input_is_refused() -> None:
    with pytest.raises(PolicyError, match="as many slowdowns"):
        decide_sharing(job(), [Partner(200.0, 9000.0)], lambda _size: [])
    with pytest.raises(PolicyError):
        decide_sharing(job(batch=0), [], lambda _size: [])
    with pytest.raises(PolicyError):
        Consent(max_slowdown=0.9)
