"""What a decision sees of services: of reports and of Slurm's jobs, each as far as it is to be believed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from slurm_soda.daemon.services.known_service import KnownService, ServiceKey
from slurm_soda.daemon.services.load_forecasts import LoadForecasts
from slurm_soda.daemon.services.service_load import LoadMinute
from slurm_soda.daemon.services.service_table import build_service_table, placement_settings
from slurm_soda.daemon.services.service_tasks import TaskHistory
from slurm_soda.daemon.settings.services import ServicesSettings
from slurm_soda.policies.services.service import Device, InstanceState, ServiceTable
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.hints.flags import Hints
from slurm_soda.wire.services.router_report import ReportedInstance
from slurm_soda.wire.services.service_file import read_service_file
from tests.daemon.records import record
from tests.daemon.services.service_site import report

NOW_S = 1_700_000_000.0
KEY = ServiceKey("alice", "answers")


def known(age_s: float = 0.0, **more: Any) -> KnownService:
    sent = report(**more)
    return KnownService(KEY, read_service_file(sent.service_file, "file"), sent, NOW_S - age_s, 1000.0 - age_s)


def running(job_id: int, gpus: int = 0, **more: Any) -> SlurmJob:
    return record(job_id, "RUNNING", gpus=gpus, start_s=NOW_S - 50, hints=Hints(service="answers"), **more)


def table(one: KnownService, jobs: list[SlurmJob], **more: Any) -> ServiceTable:
    values: dict[str, Any] = {"low_since_s": {}, "forecast_qps": {}, "draining": ()}
    tasks = TaskHistory().tasks(jobs, NOW_S)
    return build_service_table([one], tasks, steady_s=1000.0, settings=ServicesSettings(), **(values | more))


def test_instances_are_those_of_slurm_with_the_states_of_the_router() -> None:
    instances = [(7, "cpu", "ready"), (8, "gpu", "failed"), (9, "cpu", "ready"), (99, "cpu", "ready")]
    jobs = [running(8, 1), running(7), running(10), running(9), running(5, user="bob")]
    one = known(instances=[ReportedInstance(*each, since_s=NOW_S - 10) for each in instances])
    seen = table(one, jobs, draining=(9,))
    assert seen.job_id.tolist() == [7, 8, 9, 10]
    assert seen.device.tolist() == [Device.CPU, Device.GPU, Device.CPU, Device.CPU]
    assert seen.state.tolist() == [
        InstanceState.READY, InstanceState.FAILED, InstanceState.DRAINING, InstanceState.STARTING,
    ]  # fmt: skip
    assert seen.since_s.tolist() == [NOW_S - 10, NOW_S - 10, NOW_S - 10, NOW_S - 50]


def test_what_was_reported_of_an_earlier_run_does_not_count() -> None:
    one = known(instances=[ReportedInstance(7, "cpu", "ready", since_s=NOW_S - 100)])
    again = known(
        instances=[
            ReportedInstance(7, "cpu", "ready", NOW_S - 10, host="n2"),
            ReportedInstance(7, "cpu", "failed", NOW_S - 500, host="n1"),
        ]
    )
    assert table(again, [running(7)]).state.tolist() == [InstanceState.READY]
    assert table(one, [running(7)]).state.tolist() == [InstanceState.STARTING]


def test_a_service_with_tasks_in_several_partitions_goes_first_only_if_all_are_named() -> None:
    """Whichever of its tasks Slurm shows first: the sodad that lifts them does not tell them apart."""
    hints = Hints(service="answers")
    tasks = [
        record(30, array_job_id=30, array_task="3", gpus=1, partition="gpu", hints=hints),
        record(31, gpus=1, partition="night,gpu", hints=hints),
        record(32, gpus=1, partition="held", reason="JobHeldUser", hints=hints),
    ]
    for order in (tasks, tasks[::-1]):
        seen = table(known(), order)
        partitions = seen.services[0].gpu_partition
        assert partitions == "gpu,night"
        for named, allowed in ((["gpu"], False), (["gpu", "night"], True), (["*"], True), ([], False)):
            assert placement_settings(ServicesSettings(first_in=named)).may_go_first(partitions) == allowed


def test_limits_profiles_and_partitions() -> None:
    waiting = [
        record(20, array_job_id=20, array_task="0-4", gpus=0, hints=Hints(service="answers")),
        record(30, array_job_id=30, array_task="3", gpus=1, partition="gpu", hints=Hints(service="answers")),
        record(31, gpus=1, reason="JobHeldUser", hints=Hints(service="answers")),
    ]
    seen = table(known(least=2, most=5), waiting)
    (service,) = seen.services
    assert (service.owner, service.name, service.least, service.most) == ("alice", "answers", 2, 5)
    assert (service.cpu_partition, service.gpu_partition) == ("main", "gpu")
    assert service.cpu is not None
    assert (service.cpu.capacity_qps, [one.capacity_qps for one in service.gpu]) == (20.0, [400.0])
    assert seen.waiting.tolist() == [[5, 1]]
    assert (seen.task_id.tolist(), seen.task_device.tolist()) == ([20, 30], [Device.CPU, Device.GPU])


@pytest.mark.parametrize(("age_s", "expected"), [(29.0, 7.0), (31.0, np.nan)])
def test_the_load_is_not_known_once_the_router_is_silent(age_s: float, expected: float) -> None:
    np.testing.assert_equal(table(known(age_s, load_qps=7.0), []).load_qps, [expected])


def test_what_is_carried_from_cycle_to_cycle_and_forecast() -> None:
    seen = table(known(), [], low_since_s={KEY: 5.0}, forecast_qps={KEY: 9.0})
    assert (seen.low_since_s.tolist(), seen.forecast_qps.tolist()) == ([5.0], [9.0])


def test_the_load_is_forecast_once_a_method_has_proved_itself() -> None:
    """Three days with the same wave: the rise is told before it comes."""
    forecasts, minutes = LoadForecasts(600.0), 3 * 1440

    def load(minute: int) -> float:
        return 10.0 + 90.0 * (480 <= minute % 1440 < 600)

    first = int(NOW_S // 86_400) * 1440
    forecasts.add(LoadMinute(*KEY, (first + at) * 60.0, 1, load(at)) for at in range(30))
    assert forecasts.tell([KEY], (first + 30) * 60.0, 0.0) == {}
    forecasts.add(LoadMinute(*KEY, (first + at) * 60.0, 1, load(at)) for at in range(30, minutes + 475))
    told = forecasts.tell([KEY], (first + minutes + 475) * 60.0, 4000.0)
    assert told[KEY] >= 90.0
    forecasts.forget([KEY])
    assert forecasts.tell([KEY], (first + minutes + 475) * 60.0, 8000.0) == {}
    quiet = LoadForecasts(600.0)
    quiet.add(LoadMinute(*KEY, (first + at) * 60.0, 1, load(at)) for at in range(minutes + 200))
    assert quiet.tell([KEY], (first + minutes + 200) * 60.0, 0.0)[KEY] < 30.0


@pytest.mark.parametrize("value", [-math.inf, -1.0, 0.0, 1.0, 60.0, 86_400.0, 90_000.0, math.inf, math.nan])
@pytest.mark.parametrize(
    "name", ["headroom", "hysteresis", "cool_down_s", "horizon_s", "retry_s", "requeue_failed_s", "min_run_s"]
)
def test_what_the_configuration_takes_every_decision_takes(name: str, value: float) -> None:
    """Else the first service that anybody starts would end all cycles."""
    try:
        settings = ServicesSettings.model_validate({name: value})
    except ValidationError:
        return
    assert getattr(placement_settings(settings), name) == value
