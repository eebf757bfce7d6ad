"""What preemptions teach: the cost now, from whose jobs, and how far somebody's own word counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.preemption_costs import learner as learner_module
from slurm_soda.policies.preemption_costs.learner import (
    NEWEST,
    PRIOR_PREEMPTIONS,
    PreemptionCostLearner,
    kind_of,
    summarise,
)
from slurm_soda.policies.preemption_costs.observed_preemption import MOST_S, PreemptionCost
from slurm_soda.policies.run_times.job_groups import SubmissionTraits

CHANGE_S = 60.0
TIMES = st.floats(0.0, 1e5)
COSTS = st.builds(PreemptionCost, TIMES, st.one_of(st.just(0.0), TIMES))
OWNERS = ("ann", "bob", "cid", "dan", "eva")


class Seen(NamedTuple):
    """A preemption of somebody's job."""

    owner: str
    cost: PreemptionCost
    model: str = "bert"


def traits(owner: str, model: str = "bert", name: str = "train-1") -> SubmissionTraits:
    return SubmissionTraits(owner, 1, name=name, model=model)


def learned(*seen: Seen) -> PreemptionCostLearner:
    learner = PreemptionCostLearner()
    for one in seen:
        learner.learn(traits(one.owner, one.model), one.cost)
    return learner


def price_s(
    learner: PreemptionCostLearner,
    owner: str,
    model: str = "bert",
    *,
    saved_s: float = math.nan,
    ran_s: float = 1e6,
    change_s: float = CHANGE_S,
) -> float:
    """Of one running job that saved its state so long ago."""
    kinds = [kind_of(traits(owner, model))]
    costs = learner.costs(kinds, np.array([0]), np.array([saved_s]), np.array([ran_s]))
    return costs.prices_s(1, change_s).item()


def many(owner: str, cost: PreemptionCost, times: int = 50, model: str = "bert") -> list[Seen]:
    return [Seen(owner, cost, model)] * times


SLOW = PreemptionCost(300.0, 0.0)
PERIODIC = PreemptionCost(20.0, 600.0)


def test_where_nothing_was_seen_the_policys_number_holds() -> None:
    assert price_s(PreemptionCostLearner(), "ann") == CHANGE_S
    assert price_s(learned(*many("ann", SLOW)), "bob", "vgg") == CHANGE_S


@pytest.mark.parametrize(("times", "weight"), [(1, 1 / 6), (5, 1 / 2), (NEWEST, NEWEST / (NEWEST + 5))])
def test_an_owners_own_jobs_lower_the_price_by_how_many_there_were(times: int, weight: float) -> None:
    learner = learned(*many("ann", PreemptionCost(10.0, 0.0), times))
    assert price_s(learner, "ann") == pytest.approx(CHANGE_S + weight * (10.0 - CHANGE_S))


def test_alone_they_do_not_raise_it_above_the_policys_number() -> None:
    assert price_s(learned(*many("ann", SLOW)), "ann") == CHANGE_S
    learner = learned(*many("ann", SLOW), *many("bob", SLOW), *many("cid", SLOW))
    assert price_s(learner, "ann") == CHANGE_S, "two others are too few"
    assert price_s(learner, "newcomer") > CHANGE_S


def test_others_jobs_of_the_model_tell_a_newcomer() -> None:
    learner = learned(*(one for owner in OWNERS[:3] for one in many(owner, SLOW)))
    others = 3 * PRIOR_PREEMPTIONS
    assert price_s(learner, "newcomer") == pytest.approx(
        CHANGE_S + others / (others + PRIOR_PREEMPTIONS) * (300.0 - CHANGE_S)
    )
    assert price_s(learner, "newcomer", "vgg") == CHANGE_S, "another model"


def test_who_saves_now_and_then_loses_what_he_did_since() -> None:
    learner = learned(*(one for owner in OWNERS for one in many(owner, PERIODIC)))
    just, long_ago = (price_s(learner, "ann", saved_s=saved_s) for saved_s in (0.0, 1000.0))
    assert long_ago - just == pytest.approx(1000.0 * 5 / 6, rel=0.2)
    assert price_s(learner, "ann", saved_s=1e9) == price_s(learner, "ann", saved_s=1200.0), "a state is saved each 2 L"
    assert just < price_s(learner, "ann") < long_ago, "where nobody knows when, the mean"
    assert price_s(learner, "ann", ran_s=0.0) == just, "nobody loses what he has not done"
    assert price_s(learner, "ann", saved_s=500.0, ran_s=100.0) == price_s(learner, "ann", saved_s=100.0)


