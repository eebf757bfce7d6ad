from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.hostlist import MOST_KEPT_BYTES, compress_hosts, expand_hosts


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("(null)", ()),
        ("None assigned", ()),
        ("n1", ("n1",)),
        ("n[1-3,7],login", ("n1", "n2", "n3", "n7", "login")),
        ("n[08-11]", ("n08", "n09", "n10", "n11")),
        ("r[1-2]u[1-2]", ("r1u1", "r1u2", "r2u1", "r2u2")),
        ("gpu-a[1-2]-x", ("gpu-a1-x", "gpu-a2-x")),
    ],
)
def test_expansion(text: str, names: tuple[str, ...]) -> None:
    assert expand_hosts(text) == names


@pytest.mark.parametrize("text", ["n[1-", "n1]", "n[a-b]", "n[3-1]", "n[]", "n[1-999999999]", "n[[1]]"])
def test_what_is_no_host_list(text: str) -> None:
    with pytest.raises(SlurmReplyError):
        expand_hosts(text)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "text",
    [
        "n[0-99999]x[0-99999]",
        "n[0-99][0-99][0-99][0-99][0-99][0-99]",
        "n" + "[1-2]" * 5000,
        f"n[1-{'9' * 5000}]",
        f"n[{'9' * 5000}]",
        "n[0-199999]," * 50 + "m",
        "n[" + "0-199999," * 200 + "1]",
        "n" * 5000 + "[0-199999]",
    ],
)
def test_more_hosts_than_any_cluster_has_are_refused_before_they_are_made(text: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(SlurmReplyError) as caught:
            expand_hosts(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20
    assert len(str(caught.value)) < 300


LONG = 200 * "n"


def test_many_long_lists_are_kept_in_bounded_memory() -> None:
    tracemalloc.start()
    try:
        for number in range(16):
            expand_hosts(f"{LONG}{number}-[1-5000]")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1.1 * MOST_KEPT_BYTES


def test_a_list_that_is_used_again_is_not_expanded_again() -> None:
    once, short = expand_hosts("once[1-500]"), expand_hosts("short[1-50]")
    assert expand_hosts("once[1-500]") is once
    for number in range(16):
        expand_hosts(f"{LONG}other{number}-[1-5000]")
        assert expand_hosts("short[1-50]") is short
    assert expand_hosts("once[1-500]") is not once


@given(st.lists(st.integers(0, 9999), min_size=1, max_size=20, unique=True))
def test_every_name_listed_is_found(numbers: list[int]) -> None:
    assert expand_hosts(f"n[{','.join(map(str, numbers))}]") == tuple(f"n{n}" for n in numbers)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ((), ""),
        (("n1",), "n1"),
        (("n1", "n2", "n3", "n7", "login"), "n[1-3],n7,login"),
        (("n08", "n09", "n10"), "n[08-10]"),
        (("n9", "n10"), "n[9-10]"),
        (("n2", "n1"), "n2,n1"),
        (("a1x", "a2x"), "a1x,a2x"),
    ],
)
def test_compression(names: tuple[str, ...], text: str) -> None:
    assert compress_hosts(names) == text


@given(st.lists(st.from_regex(r"[a-z-]{0,3}[0-9]{0,4}[a-z]?", fullmatch=True).filter(bool), max_size=30))
def test_what_is_compressed_comes_back(names: list[str]) -> None:
    assert expand_hosts(compress_hosts(names)) == tuple(names)
