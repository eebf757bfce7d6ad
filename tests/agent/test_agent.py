"""The agent as a whole: real socket, real spool, real HTTP; only the clock, the GPUs and munge are the test's own."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.agent.agent import Agent, AgentDependencies
from slurm_soda.agent.reporting.core_messages import CoreMessages
from slurm_soda.agent.reporting.recent_faults import RecentFaults
from slurm_soda.agent.reporting.run_records import RunRecords
from slurm_soda.agent.reporting.upload import Backoff, HttpUploader, UploadError
from slurm_soda.agent.resource_controller import ResourceController
from slurm_soda.agent.sampling.cpu_time import CpuReader
from slurm_soda.agent.sampling.gpus import GpuReading, Gpus
from slurm_soda.agent.settings.agent_config import AgentConfig
from slurm_soda.wire.core_tuning import CoreFit
from slurm_soda.wire.event_delivery import deliver_event
from slurm_soda.wire.munge import CREDENTIAL_HEADER, Munge
from slurm_soda.wire.records import NodeReport
from slurm_soda.wire.spool import Spool
from tests.wire.fake_munged import FakeMunged

JOB = 1_999_999_910
"""A number that no job of a Slurm on this very machine has: its processes would be taken for this one's."""

OPEN: dict[str, object] = {
    "kind": "open", "job_id": JOB, "start_s": 1000, "restart": 0, "node": "n1", "uid": 1000, "user": "alice",
    "partition": "main", "at_s": 1000.0, "gpus": [0, 1], "cpus_per_node": "2", "node_names": "n1", "env": {},
}  # fmt: skip
CLOSE: dict[str, object] = {
    "kind": "close", "job_id": JOB, "start_s": 1000, "restart": 0, "uid": 1000, "node": "n1", "at_s": 1010.0,
    "exit_code": "0:0",
}  # fmt: skip


munge = Munge(FakeMunged())


class Controller:
    """An HTTP server in sodad's place, that can be told to fail."""

    def __init__(self, port: int = 0) -> None:
        self.reports: list[NodeReport] = []
        self.last: NodeReport
        self.status = 204
        self.answer = b""
        self.is_impostor = False
        controller = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.path == "/v1/reports"
                munge.check(body, self.headers[CREDENTIAL_HEADER], {0})
                controller.last = NodeReport.from_json(body)
                if controller.status < 300:
                    controller.reports.append(controller.last)
                self.send_response(controller.status)
                self.send_header("Content-Length", str(len(controller.answer)))
                if not controller.is_impostor:
                    self.send_header(CREDENTIAL_HEADER, munge.encode(controller.answer, body))
                self.end_headers()
                self.wfile.write(controller.answer)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class BusyGpus(Gpus):
    """Two GPUs, half busy, 1 GiB each."""

    def open(self, now_s: float) -> None:
        pass

    @property
    def count(self) -> int:
        return 2

    def read(self, indices: Any, now_s: float) -> dict[int, GpuReading]:
        return {index: GpuReading(0.5, 1024.0) for index in indices}


class Bench:
    """Builds agents over one node directory."""

    def __init__(self, path: Path, port: int) -> None:
        self.now_s = 1001.0
        self.set_by_s = 0.0
        """By how much of its way somebody has set the clock."""
        self.steady_s = 50.0
        self.booted_s = 0.0
        self.resource_controllers: tuple[ResourceController, ...] = ()
        self.core_messages = CoreMessages()
        self.config = AgentConfig(
            controller=f"http://127.0.0.1:{port}", node="n1", socket=str(path / "sock"), spool=str(path / "spool"),
            cgroup_root=str(path / "cgroup"), upload_interval_s=0.05, interval_s=0.2, young_interval_s=0.05,
            heartbeat_s=0.3, retry_max_s=0.05, upload_timeout_s=5.0,
        )  # fmt: skip

    def agent(self) -> Agent:
        faults = RecentFaults()
        config = self.config
        parts = AgentDependencies(
            clock=lambda: self.now_s,
            steady=self.steady,
            run_records=RunRecords(Spool(config.spool), faults, config.spool_files),
            cpu=CpuReader(config.cgroup_root),
            gpus=BusyGpus(),
            uploader=HttpUploader(config.controller, munge, config.upload_timeout_s),
            backoff=Backoff(config.retry_max_s, random.Random(1)),
            faults=faults,
            environ={},
            booted_s=self.booted_s,
            resource_controllers=self.resource_controllers,
            core_messages=self.core_messages,
        )
        return Agent(config, parts)

    def steady(self) -> float:
        """Goes on, whatever the time of day is set to."""
        self.steady_s += 0.125
        return self.steady_s + self.now_s - 1001.0 - self.set_by_s

    async def deliver(self, event: dict[str, object]) -> str:
        return await asyncio.to_thread(deliver_event, event, self.config.socket, self.config.spool)