def test_who_saves_when_asked_to_loses_nothing() -> None:
    learner = learned(*(one for owner in OWNERS for one in many(owner, SLOW)))
    assert price_s(learner, "ann", saved_s=1e5) == price_s(learner, "ann", saved_s=0.0)
    assert not learner.known(kind_of(traits("ann"))).may_lose


def test_a_user_who_never_saves_pays_himself() -> None:
    """He says that he can be preempted, and loses all of it each time, be it hours."""
    others = [one for owner in OWNERS[1:] for one in many(owner, PreemptionCost(40.0, 0.0))]
    learner = learned(*others, *many("ann", PreemptionCost(40.0, 20_000.0)))
    assert price_s(learner, "ann", ran_s=1e5) == CHANGE_S
    many_do = [one for owner in OWNERS[1:] for one in many(owner, PreemptionCost(40.0, 600.0))]
    assert price_s(learned(*many_do, *many("ann", PreemptionCost(40.0, 20_000.0))), "ann") == 40.0 + 2 * 600.0


def test_jobs_without_a_model_are_told_apart_by_their_names() -> None:
    learner = PreemptionCostLearner()
    for _ in range(NEWEST):
        learner.learn(traits("ann", "", "fine-3"), PreemptionCost(5.0, 0.0))
    kinds = [kind_of(traits("ann", "", name)) for name in ("fine-77", "other", "fine-3")]
    costs = learner.costs(kinds, np.array([0, 1, 2, -1]), np.full(4, np.nan), np.full(4, 1e5))
    fine, other, same, none = costs.prices_s(4, CHANGE_S).tolist()
    assert (fine, other, none) == (same, CHANGE_S, CHANGE_S)
    assert fine < 10.0


def test_the_newest_preemptions_count() -> None:
    learner = learned(*many("ann", SLOW, 500), *many("ann", PreemptionCost(10.0, 0.0), NEWEST))
    assert learner.known(kind_of(traits("ann"))).own == summarise([PreemptionCost(10.0, 0.0)] * NEWEST)


@pytest.mark.parametrize("cost", [(-1.0, 0.0), (0.0, -1.0), (math.nan, 0.0), (0.0, math.inf), (MOST_S + 1, 0.0)])
def test_costs_that_cannot_be_are_refused(cost: tuple[float, float]) -> None:
    with pytest.raises(PolicyError, match="a preemption cannot cost"):
        PreemptionCostLearner().learn(traits("ann"), PreemptionCost(*cost))


def test_so_many_kinds_are_remembered_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner_module, "MAX_GROUPS", 3)
    learner = learned(*(Seen(owner, SLOW, model) for owner in OWNERS for model in ("bert", "vgg")), Seen("dan", SLOW))
    kept = [(owner, model) for owner in OWNERS for model in ("bert", "vgg")
            if learner.known(kind_of(traits(owner, model))).own.preemptions]  # fmt: skip
    assert kept == [("dan", "bert"), ("eva", "bert"), ("eva", "vgg")]


# ---- properties

HISTORIES = st.lists(st.builds(Seen, st.sampled_from(OWNERS), COSTS, st.sampled_from(["bert", "vgg", ""])), max_size=40)
OF_MANY = st.lists(
    st.builds(Seen, st.sampled_from("abcdefghijkl"), COSTS, st.sampled_from(["bert", "vgg", ""])), max_size=60
)
LIES = st.lists(st.builds(Seen, st.just("liar"), COSTS, st.sampled_from(["bert", "vgg", "own", ""])), max_size=40)
AGES = st.one_of(st.just(math.nan), st.floats(0.0, 1e6))


def most_of(history: Sequence[Seen]) -> dict[str, float]:
    """The most that preempting somebody's jobs costs, by owner."""
    kinds: dict[tuple[str, str], list[PreemptionCost]] = {}
    for one in history:
        kinds.setdefault((one.owner, one.model), []).append(one.cost)
    found: dict[str, float] = {}
    for (owner, _), costs in kinds.items():
        found[owner] = max(found.get(owner, 0.0), summarise(costs).most_s)
    return found


