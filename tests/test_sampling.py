"""Samples are spread over all cases, always the same ones, and whole where there are few."""

from __future__ import annotations

import pytest

from tests.conftest import sample_of
from tests.sampling import some, spread


@pytest.mark.parametrize(("count", "of_them"), [(100, 10), (101, 10), (11, 10), (7, 1)])
def test_one_of_each_part(count: int, of_them: int) -> None:
    found = spread(count, of_them, seed="a")
    assert len(found) == of_them
    assert all(count * part // of_them <= at < count * (part + 1) // of_them for part, at in enumerate(found))
    assert found == spread(count, of_them, seed="a")


def test_another_test_has_another_sample() -> None:
    assert spread(100, 10, seed="a") != spread(100, 10, seed="b")


def test_few_cases_are_all_there() -> None:
    assert spread(3, 10, seed="a") == [0, 1, 2]
    assert some("abc", 3) == ["a", "b", "c"]


class Case:
    """As much of a collected test as matters."""

    def __init__(self, name: str, *marks: pytest.Mark) -> None:
        self.name, self.marks = name, {mark.name: mark for mark in marks}

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.marks.get(name)


def test_what_is_left_out_of_a_test() -> None:
    sample, thorough = pytest.mark.sample(2).mark, pytest.mark.thorough.mark
    plain = [Case(f"test_x[{at}]") for at in range(5)]
    long = [Case(f"test_y[{at}]", sample) for at in range(5)]
    assert sample_of(plain) == set(plain)  # type: ignore[arg-type, comparison-overlap]
    assert len(sample_of(long)) == 2  # type: ignore[arg-type]
    whole = Case("test_z[0]")
    assert sample_of([whole, Case("test_z[1]", thorough)]) == {whole}  # type: ignore[list-item, comparison-overlap]
    assert sample_of([Case("test_z", thorough)]) == set()  # type: ignore[list-item]
