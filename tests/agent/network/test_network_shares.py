"""Who gets which part of the link, and when there is anything to share out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.agent.settings.network import NetworkSettings
from slurm_soda.policies.node_limits.link_shares import (
    CPU,
    GPU,
    NOT_CPU,
    OTHER,
    ROOT,
    build_share_classes,
    find_competing_jobs,
)
from slurm_soda.wire.errors import SodaError
from slurm_soda.wire.records import JobOpened


def job(job_id: int, *, gpus: int = 0, nodes: int = 1) -> JobOpened:
    return JobOpened(job_id, 0, "n1", 1000, "alice", "main", 10.0, tuple(range(gpus)), 4, {}, nodes)


WIDE, SMALL, PLAIN, PLAIN_WIDE = job(1, gpus=2, nodes=2), job(2, gpus=1), job(3), job(4, nodes=3)


@pytest.mark.parametrize(
    ("here", "gpu", "cpu"),
    [
        ((WIDE, PLAIN), (WIDE,), (PLAIN,)),
        ((PLAIN, SMALL, WIDE, PLAIN_WIDE), (SMALL, WIDE), (PLAIN, PLAIN_WIDE)),
    ],
)
def test_jobs_are_told_apart(
    here: tuple[JobOpened, ...], gpu: tuple[JobOpened, ...], cpu: tuple[JobOpened, ...]
) -> None:
    found = find_competing_jobs(here)
    assert found is not None
    assert (found.gpu, found.cpu) == (gpu, cpu)


@pytest.mark.parametrize("here", [(), (WIDE,), (WIDE, SMALL), (SMALL, PLAIN), (PLAIN, PLAIN_WIDE)])
def test_nothing_is_shared_out_without_a_wide_gpu_job_and_a_cpu_job(here: tuple[JobOpened, ...]) -> None:
    assert find_competing_jobs(here) is None


def rates(settings: NetworkSettings, mbit: float = 1000) -> dict[int, tuple[float, float]]:
    return {c.minor: (c.rate * 8e-6, c.ceiling * 8e-6) for c in build_share_classes(settings, mbit)}


def test_the_papers_shares_and_what_is_kept_for_the_system() -> None:
    assert rates(NetworkSettings(gpu_interface="eth0")) == {
        ROOT: (1000, 1000),
        NOT_CPU: (750, 1000),
        GPU: (675, 1000),
        OTHER: (75, 1000),
        CPU: (250, 1000),
    }


def test_cpu_jobs_without_borrowing_and_with_an_interface_of_their_own() -> None:
    assert rates(NetworkSettings(gpu_interface="eth0", cpu_may_borrow=False))[CPU] == (250, 250)
    beside = rates(NetworkSettings(gpu_interface="ib0", cpu_interface="eth0"))
    assert (beside[CPU], beside[NOT_CPU]) == ((10, 10), (990, 1000))
    same = rates(NetworkSettings(gpu_interface="eth0", cpu_interface="eth0"))
    assert same[CPU] == (250, 1000)


@given(mbit=st.floats(1, 1e7), gpu=st.floats(10, 95), borrow=st.booleans(), separate=st.booleans())
def test_no_class_is_promised_more_than_the_one_above_has(
    mbit: float, gpu: float, borrow: bool, separate: bool
) -> None:
    settings = NetworkSettings("eth0", "eth1" if separate else "", 0.0, gpu, borrow)
    tree = {c.minor: c for c in build_share_classes(settings, mbit)}
    for parent in (ROOT, NOT_CPU):
        below = [c for c in tree.values() if c.parent == parent]
        assert sum(c.rate for c in below) <= tree[parent].rate + len(below)
        assert all(0 < c.rate <= c.ceiling <= tree[ROOT].ceiling for c in below)
    assert tree[GPU].ceiling == tree[OTHER].ceiling == tree[ROOT].rate


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"gpu_interface": 'eth0"; drop'}, "network.gpu_interface is"),
        ({"gpu_interface": "a-name-too-long-for-linux"}, "network.gpu_interface is"),
        ({"gpu_interface": "eth0", "cpu_interface": "eth 1"}, "network.cpu_interface is"),
        ({"cpu_interface": "eth1"}, "network.gpu_interface is not set"),
        ({"gpu_percent": 100.0}, "network.gpu_percent is 100"),
        ({"gpu_percent": float("nan")}, "network.gpu_percent is nan"),
        ({"link_mbit": -1.0}, "network.link_mbit is -1"),
        ({"link_mbit": float("inf")}, "network.link_mbit is inf"),
    ],
)
def test_mistakes_in_the_settings(values: dict[str, object], said: str) -> None:
    with pytest.raises(SodaError) as caught:
        NetworkSettings(**values)  # type: ignore[arg-type]
    assert said in str(caught.value)
