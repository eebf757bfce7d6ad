"""Failures in a row, by service and device, as a decision counts them."""

from __future__ import annotations

from slurm_soda.daemon.services.failed_runs import FailedRuns
from slurm_soda.daemon.services.known_service import ServiceKey
from slurm_soda.policies.services.service import Device, InstanceState, ServiceTable
from tests.policies.cases import NOW_S
from tests.policies.services.cases import BOTH, FAILED, READY, STARTING, instances, table

KEY = ServiceKey("ann", "chat")


def counted(
    runs: FailedRuns, services: ServiceTable, restarts: dict[int, int], now_s: float = NOW_S
) -> list[list[int]]:
    failures: list[list[int]] = runs.observe([KEY], services, restarts, now_s).failures.tolist()
    return failures


def test_runs_count_until_one_is_ready_each_once_and_also_those_that_start_for_too_long() -> None:
    runs, gpu = FailedRuns(), Device.GPU
    failed, none = table(BOTH, 1.0, instances(gpu, 2, FAILED)), table(BOTH, 1.0)
    for restarts, count in (({}, 2), ({}, 2), ({1001: 1}, 3), ({1001: 1, 1002: 1}, 4)):
        assert counted(runs, failed, restarts) == [[0, count]]
    assert counted(runs, none, {}) == [[0, 4]], "they have left, and that is no success"
    starting = table(BOTH, 1.0, instances(Device.CPU, 1, STARTING), first_id=2001)
    assert counted(runs, starting, {}) == [[0, 4]]
    assert counted(runs, starting, {}, NOW_S + 1800.0) == [[1, 4]]
    ready = table(BOTH, 1.0, [*instances(gpu, 1, READY), *instances(gpu, 1, FAILED)], first_id=3001)
    assert counted(runs, ready, {}) == [[1, 0]]
    assert runs.observe([], ServiceTable(), {}, NOW_S).failures.shape == (0, 2)
    assert counted(runs, none, {}) == [[0, 0]], "what is not known any more is forgotten"


def test_one_that_is_started_again_and_again_where_it_runs_has_failed_since_the_first_time() -> None:
    """``slurm_soda_serve.py`` does that at least once a minute: else none would ever be tried on another node."""
    runs, seen, other = FailedRuns(), [], instances(Device.GPU, 1, READY)
    for passed_s in range(0, 700, 50):
        now_s, state = NOW_S + passed_s, FAILED if passed_s % 100 == 0 else STARTING
        both = [*instances(Device.GPU, 1, state, now_s - 10.0), *other]
        told = runs.observe([KEY], table(BOTH, 1.0, both), {}, now_s)
        seen.append((InstanceState(int(told.state[0])), now_s - float(told.since_s[0])))
    assert seen[:4] == [(FAILED, 10.0), (STARTING, 10.0), (FAILED, 110.0), (STARTING, 10.0)]
    assert seen[11:] == [(STARTING, 10.0), (FAILED, 610.0), (FAILED, 660.0)], "by then it is not expected to start"
    ready = table(BOTH, 1.0, instances(Device.GPU, 1, READY, NOW_S + 700.0))
    assert runs.observe([KEY], ready, {}, NOW_S + 710.0).since_s.tolist() == [NOW_S + 700.0]
    again = table(BOTH, 1.0, instances(Device.GPU, 1, FAILED, NOW_S + 720.0))
    assert runs.observe([KEY], again, {}, NOW_S + 730.0).since_s.tolist() == [NOW_S + 720.0]
