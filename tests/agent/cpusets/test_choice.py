"""Which cores a job keeps: any first part of the order is a good choice."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.agent.cpusets.core_order import CpuLayout, order_cpus, read_siblings, threads_per_core
from slurm_soda.agent.cpusets.cpu_list import format_cpu_list, parse_cpu_list

EIGHT = frozenset(range(8))
HYPERTHREADS = {cpu: cpu % 4 for cpu in range(8)}
"""Four cores of two threads: 0 and 4, 1 and 5, …"""


@pytest.mark.parametrize(
    ("working", "layout", "expected"),
    [
        (EIGHT, CpuLayout(), (0, 1, 2, 3, 4, 5, 6, 7)),
        (frozenset({5, 6}), CpuLayout(), (5, 6, 0, 1, 2, 3, 4, 7)),  # what it works on stays longest
        (EIGHT, CpuLayout(near=frozenset(range(4, 28))), (4, 5, 6, 7, 0, 1, 2, 3)),  # then what is near its GPUs
        (EIGHT, CpuLayout(siblings=HYPERTHREADS), (0, 4, 1, 5, 2, 6, 3, 7)),  # whole cores
        (EIGHT, CpuLayout(shares=[frozenset({0, 1, 2}), frozenset({3, 4, 5, 6, 7})]), (0, 3, 1, 4, 2, 5, 6, 7)),
        (
            EIGHT,
            CpuLayout(shares=[frozenset({0, 4, 1, 5}), frozenset({2, 6, 3, 7})], siblings=HYPERTHREADS),
            (0, 4, 2, 6, 1, 5, 3, 7),
        ),
    ],
)
def test_orders(working: frozenset[int], layout: CpuLayout, expected: tuple[int, ...]) -> None:
    assert order_cpus(working, EIGHT, layout) == expected


@given(st.frozensets(st.integers(0, 60), min_size=1), st.data())
def test_every_cpu_is_there_once(allocated: frozenset[int], data: st.DataObject) -> None:
    parts = st.frozensets(st.sampled_from(sorted(allocated)))
    layout = CpuLayout(data.draw(st.frozensets(st.integers(0, 60))), data.draw(st.lists(parts, max_size=4)))
    found = order_cpus(data.draw(parts), allocated, layout)
    assert sorted(found) == sorted(allocated)


@pytest.mark.parametrize(
    ("cpus", "counted", "siblings", "expected"),
    [
        (EIGHT, 8, HYPERTHREADS, 1),
        (EIGHT, 4, HYPERTHREADS, 2),  # slurm.conf counts cores, the group has their threads
        (EIGHT, 4, {}, 0),  # more than it was given
        (EIGHT, 3, HYPERTHREADS, 0),
        (frozenset({0, 4, 1}), 2, HYPERTHREADS, 0),
        (EIGHT, 20, {}, 1),
        (EIGHT, 0, {}, 1),
    ],
)
def test_threads_to_a_counted_cpu(cpus: frozenset[int], counted: int, siblings: dict[int, int], expected: int) -> None:
    assert threads_per_core(cpus, counted, siblings) == expected


def test_siblings_as_the_kernel_tells_them(tmp_path: Path) -> None:
    for cpu, text in ((0, "0,4"), (4, "0,4"), (1, "nonsense")):
        (tmp_path / f"cpu{cpu}/topology").mkdir(parents=True)
        (tmp_path / f"cpu{cpu}/topology/thread_siblings_list").write_text(text + "\n")
    assert read_siblings(frozenset({0, 1, 4, 27}), tmp_path) == {0: 0, 4: 0}


@given(st.frozensets(st.integers(0, 300)))
def test_lists_survive_the_way_through_text(cpus: frozenset[int]) -> None:
    assert parse_cpu_list(format_cpu_list(cpus) + "\n") == cpus


@pytest.mark.parametrize("text", ["x", "1-", "-1", "3-1", "0-99999999", "1,,x"])
def test_what_is_no_list(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_cpu_list(text)
