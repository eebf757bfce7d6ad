"""Who runs with whom: against the best of all matchings, and what always holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slurm_soda.policies.sharing.srsf_share.pair_matching import BLOCK, PairMatching, PairMatchingInput
from slurm_soda.policies.snapshot import FloatColumn


def matching_input(
    weight: list[float], speed: FloatColumn, kind: list[int] | None = None, **more: Any
) -> PairMatchingInput:
    jobs = len(weight)
    values: dict[str, Any] = {
        "kind": np.array(kind if kind is not None else [0] * jobs, dtype=np.int64),
        "least_speed": np.zeros(jobs), "move_cost": np.zeros(jobs), "co_runner": np.full(jobs, -1, dtype=np.int64),
        "running": np.zeros(jobs, dtype=np.bool_), "fixed": np.zeros(jobs, dtype=np.bool_),
    }  # fmt: skip
    return PairMatchingInput(weight=np.array(weight, dtype=np.float64), speed=speed, **{**values, **more})


def settled(given: PairMatchingInput, slots: int, **options: Any) -> set[tuple[int, ...]]:
    made = PairMatching(given, slots, **options)
    return {tuple(sorted(job for job in pair if job >= 0)) for pair in made.settle()}


def best_total(given: PairMatchingInput, slots: int) -> float:
    """Of all ways to put the jobs alone or in pairs onto so many slots, by trying them."""

    def search(left: tuple[int, ...], slots: int) -> float:
        if not left or not slots:
            return 0.0
        first, rest = left[0], left[1:]
        found = max(search(rest, slots), given.weight[first] + search(rest, slots - 1))
        for other in rest:
            a, b = given.kind[first], given.kind[other]
            fast, slow = given.speed[a, b], given.speed[b, a]
            if fast > 0 and slow > 0:
                value = given.weight[first] * fast + given.weight[other] * slow
                found = max(found, value + search(tuple(job for job in rest if job != other), slots - 1))
        return float(found)

    return search(tuple(range(len(given))), slots)


def test_pairs_where_two_get_more_done_than_one() -> None:
    mild, harsh = np.array([[0.8]]), np.array([[0.45]])
    assert settled(matching_input([4, 3, 2], mild), 1) == {(0, 1)}
    assert settled(matching_input([4, 3, 2], harsh), 1) == {(0,)}


def test_the_longer_the_queue_the_more_readily() -> None:
    """Beside one job behind it, the first one is worth twice the second; beside many, nearly the same."""
    speed = np.array([[0.6]])
    assert settled(matching_input([2, 1], speed), 1) == {(0,)}
    assert settled(matching_input([20, 19], speed), 1) == {(0, 1)}


def test_nobody_pairs_while_there_are_seats() -> None:
    assert settled(matching_input([1, 1, 1], np.array([[0.99]])), 3) == {(0,), (1,), (2,)}


def test_who_fits_whom() -> None:
    speed = np.array([[0.0, 0.9], [0.9, 0.6]])
    slots = settled(matching_input([5, 4.9, 4.8, 4.7], speed, [0, 0, 1, 1]), 2)
    assert slots in ({(0, 2), (1, 3)}, {(0, 3), (1, 2)})


def test_owners_bounds() -> None:
    speed = np.array([[0.8]])
    bound = matching_input([4, 3.9, 3.8], speed, least_speed=np.array([0.9, 0.0, 0.0]))
    assert settled(bound, 1) == {(1, 2)}
    refuses = matching_input([4, 3.9], speed, least_speed=np.array([0.0, 2.0]))
    assert settled(refuses, 1) == {(0,)}


def test_fixed_jobs_keep_a_seat_each_and_may_be_joined() -> None:
    fixed = np.array([False, False, True, True])
    given = matching_input([9, 8, 1, 1], np.array([[0.9]]), fixed=fixed, running=fixed)
    slots = settled(given, 2)
    assert {job for slot in slots for job in slot} == {0, 1, 2, 3}
    assert (2, 3) not in slots


def test_a_move_must_pay() -> None:
    """Jobs 0 and 1 run apart; together they would leave a slot to job 2."""
    speed = np.array([[1.0, 1.0, 0.1], [1.0, 1.0, 0.1], [0.1, 0.1, 0.1]])
    running = np.array([True, True, False])
    cheap = matching_input([3, 3, 2], speed, [0, 1, 2], running=running, move_cost=np.array([1.0, 1.0, 0.0]))
    dear = matching_input([3, 3, 2], speed, [0, 1, 2], running=running, move_cost=np.array([2.5, 2.5, 0.0]))
    assert settled(cheap, 2) == {(0, 1), (2,)}
    assert settled(dear, 2) == {(0,), (1,)}
    co_runners = matching_input(
        [3, 3, 2],
        speed,
        [0, 1, 2],
        running=running,
        move_cost=np.array([2.5, 2.5, 0.0]),
        co_runner=np.array([1, 0, -1]),
    )
    assert settled(co_runners, 2, keep=True) == {(0, 1), (2,)}


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_is_near_the_best_matching(slots: int) -> None:
    rng = np.random.default_rng(slots)
    ratios = []
    for _ in range(60):
        jobs, kinds = int(rng.integers(1, 9)), int(rng.integers(1, 5))
        speed = np.where(rng.random((kinds, kinds)) < 0.1, 0.0, rng.uniform(0.2, 1.0, (kinds, kinds)))
        weight = np.sort(rng.uniform(1, 8, jobs))[::-1].tolist()
        given = matching_input(weight, speed, rng.integers(0, kinds, jobs).tolist())
        made = PairMatching(given, slots)
        seated = [job for pair in made.settle() for job in pair if job >= 0]
        assert len(seated) == len(set(seated)) <= 2 * slots
        ratios.append(made.total() / best_total(given, slots))
    assert max(ratios) <= 1 + 1e-9
    assert np.mean(ratios) > 0.99
    assert min(ratios) > 0.8


def test_many_seats_go_in_blocks() -> None:
    slots, jobs = 3 * BLOCK + 7, 8 * BLOCK
    speed = np.array([[0.6, 0.9], [0.9, 0.6]])
    given = matching_input(np.linspace(90, 80, jobs).tolist(), speed, [0] * (jobs // 2) + [1] * (jobs // 2))
    made = PairMatching(given, slots)
    pairs = made.settle()
    seated = [job for pair in pairs for job in pair]
    assert sorted(seated)[0] >= 0
    assert len(set(seated)) == 2 * slots
    kinds = given.kind[np.array(pairs)]
    assert np.mean(kinds[:, 0] != kinds[:, 1]) > 0.95
