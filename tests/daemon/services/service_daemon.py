"""sodad over the small Slurm with arrays, with a router that reports what runs there and does what it is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm_soda.daemon.clock import Instant
from slurm_soda.wire.services.router_report import ReportedInstance, RouterAnswer
from tests.daemon.fake_slurm import FakeClock
from tests.daemon.harness import Daemon, Killer, settings
from tests.daemon.services.array_slurm import ArraySlurm, FakeTask
from tests.daemon.services.service_site import report

SERVICES = {"cool_down_s": 0.0, "lease_s": 300.0}
CPU, GPU = 100, 200
"""The arrays of the service."""


def cluster(*, tasks: int = 3, begin_s: float = 60.0, gpus: int = 4) -> ArraySlurm:
    """Both arrays of service ``answers`` of alice wait, as ``sodactl service start`` submits them."""
    slurm = ArraySlurm(FakeClock(), gpus=gpus)
    slurm.submit_array(CPU, tasks, begin_s=begin_s)
    slurm.submit_array(GPU, tasks, gpus=1, begin_s=begin_s)
    return slurm


def sodad(slurm: ArraySlurm, path: Path, killer: Killer | None = None, **more: Any) -> Daemon:
    config = {"policy": {"name": "fifo"}, "services": SERVICES} | more
    return Daemon(slurm, path, settings(**config), killer)


@dataclass
class Router:
    """A router that sees each instance ready ``starts_s`` after its job started, and drains what it is told to."""

    slurm: ArraySlurm
    load_qps: float = 0.0
    starts_s: float = 2.0
    queries: int = 0
    """In flight at each instance, also at those that drain."""
    failed: set[int] = field(default_factory=set)
    told: RouterAnswer = field(default_factory=RouterAnswer)
    owner: str = "alice"
    least: int = 1
    most: int = 4

    def report(self, daemon: Daemon) -> RouterAnswer:
        clock = self.slurm.clock
        listed = [self._instance(job) for job in self.slurm.all.values() if isinstance(job, FakeTask)]
        sent = report(
            load_qps=self.load_qps, least=self.least, most=self.most, instances=[one for one in listed if one],
            at_s=clock.now_s(),
        )  # fmt: skip
        board = daemon.cycles._context.services
        self.told = board.take(self.owner, sent, Instant.read(clock))
        return self.told

    def _instance(self, job: FakeTask) -> ReportedInstance | None:
        if job.state != "RUNNING":
            return None
        shown = self.slurm._shown_id(job)
        ready = self.slurm.clock.now_s() - job.start_s >= self.starts_s
        state = "draining" if shown in self.told.drain else "ready" if ready else "starting"
        state = "failed" if shown in self.failed else state
        device = "gpu" if job.gpus else "cpu"
        return ReportedInstance(shown, device, state, job.start_s, host="n1", queries=self.queries)


def live(slurm: ArraySlurm, daemon: Daemon, router: Router, seconds: int) -> None:
    """A report and a cycle each second."""
    for _ in range(seconds):
        router.report(daemon)
        daemon.run()
        slurm.advance(1)