@pytest.fixture
def controller() -> Iterator[Controller]:
    server = Controller()
    yield server
    server.stop()


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def test_a_run_from_prolog_to_epilog(tmp_path: Path, controller: Controller) -> None:
    bench = Bench(tmp_path, controller.port)

    async def scene() -> None:
        stop = asyncio.Event()
        working = asyncio.create_task(bench.agent().run(stop))
        await until((tmp_path / "sock").exists)
        assert await bench.deliver(OPEN) == ""
        await until(lambda: any(r.usage and r.usage[0].gpu_util_ratio == 0.5 for r in controller.reports))
        bench.now_s = 1010.0
        assert await bench.deliver(CLOSE) == ""
        await until(lambda: any(r.closed for r in controller.reports))
        await until(lambda: not list((tmp_path / "spool").iterdir()))
        stop.set()
        await working

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
        stop = asyncio.Event()
        working = asyncio.create_task(bench.agent().run(stop))
        await until((tmp_path / "sock").exists)
        assert await bench.deliver(OPEN) == ""
        await until(reported)
        ratio, bench.now_s = 0.75, 1002.0
        await until(reported)
        stop.set()
        await working

    asyncio.run(scene())


def test_what_may_have_been_taken_is_sent_again_under_its_number_unless_there_is_more_to_say(
    tmp_path: Path, controller: Controller
) -> None:
    bench = Bench(tmp_path, controller.port)

    async def scene() -> list[tuple[int, float]]:
        agent, sent = bench.agent(), []
        for number, controller.status in enumerate((200, 503, 503, 200, 503, 200)):
            if number == 5:
                bench.core_messages.fits.append(CoreFit(JOB, 0, "n1", 1002.0, 0, 8, 8, 4, 2, 3, 0.5, 0.5, "best_fit"))
            with suppress(UploadError):
                await agent.upload()
            bench.now_s += 1
            sent.append(controller.last)
        return [(report.seq, report.sent_s) for report in sent]

    assert asyncio.run(scene()) == [(1, 1001.0), (2, 1002.0), (2, 1002.0), (2, 1002.0), (3, 1005.0), (4, 1006.0)]


def test_while_the_controller_is_away_nothing_is_lost(tmp_path: Path, controller: Controller) -> None:
    controller.status = 503
    bench = Bench(tmp_path, controller.port)

    async def scene() -> None:
        stop = asyncio.Event()
        working = asyncio.create_task(bench.agent().run(stop))
        await until((tmp_path / "sock").exists)
        await bench.deliver(OPEN)
        await bench.deliver(CLOSE)
        await asyncio.sleep(0.3)
        assert {path.name for path in (tmp_path / "spool").iterdir()} == {
            f"{JOB}.1000.{k}" for k in ("open", "close", "usage")
        }
        controller.status = 200
        await until(lambda: not list((tmp_path / "spool").iterdir()))
        stop.set()
        await working

    asyncio.run(scene())
    assert [len(controller.reports[0].opened), len(controller.reports[0].closed)] == [1, 1]


