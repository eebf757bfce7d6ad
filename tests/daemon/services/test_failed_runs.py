"""Failures in a row, by service and device, as a decision counts them."""

from __future__ import annotations

from slurm_soda.daemon.services.failed_runs import FailedRuns
from slurm_soda.daemon.services.known_service import ServiceKey
from slurm_soda.policies.services.service import Device, ServiceTable
from tests.policies.cases import NOW_S
from tests.policies.services.cases import BOTH, FAILED, READY, STARTING, instances, table

KEY = ServiceKey("ann", "chat")


def test_runs_count_until_one_is_ready_each_once_and_also_those_that_start_for_too_long() -> None:
    runs, gpu = FailedRuns(), Device.GPU
    failed = table(BOTH, 1.0, instances(gpu, 2, FAILED))
    for restarts, counted in (({}, 2), ({}, 2), ({1001: 1}, 3), ({1001: 1, 1002: 1}, 4)):
        assert runs.observe([KEY], failed, restarts, NOW_S).tolist() == [[0, counted]]
    assert runs.observe([KEY], table(BOTH, 1.0), {}, NOW_S).tolist() == [[0, 4]], (
        "they have left, and that is no success"
    )
    starting = table(BOTH, 1.0, instances(Device.CPU, 1, STARTING), first_id=2001)
    assert runs.observe([KEY], starting, {}, NOW_S).tolist() == [[0, 4]]
    assert runs.observe([KEY], starting, {}, NOW_S + 1800.0).tolist() == [[1, 4]]
    ready = table(BOTH, 1.0, [*instances(gpu, 1, READY), *instances(gpu, 1, FAILED)], first_id=3001)
    assert runs.observe([KEY], ready, {}, NOW_S).tolist() == [[1, 0]]
    assert runs.observe([], ServiceTable(), {}, NOW_S).shape == (0, 2)
    assert runs.observe([KEY], table(BOTH, 1.0), {}, NOW_S).tolist() == [[0, 0]], (
        "what is not known any more is forgotten"
    )
