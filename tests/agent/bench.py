"""An agent with a real socket, spool and HTTP; only the clock, the GPUs and munge are the test's own."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from slurm_soda.agent.agent import Agent, AgentDependencies
from slurm_soda.agent.mps.mps_news import MpsNews
from slurm_soda.agent.reporting.core_messages import CoreMessages
from slurm_soda.agent.reporting.recent_faults import RecentFaults
from slurm_soda.agent.reporting.run_records import RunRecords
from slurm_soda.agent.reporting.upload import Backoff, HttpUploader
from slurm_soda.agent.resource_controller import ResourceController
from slurm_soda.agent.sampling.cpu_time import CpuReader
from slurm_soda.agent.sampling.gpus import GpuReading, Gpus
from slurm_soda.agent.sampling.job_processes import JobProcesses
from slurm_soda.agent.sampling.progress_files import ProgressFiles
from slurm_soda.agent.sampling.sm_use import SmUseCounter
from slurm_soda.agent.settings.agent_config import AgentConfig
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
        self.mps = MpsNews()
        self.config = AgentConfig(
            controller=f"http://127.0.0.1:{port}", node="n1", socket=str(path / "sock"), spool=str(path / "spool"),
            cgroup_root=str(path / "cgroup"), progress=str(path / "progress"),
            upload_interval_s=0.05, interval_s=0.2, young_interval_s=0.05,
            heartbeat_s=0.3, retry_max_s=0.05, upload_timeout_s=5.0,
        )  # fmt: skip

    def agent(self) -> Agent:
        faults, gpus = RecentFaults(), BusyGpus()
        config = self.config
        parts = AgentDependencies(
            clock=lambda: self.now_s,
            steady=self.steady,
            run_records=RunRecords(Spool(config.spool), faults, config.spool_files),
            cpu=CpuReader(config.cgroup_root),
            gpus=gpus,
            progress=ProgressFiles(config.progress),
            sm_use=SmUseCounter(gpus, JobProcesses(config.cgroup_root), config.interval_s),
            uploader=HttpUploader(config.controller, munge, config.upload_timeout_s),
            backoff=Backoff(config.retry_max_s, random.Random(1)),
            faults=faults,
            environ={},
            booted_s=self.booted_s,
            resource_controllers=self.resource_controllers,
            core_messages=self.core_messages,
            mps=self.mps,
        )
        return Agent(config, parts)

    def steady(self) -> float:
        """Goes on, whatever the time of day is set to."""
        self.steady_s += 0.125
        return self.steady_s + self.now_s - 1001.0 - self.set_by_s

    async def deliver(self, event: dict[str, object]) -> str:
        return await asyncio.to_thread(deliver_event, event, self.config.socket, self.config.spool)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """An agent works meanwhile."""
        stop = asyncio.Event()
        working = asyncio.create_task(self.agent().run(stop))
        yield
        stop.set()
        await working


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)
