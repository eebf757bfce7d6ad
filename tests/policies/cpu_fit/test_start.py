"""N_start: history, defaults, hints, outliers and a node's means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.cpu_fit.start_cores import CoreRequest, NodeCapacity, PastFit, StartCores, choose_start_cores
from slurm_soda.policies.errors import PolicyError

NODE = NodeCapacity(28)


def cv(*cores: int, model: str | None = None, gpus: int = 1) -> list[PastFit]:
    return [PastFit("cv", model, count, gpus) for count in cores]


@pytest.mark.parametrize(
    ("category", "cores"), [("cv", 3), ("nlp", 5), ("speech", 5), ("other", 5), (None, 5), ("unheard", 5)]
)
def test_a_category_without_history(category: str | None, cores: int) -> None:
    assert choose_start_cores(CoreRequest(1, category), [], NODE) == StartCores(cores, "default", capped=False)


@pytest.mark.parametrize(
    ("request_", "cores"),
    [
        (CoreRequest(1, "nlp", pipelined=True), 4),
        (CoreRequest(1, "nlp", large_weights=True), 4),
        (CoreRequest(1, "nlp", heavy_preprocessing=True), 6),
        (CoreRequest(1, "nlp", pipelined=True, large_weights=True), 3),
        (CoreRequest(1, "nlp", pipelined=True, heavy_preprocessing=True), 5),
        (CoreRequest(4, "nlp", pipelined=True), 16),
        (CoreRequest(4, "cv"), 12),
    ],
)
def test_hints_and_gpus(request_: CoreRequest, cores: int) -> None:
    assert choose_start_cores(request_, [], NODE).cores == cores


@pytest.mark.parametrize(
    ("past", "cores", "source"),
    [
        (cv(2, 4, 3), 4, "category"),
        (cv(8, gpus=4), 2, "category"),
        ([*cv(6, gpus=4), *cv(1)], 2, "category"),
        ([PastFit("nlp", None, 9, 1)], 3, "default"),
        ([*cv(2), PastFit("nlp", None, 9, 1)], 2, "category"),
        ([*cv(7), *cv(4, model="resnet50")], 4, "model"),
        (cv(3, 20), 20, "category"),
        (cv(3, 3, 4, 20), 4, "category"),
        (cv(3, 3, 3, 4), 4, "category"),
        (cv(2, 4, 6, 8), 8, "category"),
        (cv(20, 20, 3, 20), 20, "category"),
        (cv(40, 64), 3, "default"),
        ([*cv(40), *cv(2)], 2, "category"),
    ],
)
def test_the_most_cores_of_earlier_jobs(past: list[PastFit], cores: int, source: str) -> None:
    assert choose_start_cores(CoreRequest(1, "cv", "resnet50"), past, NODE) == StartCores(cores, source, capped=False)


def bound(*cores: int) -> list[PastFit]:
    return [PastFit("cv", None, count, 1, all_it_had=True) for count in cores]


@pytest.mark.parametrize(
    ("past", "cores"),
    [
        (bound(3), 6),
        (bound(3, 3, 3, 6), 12),
        (bound(20), 28),
        ([*bound(3), *cv(3)], 3),
        ([*bound(4), *cv(3)], 4),
        ([*bound(6), *cv(3)], 12),
        ([*bound(20), *cv(3, 3, 3)], 3),
    ],
)
def test_a_best_number_that_is_all_a_job_had_is_a_lower_bound(past: list[PastFit], cores: int) -> None:
    assert choose_start_cores(CoreRequest(1, "cv"), past, NODE).cores == cores


@given(needed=st.integers(1, 28), gpus=st.sampled_from((1, 2, 4)))
def test_jobs_of_an_owner_come_to_what_they_need_and_stay(needed: int, gpus: int) -> None:
    """Each is measured with the cores that it starts with and fewer, never with more."""
    past: list[PastFit] = []
    starts = []
    node = NodeCapacity(28 * gpus)
    for _ in range(8):
        start = choose_start_cores(CoreRequest(gpus, "cv"), past, node).cores
        starts.append(start)
        best = min(start, needed * gpus)
        past.append(PastFit("cv", None, best, gpus, all_it_had=best == start))
    assert starts[-1] == starts[-2] == needed * gpus
    assert max(starts) <= max(2 * needed, 3) * gpus


def test_a_job_without_category_starts_by_all_of_its_owners_jobs() -> None:
    past = [*cv(2), PastFit("nlp", None, 6, 1)]
    assert choose_start_cores(CoreRequest(1), past, NODE) == StartCores(6, "owner", capped=False)


def test_hints_do_not_move_what_this_very_model_needed() -> None:
    past = [*cv(7), *cv(4, model="resnet50")]
    assert choose_start_cores(CoreRequest(1, "cv", "resnet50", pipelined=True), past, NODE).cores == 4
    assert choose_start_cores(CoreRequest(1, "cv", "vgg16", pipelined=True), past, NODE).cores == 6


@pytest.mark.parametrize(
    ("request_", "node", "cores", "capped"),
    [
        (CoreRequest(1, "nlp"), NodeCapacity(4), 4, True),
        (CoreRequest(8, "nlp"), NodeCapacity(28), 28, True),
        (CoreRequest(1, "nlp", memory_per_core_mib=4000), NodeCapacity(28, 10_000), 2, True),
        (CoreRequest(1, "nlp", memory_per_core_mib=20_000), NodeCapacity(28, 10_000), 1, True),
        (CoreRequest(1, "nlp", memory_mib=32_000), NodeCapacity(28, 64_000, 4_000), 8, True),
        (CoreRequest(1, "nlp", memory_mib=32_000), NodeCapacity(6, 64_000, 4_000), 6, True),
        (CoreRequest(1, "nlp", memory_mib=32_000), NodeCapacity(28, 64_000), 5, False),
        (CoreRequest(1, "nlp", memory_per_core_mib=2_000), NodeCapacity(28, 10_000), 5, False),
    ],
)
def test_a_nodes_means(request_: CoreRequest, node: NodeCapacity, cores: int, capped: bool) -> None:
    assert choose_start_cores(request_, [], node) == StartCores(cores, "default", capped)


def test_at_least_one_core() -> None:
    past = cv(1)
    assert choose_start_cores(CoreRequest(1, "cv", pipelined=True, large_weights=True), past, NODE).cores == 1


@given(
    past=st.lists(
        st.builds(PastFit, st.sampled_from(["cv", None]), st.none(), st.integers(1, 200), st.integers(1, 8)), max_size=9
    ),
    request_=st.builds(
        CoreRequest, st.integers(1, 16), st.sampled_from(["cv", "nlp", None]), st.none(), st.booleans(), st.booleans(),
        st.booleans(), st.integers(0, 10**6), st.integers(0, 10**6),
    ),
    node=st.builds(NodeCapacity, st.integers(1, 128), st.integers(0, 10**6), st.integers(0, 10**5)),
)  # fmt: skip
def test_within_the_node_and_whatever_the_order(past: list[PastFit], request_: CoreRequest, node: NodeCapacity) -> None:
    start = choose_start_cores(request_, past, node)
    assert 1 <= start.cores <= node.cores
    assert start == choose_start_cores(request_, past[::-1], node)
    if node.memory_mib and start.cores > 1:
        assert start.cores * request_.memory_per_core_mib <= node.memory_mib


@pytest.mark.parametrize(
    "make",
    [
        lambda: PastFit("cv", None, 0, 1),
        lambda: PastFit("cv", None, 1, 0),
        lambda: CoreRequest(0),
        lambda: CoreRequest(1, memory_mib=-1),
        lambda: NodeCapacity(0),
        lambda: NodeCapacity(1, -1),
    ],
)
def test_what_is_refused(make: object) -> None:
    with pytest.raises(PolicyError, match=r"at least 1|from 0"):
        make()  # type: ignore[operator]
