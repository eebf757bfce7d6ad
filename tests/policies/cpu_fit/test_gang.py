"""One search over several nodes, from what each of them measured."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.cpu_fit.core_search import SearchRules
from slurm_soda.policies.cpu_fit.measurement import Measurement
from slurm_soda.policies.cpu_fit.multi_node_search import (
    CUT_SHORT,
    GangOrder,
    NodeMeasurement,
    decide_gang_order,
    give_up_search,
)
from tests.policies.cpu_fit.models import MODELS, Job, Model, measure

RULES = SearchRules()


def part(node: str, step: int, cores: int, ratio: float = 0.5, search: int = 0, limit: int = 28) -> NodeMeasurement:
    return NodeMeasurement(node, search, step, limit, 2, Measurement(cores, ratio))


def follow(
    job: Job, nodes: int, start: int, search: int = 0, before: tuple[NodeMeasurement, ...] = ()
) -> list[NodeMeasurement]:
    """Nodes that do as they are told, each in its turn, until the search is settled."""
    parts, source, step, cores = list(before), random.Random(1), 0, start
    for _ in range(10):
        for node in range(nodes):
            parts.append(NodeMeasurement(f"n{node}", search, step, 28, 2, measure(job, cores, 0.0, source)))
            order = decide_gang_order(parts, nodes, RULES)
            assert node == nodes - 1 or order is None or (order.step, order.cores) == (step, cores), "all measure first"
        assert order is not None
        if order.settled:
            return parts
        step, cores = order.step, order.cores
    raise AssertionError("never settled")


@pytest.mark.sample(8)
@pytest.mark.parametrize("start", [1, 2, 20])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_best_fit_of_the_papers_models_on_two_nodes(model: Model, start: int) -> None:
    job = model.job(gpus=2)
    order = decide_gang_order(follow(job, 2, start), 2, RULES)
    assert order is not None
    assert order.settled
    assert abs(order.cores - job.best_fit) <= 1
    assert order.step <= RULES.most_steps


def test_nothing_is_ordered_before_every_node_has_measured() -> None:
    assert decide_gang_order([], 2, RULES) is None
    assert decide_gang_order([part("n1", 0, 4)], 2, RULES) is None
    assert decide_gang_order([part("n1", 0, 4), part("n1", 0, 4)], 2, RULES) is None
    assert decide_gang_order([part("n1", 0, 4), part("n2", 0, 4)], 2, RULES) is not None


def test_a_step_measured_again_counts_as_measured_last() -> None:
    idle = [part("n1", 0, 4, 0.0), part("n2", 0, 4, 0.0)]
    assert decide_gang_order(idle, 2, RULES) == GangOrder(0, 0, 4, settled=True, reason="idle")
    order = decide_gang_order([*idle, part("n1", 0, 4), part("n2", 0, 4)], 2, RULES)
    assert order is not None
    assert not order.settled


def test_nodes_that_cannot_be_set_alike_end_the_search() -> None:
    uneven = [part("n1", 0, 4), part("n2", 0, 6)]
    assert decide_gang_order(uneven, 2, RULES) == GangOrder(0, 0, 6, settled=True, reason=CUT_SHORT)
    begun = [part("n1", 0, 6), part("n2", 0, 6), part("n1", 1, 3), part("n2", 1, 6)]
    assert decide_gang_order(begun, 2, RULES) == GangOrder(0, 1, 6, settled=True, reason=CUT_SHORT)


def test_a_node_that_sees_another_phase_takes_the_others_along() -> None:
    first = follow(MODELS[0].job(gpus=2), 2, 4)
    settled = decide_gang_order(first, 2, RULES)
    assert settled is not None
    again = [*first, part("n2", 0, settled.cores, search=1)]
    assert decide_gang_order(again, 2, RULES) == GangOrder(1, 0, settled.cores)
    parts = follow(MODELS[1].job(gpus=2), 2, settled.cores, search=1, before=tuple(first))
    order = decide_gang_order(parts, 2, RULES)
    assert order is not None
    assert order.search == 1
    assert abs(order.cores - MODELS[1].job(gpus=2).best_fit) <= 1


def test_a_late_word_on_an_old_search_changes_nothing() -> None:
    parts = [part("n1", 0, 4, search=1), part("n2", 0, 4, search=1)]
    assert decide_gang_order([*parts, part("n1", 2, 9)], 2, RULES) == decide_gang_order(parts, 2, RULES)


@given(
    st.lists(
        st.builds(
            part,
            node=st.sampled_from(["n1", "n2", "n3"]),
            step=st.integers(0, 5),
            cores=st.integers(1, 28),
            ratio=st.floats(0, 1),
            search=st.integers(0, 2),
            limit=st.just(28),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_whatever_was_measured_the_order_is_one_that_nodes_can_follow(parts: list[NodeMeasurement]) -> None:
    newest = max(one.search for one in parts)
    for order in (decide_gang_order(parts, 3, RULES), give_up_search(parts)):
        if order is not None:
            assert order.search == newest
            assert 1 <= order.cores <= 28
            assert order.settled == bool(order.reason)
