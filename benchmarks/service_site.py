"""A service on this machine, without Slurm: its router with HAProxy, instances as processes, and a load.

Who drains is said by the benchmark, over the same messages as sodad says it.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from slurm_soda.services.load.load_report import SentQuery
from slurm_soda.services.load.open_loop import send_load
from slurm_soda.services.router.errors import ReportError
from slurm_soda.services.router.listen_address import ListenAddress
from slurm_soda.services.router.router import Router
from slurm_soda.services.router.sodad_reports import Controllers, SodadReports
from slurm_soda.wire.munge import Munge
from slurm_soda.wire.services.router_report import ReportedInstance, RouterAnswer, RouterReport

TOP = Path(__file__).resolve().parents[1]
SERVE, EXAMPLE = TOP / "services" / "slurm_soda_serve.py", TOP / "examples" / "serving"
SERVICE, TARGET_MS, WINDOW_MS, BATCH = "bench", 500, 20, 8
READY_WITHIN_S = 60.0
_SERVER = f"""\
import sys, time
sys.path.insert(0, {str(EXAMPLE)!r})
from http_service import Service
def answer_all(queries):
    time.sleep((5 + 2 * len(queries)) / 1000)
    return queries
Service(answer_all, batch={BATCH}, window_ms={WINDOW_MS}).run(port=int(sys.argv[1]))
"""
"""A batch takes 5 ms, and 2 ms for each query: an instance answers some 380 a second, as on an emulated GPU."""


class DrainScript(SodadReports):
    """Takes the router's reports in sodad's place, and answers with who shall drain."""

    def __init__(self) -> None:
        super().__init__(find=_nobody, munge=Munge(), say=lambda _: None)
        self.drain: tuple[int, ...] = ()
        self.reports: list[RouterReport] = []

    def send(self, report: RouterReport) -> RouterAnswer:
        self.reports.append(report)
        return RouterAnswer(drain=self.drain)

    def seen(self, job_id: int) -> ReportedInstance | None:
        """One instance as last reported."""
        known = self.reports[-1].instances if self.reports else ()
        return next((one for one in known if one.job_id == job_id), None)


def _nobody() -> Controllers:
    raise ReportError("the benchmark answers itself")


@dataclass(frozen=True)
class RunningInstance:
    """``slurm_soda_serve.py`` with its server, as a task of Slurm would run it."""

    job_id: int
    process: subprocess.Popen[bytes]

    def end(self) -> None:
        """As a requeue does it: SIGTERM, and it answers what it has."""
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """``kill -9`` for the program and its server at once, as when the node dies."""
        for pid in [self.process.pid, *_descendants(self.process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def _descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in task.read_text().split():
                found += [int(child), *_descendants(int(child))]
    return found


class ServiceSite:
    """One service; made by :func:`service_site`."""

    def __init__(self, folder: Path) -> None:
        (folder / "server.py").write_text(_SERVER)
        self._folder, self._file = folder, folder / "bench.toml"
        command = f"exec {sys.executable} {folder}/server.py {{port}}"
        self._file.write_text(
            f'name = "{SERVICE}"\ncommand = "{command}"\ntarget_ms = {TARGET_MS}\nwindow_ms = {WINDOW_MS}\n'
            f'folder = "{folder}/services"\n[replicas]\nmost = 4\n[cpu]\n'
        )
        self.said: list[str] = []
        self.sodad = DrainScript()
        self.router = Router(self._file, ListenAddress("127.0.0.1", 0), self.sodad, self.said.append)
        self._thread = threading.Thread(target=self.router.run, daemon=True)
        self._thread.start()
        self._command = command
        self._instances: list[RunningInstance] = []

    @property
    def url(self) -> str:
        return f"http://{self.router.endpoint}/predict"

    def start_instance(self, job_id: int) -> RunningInstance:
        argv = [sys.executable, str(SERVE), "--service", SERVICE, "--folder", f"{self._folder}/services"]
        argv += ["--device", "cpu", "--batch", str(BATCH), "--window-ms", str(WINDOW_MS), "--cores", "1"]
        argv += ["--host", "127.0.0.1", "--job-id", str(job_id), "--", self._command]
        log = (self._folder / "instances.log").open("ab")
        process = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
        log.close()
        self._instances.append(RunningInstance(job_id, process))
        return self._instances[-1]

    def wait_until(self, what: str, condition: Callable[[], bool], within_s: float = READY_WITHIN_S) -> None:
        until_s = time.monotonic() + within_s
        while not condition():
            if time.monotonic() > until_s:
                raise SystemExit(f"not within {within_s:g} s: {what}; the router said: {self.said[-3:]}")
            time.sleep(0.1)

    def wait_ready(self, instance: RunningInstance) -> None:
        self.wait_until(f"instance {instance.job_id} is ready", lambda: self._state(instance) == "ready")

    def hand_over(self, old: RunningInstance, new: RunningInstance) -> None:
        """The old one leaves as sodad has it leave: it drains, has nothing in flight, and is requeued."""
        self.sodad.drain = (old.job_id,)
        self.wait_until(f"instance {old.job_id} has drained", lambda: self._drained(old))
        old.end()

    def close(self) -> None:
        self.router.stop.set()
        self._thread.join(20)
        self.router.close()
        for instance in self._instances:
            instance.kill()

    def _state(self, instance: RunningInstance) -> str:
        seen = self.sodad.seen(instance.job_id)
        return "" if seen is None else seen.state

    def _drained(self, instance: RunningInstance) -> bool:
        seen = self.sodad.seen(instance.job_id)
        return seen is None or (seen.state == "draining" and not seen.queries)


@contextmanager
def service_site() -> Iterator[ServiceSite]:
    """A site in a folder of its own, which goes with it."""
    with tempfile.TemporaryDirectory(prefix="soda-bench-") as folder:
        site = ServiceSite(Path(folder))
        try:
            yield site
        finally:
            site.close()


class SteadyLoad:
    """Queries at a rate that can be changed, from a process of its own, until asked to end."""

    def __init__(self, url: str, qps: float, *, seed: int | None = None, timeout_s: float = 30.0) -> None:
        """Begin to send.

        Args:
            url: of the router.
            qps: queries a second.
            seed: of the times of a Poisson process; None: queries at even distances.
            timeout_s: a query without an answer after so long is lost.
        """
        context = multiprocessing.get_context("fork")
        self._rate = context.Value("d", qps)
        self._ends = context.Event()
        self._receiver, sender = context.Pipe(duplex=False)
        began = context.Value("d", 0.0)
        self._process = context.Process(
            target=_send,
            args=(url, self._rate, self._ends, sender),
            kwargs={"seed": seed, "timeout_s": timeout_s, "began": began},
            daemon=True,
        )
        self._process.start()
        while not began.value:  # on a busy machine a process may take seconds to begin
            time.sleep(0.01)
        self.began_s: float = began.value

    def change(self, qps: float) -> None:
        """Another rate from now on."""
        self._rate.value = qps

    def now_s(self) -> float:
        """Seconds since it began, as :attr:`SentQuery.planned_s` counts."""
        return time.monotonic() - self.began_s

    def end(self) -> Sequence[SentQuery]:
        """Send no more; all queries, once they are answered or given up."""
        self._ends.set()
        queries: Sequence[SentQuery] = self._receiver.recv()
        self._process.join()
        return queries


def _send(url: str, rate: Any, ends: Event, to: Connection, *, seed: int | None, timeout_s: float, began: Any) -> None:
    draws = random.Random(seed)

    def times() -> Iterator[float]:
        began.value, at_s = time.monotonic(), 0.0
        while not ends.is_set():
            yield at_s
            at_s += 1.0 / rate.value if seed is None else draws.expovariate(rate.value)

    to.send(asyncio.run(send_load(url, times(), body=b'{"input": 1}', timeout_s=timeout_s)))
