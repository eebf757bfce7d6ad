"""The agent as a whole follows runs: from prolog to epilog, past its own end, and whatever the clock is set to."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from slurm_soda.agent.sampling.gpus import GpuReading
from tests.agent.bench import CLOSE, JOB, OPEN, Bench, BusyGpus, Controller, until


def test_a_run_from_prolog_to_epilog(tmp_path: Path, controller: Controller) -> None:
    bench = Bench(tmp_path, controller.port)

    async def scene() -> None:
        async with bench.running():
            await until((tmp_path / "sock").exists)
            assert await bench.deliver(OPEN) == ""
            await until(lambda: any(r.usage and r.usage[0].gpu_util_ratio == 0.5 for r in controller.reports))
            bench.now_s = 1010.0
            assert await bench.deliver(CLOSE) == ""
            await until(lambda: any(r.closed for r in controller.reports))
            await until(lambda: not list((tmp_path / "spool").iterdir()))

    asyncio.run(scene())
    opened = [record for report in controller.reports for record in report.opened]
    closed = [record for report in controller.reports for record in report.closed]
    last = [record for report in controller.reports for record in report.usage][-1]
    assert [(r.job_id, r.gpus, r.cpus) for r in opened] == [(JOB, (0, 1), 2)]
    assert [(r.job_id, r.exit_code) for r in closed] == [(JOB, "0:0")]
    assert (last.gpu_count, last.gpu_memory_peak_mib, last.first_s) == (2, 2048.0, 1000.0)
    assert [r.seq for r in controller.reports] == sorted({r.seq for r in controller.reports})
    assert {(r.node, r.gpu_count) for r in controller.reports} == {("n1", 2)}
    assert not (tmp_path / "sock").exists()


def test_gpus_are_read_in_every_interval(
    tmp_path: Path, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while no prolog or epilog calls for a sample."""
    bench, ratio = Bench(tmp_path, controller.port), 0.5
    monkeypatch.setattr(BusyGpus, "read", lambda _, indices, now_s: {i: GpuReading(ratio, 1024.0) for i in indices})

    def reported() -> bool:
        return any(use.gpu_util_last_ratio == ratio for report in controller.reports for use in report.usage)

    async def scene() -> None:
        nonlocal ratio
        async with bench.running():
            await until((tmp_path / "sock").exists)
            assert await bench.deliver(OPEN) == ""
            await until(reported)
            ratio, bench.now_s = 0.75, 1002.0
            await until(reported)

    asyncio.run(scene())


@pytest.mark.parametrize(("since_s", "young"), [(5.0, True), (11.0, False), (-3600.0, False)])
def test_runs_are_young_for_some_seconds_also_when_the_clock_is_set_back(
    tmp_path: Path, since_s: float, young: bool
) -> None:
    bench = Bench(tmp_path, 1)
    agent = bench.agent()
    agent.receive_event(json.dumps(OPEN).encode())
    bench.now_s = 1000.0 + since_s
    config = bench.config
    assert agent._pause_s() == (config.young_interval_s if young else config.interval_s)


def test_an_agent_that_was_killed_goes_on_where_it_was(tmp_path: Path, controller: Controller) -> None:
    bench = Bench(tmp_path, controller.port)

    async def scene() -> None:
        killed = bench.agent()
        assert killed.receive_event(json.dumps(OPEN).encode() + b"\n") == ""
        bench.now_s = 1000.4
        killed.sample()
        bench.now_s = 1001.0
        assert "is away" in await bench.deliver(CLOSE)  # nobody listens: the epilog keeps its event itself
        heir = bench.agent()
        heir.sample()
        while await heir.upload():
            pass

    asyncio.run(scene())
    (report,) = controller.reports
    (usage,) = report.usage
    assert (usage.samples, usage.gpu_util_ratio, usage.gpu_memory_peak_mib) == (0, 0.5, 2048.0)
    assert [record.exit_code for record in report.closed] == ["0:0"]
    assert any(fault.startswith("epilog: agent at") for fault in report.faults)
    assert list((tmp_path / "spool").iterdir()) == []


def test_a_clock_that_is_set_loses_no_run_and_keeps_none(tmp_path: Path, controller: Controller) -> None:
    bench = Bench(tmp_path, controller.port)
    agent = bench.agent()
    agent.receive_event(json.dumps(OPEN).encode())

    def lost() -> bool:
        agent.sample(gpus=False)
        return not agent._parts.run_records.active()

    for by_s in (400_000.0, -700_000.0):
        bench.now_s += by_s
        bench.set_by_s += by_s
        assert not lost()
    bench.now_s += 80_000
    assert not lost()
    bench.now_s += 10_000
    assert lost()


@pytest.mark.parametrize(
    ("booted_s", "silent_s", "lost"), [(0, 80_000, False), (0, 90_000, True), (1100, 200, True), (900, 200, False)]
)
def test_a_run_that_nobody_closes_ends_by_itself(
    tmp_path: Path, controller: Controller, booted_s: float, silent_s: float, lost: bool
) -> None:
    bench = Bench(tmp_path, controller.port)
    bench.booted_s = booted_s

    async def scene() -> None:
        agent = bench.agent()
        agent.receive_event(json.dumps(OPEN).encode())
        bench.now_s += silent_s
        agent.sample()
        await agent.upload()
        if lost:  # an epilog that comes after all is still told
            agent.receive_event(json.dumps(CLOSE).encode())
            await agent.upload()

    asyncio.run(scene())
    assert [fault for fault in controller.reports[0].faults if "no epilog reported its end" in fault] == (
        [f"job {JOB}: its processes are gone and no epilog reported its end"] if lost else []
    )
    assert (list((tmp_path / "spool").iterdir()) == []) is lost
    assert len(controller.reports[-1].closed) == lost


def test_nonsense_on_the_socket_is_refused_and_remembered(tmp_path: Path, controller: Controller) -> None:
    bench = Bench(tmp_path, controller.port)

    async def scene() -> str:
        agent = bench.agent()
        said = agent.receive_event(b'{"kind":"evil"}\n')
        await agent.upload()
        return said

    assert "start_s is missing" in asyncio.run(scene())
    assert "start_s is missing" in controller.reports[0].faults[0]


def test_progress_of_a_run_is_reported_and_its_file_goes_with_it(tmp_path: Path, controller: Controller) -> None:
    bench = Bench(tmp_path, controller.port)
    agent = bench.agent()
    agent.receive_event(json.dumps({**OPEN, "uid": os.getuid()}).encode())
    (file,) = [path / f"{JOB}.0" for path in (tmp_path / "progress").iterdir()]
    file.write_text("iteration=10 seconds=7\n")
    agent.sample()
    bench.now_s += 2.0
    file.write_text("iteration=20 seconds=8.5 of=90 saved=12 batch=64\n")
    agent.sample()
    asyncio.run(agent.upload())
    (told,) = controller.reports[-1].progress
    assert (told.iterations, told.total, told.saved, told.batch, told.at_s) == (20.0, 90.0, 12.0, 64, 1003.0)
    agent.receive_event(json.dumps(CLOSE).encode())
    agent.sample()
    assert not file.exists()
