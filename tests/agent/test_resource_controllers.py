"""The agent gives its controllers their turns, and outlives what they do wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from slurm_soda.agent.reporting.upload import UploadError
from slurm_soda.agent.resource_controller import NodeSample
from slurm_soda.wire.core_tuning import CoreFit, CoreMeasurement, CoreOrder, ReportAnswer
from slurm_soda.wire.mps import MpsFault, MpsJob
from tests.agent.bench import CLOSE, JOB, OPEN, Bench, Controller, until


@dataclass
class Diary:
    """A controller that writes down what it is asked to do."""

    interval_s: float = 0.06
    asked: list[str] = field(default_factory=list)
    samples: list[NodeSample] = field(default_factory=list)

    def recover(self, now_s: float) -> Sequence[str]:
        self.asked.append("recover")
        return ["something was left behind"]

    def turn(self, sample: NodeSample) -> Sequence[str]:
        self.asked.append("turn")
        self.samples.append(sample)
        return []

    def close(self) -> Sequence[str]:
        self.asked.append("close")
        return []

    def counts(self) -> Mapping[str, int]:
        return {"mps_daemons": 1, "cores_taken": 2}


class Broken(Diary):
    def turn(self, sample: NodeSample) -> Sequence[str]:
        raise ZeroDivisionError("a mistake")


class Uncountable(Diary):
    def counts(self) -> Mapping[str, int]:
        raise ZeroDivisionError("a mistake")


def test_a_controller_recovers_first_has_turns_and_closes_last(tmp_path: Path, controller: Controller) -> None:
    bench, diary = Bench(tmp_path, controller.port), Diary()
    bench.resource_controllers = (Broken(), diary)

    async def scene() -> None:
        async with bench.running():
            await until((tmp_path / "sock").exists)
            await bench.deliver(OPEN)
            await until(lambda: any(sample.runs and sample.gpus for sample in diary.samples))
            await until(lambda: any(len(report.faults) == 2 for report in controller.reports))

    asyncio.run(scene())
    assert diary.asked[0] == "recover"
    assert set(diary.asked[1:-1]) == {"turn"}
    assert diary.asked[-1] == "close"
    seen = next(sample for sample in diary.samples if sample.runs)
    assert [run.key.job_id for run in seen.runs] == [JOB]
    assert {index: gpu.util_ratio for index, gpu in seen.gpus.items()} == {0: 0.5, 1: 0.5}
    faults = {fault.partition(" (x")[0] for fault in controller.reports[-1].faults}
    module = Broken.__module__
    assert faults == {"something was left behind", f"{module}: turn failed: ZeroDivisionError: a mistake"}


def test_a_report_tells_of_gpus_limits_and_the_agent_itself(tmp_path: Path, controller: Controller) -> None:
    bench = Bench(tmp_path, controller.port)
    bench.resource_controllers = (Diary(), Diary())
    agent = bench.agent()
    agent.receive_event(json.dumps(OPEN).encode())
    agent.sample()

    async def scene() -> None:
        controller.status = 503
        with pytest.raises(UploadError):
            await agent.upload()
        failed = controller.last
        controller.status = 204
        await agent.upload()
        assert controller.last.seq == failed.seq, "what alone differs is what the agent costs"

    asyncio.run(scene())
    (use,) = controller.reports[-1].use
    assert [(gpu.index, gpu.util_ratio, gpu.memory_mib) for gpu in use.gpus] == [(0, 0.5, 1024.0), (1, 0.5, 1024.0)]
    assert use.counts == {"mps_daemons": 2, "cores_taken": 4}
    assert use.agent_cpu_s > 0
    assert 1 << 20 < use.agent_memory_bytes < 1 << 40


def test_a_look_between_two_samples_forgets_no_gpu(tmp_path: Path) -> None:
    """It reads those of new runs alone; what a driver does not tell any more goes with the next whole one."""
    agent = Bench(tmp_path, 1).agent()
    agent.receive_event(json.dumps(OPEN).encode())
    agent.sample()
    agent.receive_event(json.dumps({**OPEN, "job_id": JOB + 1, "gpus": [2]}).encode())
    agent.sample(gpus=False)
    assert [gpu.index for gpu in agent._use.read().gpus] == [0, 1, 2]
    agent.receive_event(json.dumps(CLOSE).encode())
    agent.sample(gpus=False)
    assert [gpu.index for gpu in agent._use.read().gpus] == [2]
    agent._parts.gpus.read = lambda indices, now_s: {}  # type: ignore[method-assign]
    agent.sample()
    assert agent._use.read().gpus == ()


def test_a_controller_that_cannot_count_keeps_no_report_back(tmp_path: Path, controller: Controller) -> None:
    bench = Bench(tmp_path, controller.port)
    bench.resource_controllers = (Uncountable(), Diary())
    asyncio.run(bench.agent().upload())
    assert controller.reports[-1].use[0].counts == {"mps_daemons": 1, "cores_taken": 2}


def test_controllers_give_back_also_when_the_agent_ends_by_a_mistake(tmp_path: Path, controller: Controller) -> None:
    bench, diary = Bench(tmp_path, controller.port), Diary()
    bench.resource_controllers = (diary,)
    agent = bench.agent()

    def fail(runs: object, now_s: float) -> None:
        raise ZeroDivisionError("a mistake")

    agent._parts.cpu.read = fail  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        asyncio.run(agent.run(asyncio.Event()))
    assert diary.asked == ["recover", "close"]
    assert controller.reports


def test_a_run_that_ended_is_no_controllers_business(tmp_path: Path, controller: Controller) -> None:
    bench, diary = Bench(tmp_path, controller.port), Diary()
    bench.resource_controllers = (diary,)
    agent = bench.agent()
    agent.receive_event(json.dumps(OPEN).encode())
    agent.sample()
    agent.receive_event(json.dumps(CLOSE).encode())
    agent.sample()
    assert [len(sample.runs) for sample in diary.samples] == [1, 0]


def test_controllers_have_a_clock_that_goes_on_when_the_time_of_day_is_set_back(
    tmp_path: Path, controller: Controller
) -> None:
    bench, diary = Bench(tmp_path, controller.port), Diary()
    bench.resource_controllers = (diary,)
    agent = bench.agent()
    agent.receive_event(json.dumps(OPEN).encode())
    agent.sample()
    bench.now_s -= 3600
    bench.set_by_s -= 3600
    agent.sample()
    agent.sample_gpus(1.0)
    assert [sample.unix_s for sample in diary.samples] == [1001.0, -2599.0, -2599.0]
    clock = [sample.now_s for sample in diary.samples]
    assert clock == sorted(set(clock))
    assert clock[-1] - clock[0] < 2


def test_gpus_that_failed_are_looked_for_again_when_the_time_of_day_is_set_back(tmp_path: Path) -> None:
    """On the clock that goes on, the driver is asked for 30 s later; by the time of day that would be an hour."""
    bench = Bench(tmp_path, 1)
    agent = bench.agent()
    asked: list[float] = []
    agent._parts.gpus.open = asked.append  # type: ignore[method-assign,assignment]
    agent.receive_event(json.dumps(OPEN).encode())
    agent.sample()
    bench.now_s -= 3600
    bench.set_by_s -= 3600
    agent.sample()
    assert len(asked) == 2
    assert 0 < asked[1] - asked[0] < 2


def test_a_controller_may_want_samples_more_often(tmp_path: Path, controller: Controller) -> None:
    bench, diary = Bench(tmp_path, controller.port), Diary(interval_s=0.1)
    bench.resource_controllers = (diary,)
    bench.config = replace(bench.config, interval_s=3600.0, young_interval_s=3600.0)

    async def scene() -> None:
        async with bench.running():
            await until(lambda: len(diary.samples) >= 4)
            diary.interval_s = float("inf")

    asyncio.run(scene())


def test_what_controllers_tell_is_told_once_and_orders_come_with_the_answer(
    tmp_path: Path, controller: Controller
) -> None:
    bench = Bench(tmp_path, controller.port)
    measured = CoreMeasurement(JOB, 0, "n1", 1001.0, 0, 0, 8, 8, 2, 0.5, 0.01, 60)
    fit = CoreFit(JOB, 0, "n1", 1002.0, 0, 8, 8, 4, 2, 3, 0.5, 0.5, "best_fit")
    order = CoreOrder(JOB, 0, 0, 1, 4)
    bench.core_messages.measurements.append(measured)
    bench.core_messages.fits.append(fit)

    async def scene() -> None:
        agent = bench.agent()
        controller.status = 503
        with pytest.raises(UploadError):
            await agent.upload()
        assert bench.core_messages
        controller.status, controller.answer = 200, json.dumps(ReportAnswer("n1", 2, (order,)).to_dict()).encode()
        await agent.upload()
        assert bench.core_messages.orders == {(JOB, 0): order}
        controller.answer = b"<html>a proxy's</html>"
        await agent.upload()
        assert bench.core_messages.orders == {(JOB, 0): order}
        controller.answer = b'{"node": "n1", "seq": 4}'
        await agent.upload()

    asyncio.run(scene())
    assert [(report.core_measurements, report.core_fits) for report in controller.reports] == [
        ((measured,), (fit,)), ((), ()), ((), ()),
    ]  # fmt: skip
    assert not bench.core_messages
    assert bench.core_messages.orders == {}


def test_faults_of_mps_are_reported_until_a_report_is_taken(controller: Controller, tmp_path: Path) -> None:
    bench = Bench(tmp_path, controller.port)
    under = MpsJob(JOB, "1000", (0,))
    fault = MpsFault(1001.0, (under,))
    bench.mps.jobs = (under,)
    bench.mps.faults.append(fault)

    async def scene() -> None:
        agent = bench.agent()
        controller.status = 503
        with pytest.raises(UploadError):
            await agent.upload()
        assert bench.mps
        controller.status = 204
        await agent.upload()
        await agent.upload()

    asyncio.run(scene())
    assert [(report.mps_jobs, report.mps_faults) for report in controller.reports] == [
        ((under,), (fault,)), ((under,), ()),
    ]  # fmt: skip
    assert not bench.mps