@given(HISTORIES, LIES, AGES, st.floats(0.0, 1e6), st.sampled_from(["bert", "vgg", "own", ""]))
def test_whatever_a_user_tells_his_price_is_bounded_by_others(
    history: list[Seen], lies: list[Seen], saved_s: float, ran_s: float, model: str
) -> None:
    """At least two others pay so much, or it is the admin's number; so nobody is immune."""
    price = price_s(learned(*history, *lies), "liar", model, saved_s=saved_s, ran_s=ran_s)
    others = sorted(most_of(history).values(), reverse=True)
    assert 0.0 <= price <= max(CHANGE_S, others[1] if len(others) >= 3 else 0.0)


@given(OF_MANY, st.sampled_from("abcdefghijklm"), st.sampled_from(["bert", "own", ""]))
def test_the_bound_is_what_a_quarter_of_the_others_pay_and_two_at_least(
    history: list[Seen], owner: str, model: str
) -> None:
    others = [one for one in history if one.owner != owner]
    of_kind, of_any = most_of([one for one in others if one.model == model]), most_of(others)
    expected = 0.0
    for most in (of_kind if model else {}, of_any):
        if len(most) >= 3:
            expected = sorted(most.values(), reverse=True)[max(math.ceil(len(most) / 4), 2) - 1]
            break
    assert learned(*history).known(kind_of(traits(owner, model))).most_s == expected


@given(HISTORIES, LIES, AGES)
def test_one_user_cannot_move_anothers_price_beyond_what_two_honest_ones_show(
    history: list[Seen], lies: list[Seen], saved_s: float
) -> None:
    """The victim has no preemption of his own: others' values are all there is."""
    honest = [one for one in history if one.owner != "eva"]
    price = price_s(learned(*honest, *lies), "eva", saved_s=saved_s)
    of_model = [one for one in honest if one.model == "bert"]
    found = [
        summarise([one.cost for one in of_model if one.owner == owner]) for owner in {one.owner for one in of_model}
    ]
    if len(found) < 2:
        assert price == CHANGE_S
        return
    overhead, lost = [one.overhead_s for one in found], [2.0 * one.lost_s for one in found]
    assert min(CHANGE_S, *overhead) - 1e-6 <= price <= max(CHANGE_S, max(overhead) + max(lost)) + 1e-6


@given(HISTORIES, AGES, st.floats(0.0, 1e6), TIMES)
def test_prices_are_between_the_policys_number_and_what_was_seen(
    history: list[Seen], saved_s: float, ran_s: float, change_s: float
) -> None:
    price = price_s(learned(*history), "ann", saved_s=saved_s, ran_s=ran_s, change_s=change_s)
    seen = [one.cost for one in history]
    least = min([change_s, *(one.overhead_s for one in seen)])
    most = max([change_s, *(one.overhead_s for one in seen)]) + 2.0 * max([0.0, *(one.lost_s for one in seen)])
    assert least - 1e-6 <= price <= most + 1e-6


@given(TIMES, st.lists(st.sampled_from(OWNERS), max_size=40), AGES)
def test_where_all_cost_what_the_policy_takes_the_price_is_that_to_the_bit(
    change_s: float, owners: list[str], saved_s: float
) -> None:
    learner = learned(*(Seen(owner, PreemptionCost(change_s, 0.0)) for owner in owners))
    for owner in ("ann", "newcomer"):
        assert price_s(learner, owner, saved_s=saved_s, change_s=change_s) == change_s


@given(st.floats(0.0, 1e6), st.floats(0.0, 1e6))
def test_who_worked_longer_since_he_saved_is_no_cheaper(one_s: float, other_s: float) -> None:
    learner = learned(*(one for owner in OWNERS for one in many(owner, PERIODIC, 3)))
    low, high = sorted((one_s, other_s))
    assert price_s(learner, "ann", saved_s=low) <= price_s(learner, "ann", saved_s=high)


@given(HISTORIES)
def test_what_is_learned_does_not_depend_on_when_it_was_asked(history: list[Seen]) -> None:
    asked, unasked = PreemptionCostLearner(), learned(*history)
    for one in history:
        asked.learn(traits(one.owner, one.model), one.cost)
        price_s(asked, one.owner, one.model)
    assert [price_s(asked, owner) for owner in OWNERS] == [price_s(unasked, owner) for owner in OWNERS]