def test_an_impostor_empties_no_spool_and_gives_no_order(tmp_path: Path, controller: Controller) -> None:
    order = {"job_id": JOB, "restart": 0, "search": 0, "step": 1, "cores": 1}
    controller.is_impostor, controller.status = True, 200
    controller.answer = json.dumps({"node": "n1", "seq": 1, "cores": [order]}).encode()
    bench = Bench(tmp_path, controller.port)

    async def scene() -> None:
        agent = bench.agent()
        for event in (OPEN, CLOSE):
            agent.receive_event(json.dumps(event).encode())
        with pytest.raises(UploadError, match="answer refused"):
            await agent.upload()
        assert {path.suffix for path in (tmp_path / "spool").iterdir()} >= {".open", ".close"}
        assert not bench.core_messages.orders
        controller.is_impostor = False
        await agent.upload()
        assert [report.closed for report in controller.reports][1] == controller.reports[0].closed
        assert bench.core_messages.orders

    asyncio.run(scene())


def test_an_end_without_a_beginning_is_reported_at_once(tmp_path: Path, controller: Controller) -> None:
    bench = Bench(tmp_path, controller.port)
    bench.config = replace(bench.config, heartbeat_s=3600.0)

    async def scene() -> None:
        stop = asyncio.Event()
        working = asyncio.create_task(bench.agent().run(stop))
        await until(lambda: controller.reports)
        await bench.deliver(CLOSE)
        await until(lambda: any(report.closed for report in controller.reports))
        stop.set()
        await working

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


def test_an_idle_node_sends_heartbeats(tmp_path: Path, controller: Controller) -> None:
    bench = Bench(tmp_path, controller.port)

    async def scene() -> None:
        stop = asyncio.Event()
        working = asyncio.create_task(bench.agent().run(stop))
        await until(lambda: len(controller.reports) >= 3)
        stop.set()
        await working

    asyncio.run(scene())
    assert all(not (r.opened or r.closed or r.usage) for r in controller.reports)


def test_a_controller_that_refuses_is_said_in_one_line(tmp_path: Path, controller: Controller) -> None:
    controller.status = 403
    with pytest.raises(UploadError, match="/v1/reports answered 403"):
        asyncio.run(Bench(tmp_path, controller.port).agent().upload())


def test_a_controller_that_is_not_there_is_said_in_one_line(tmp_path: Path, controller: Controller) -> None:
    controller.stop()
    bench = Bench(tmp_path, controller.port)
    with pytest.raises(UploadError, match=r"/v1/reports: ConnectionRefusedError") as caught:
        asyncio.run(bench.agent().upload())
    assert "\n" not in str(caught.value)


def test_nonsense_on_the_socket_is_refused_and_remembered(tmp_path: Path, controller: Controller) -> None:
    bench = Bench(tmp_path, controller.port)

    async def scene() -> str:
        agent = bench.agent()
        said = agent.receive_event(b'{"kind":"evil"}\n')
        await agent.upload()
        return said

    assert "start_s is missing" in asyncio.run(scene())
    assert "start_s is missing" in controller.reports[0].faults[0]


def test_the_nodes_name_is_slurms_where_none_is_configured(tmp_path: Path, controller: Controller) -> None:
    bench = Bench(tmp_path, controller.port)
    bench.config = replace(bench.config, node="")

    async def scene() -> None:
        agent = bench.agent()
        agent.receive_event(json.dumps({**OPEN, "node": "gpu-node-7"}).encode())
        await agent.upload()
        await agent.upload()

    asyncio.run(scene())
    assert [report.node for report in controller.reports] == ["gpu-node-7"] * 2


def test_pauses_double_up_to_a_limit_and_start_over() -> None:
    backoff = Backoff(60.0, random.Random(7))
    pauses = [backoff.failed() for _ in range(2000)]
    for number, pause_s in enumerate(pauses[:8]):
        assert 0.5 <= pause_s / min(60.0, 2.0**number) <= 1.5
    assert max(pauses) <= 90.0
    assert backoff.succeeded()
    assert not backoff.succeeded()
    assert backoff.failed() <= 1.5
