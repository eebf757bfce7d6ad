"""A node with the agent's own sampling over the emulated NVML, and a clock that runs as fast as the machine.

Started with the emulated library on LD_LIBRARY_PATH: the binding loads it once a process.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report_accuracy.patterns import MadeJob
from slurm_soda.agent.agent import Agent, AgentDependencies
from slurm_soda.agent.reporting.recent_faults import RecentFaults
from slurm_soda.agent.reporting.run_records import RunRecords
from slurm_soda.agent.reporting.upload import Backoff
from slurm_soda.agent.sampling.cpu_time import CpuReader
from slurm_soda.agent.sampling.gpus import Gpus
from slurm_soda.agent.sampling.job_processes import JobProcesses
from slurm_soda.agent.sampling.progress_files import ProgressFiles
from slurm_soda.agent.sampling.sm_use import SmUseCounter
from slurm_soda.agent.settings.agent_config import AgentConfig
from slurm_soda.daemon.store.agent_reports import store_report
from slurm_soda.daemon.store.engine import Store
from slurm_soda.wire.core_tuning import ReportAnswer
from slurm_soda.wire.records import NodeReport
from slurm_soda.wire.spool import Spool

EPOCH_S = 1_700_000_000.0
GPUS = 16
NODE = "n1"
CONFIGURATION = f"devices={','.join(map(str, range(GPUS)))}\nname=Emulated GPU\nmemory_mib=40960\n"
UID = 64_999
LATENESS_S = 0.2
"""By how much a sample may be late, as on a busy node."""


class StoreUploader:
    """Takes reports as sodad does: over JSON, with all checks, into the store. Counts their bytes."""

    def __init__(self, store: Store) -> None:
        self._store, self.bytes = store, 0

    async def send(self, report: NodeReport) -> ReportAnswer | None:
        body = json.dumps(report.to_dict(), separators=(",", ":")).encode("ascii")
        self.bytes += len(body)
        with self._store.write() as session:
            store_report(session, NodeReport.from_json(body), report.sent_s)
        return None


class EmulatedNode:
    """Runs jobs one after another: each has all of the node, so that what is on a GPU is this job's."""

    def __init__(self, store: Store, path: Path, seed: int) -> None:
        self._path, self._now_s, self._source = path, EPOCH_S, random.Random(seed)
        (path / "gpus.conf").write_text(CONFIGURATION)
        self._groups = [path / f"cgroup/{controller}/slurm_{NODE}" for controller in ("cpuacct", "memory")]
        for group in self._groups:
            group.mkdir(parents=True)
        self._ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
        self._config = AgentConfig(
            node=NODE, socket=str(path / "sock"), spool=str(path / "spool"), cgroup_root=str(path / "cgroup"),
            progress=str(path / "progress"),
        )  # fmt: skip
        self.uploader = StoreUploader(store)
        faults, gpus = RecentFaults(), Gpus()
        parts = AgentDependencies(
            clock=lambda: self._now_s,
            steady=lambda: self._now_s - EPOCH_S,
            run_records=RunRecords(Spool(self._config.spool), faults, self._config.spool_files),
            cpu=CpuReader(self._config.cgroup_root),
            gpus=gpus,
            progress=ProgressFiles(self._config.progress),
            sm_use=SmUseCounter(gpus, JobProcesses(self._config.cgroup_root), self._config.interval_s),
            uploader=self.uploader,
            backoff=Backoff(self._config.retry_max_s, random.Random(seed)),
            faults=faults,
            environ={},
            booted_s=0.0,
        )
        self._agent = Agent(self._config, parts)

    def run(self, jobs: Sequence[MadeJob]) -> dict[int, tuple[float, float]]:
        """Run them all; when each of them began and ended."""
        return {job.job_id: self._run(job) for job in jobs}

    def _run(self, job: MadeJob) -> tuple[float, float]:
        """The job begins somewhere between two samples, and samples come as the agent's own pauses have it."""
        began_s = self._now_s + job.starts_s
        opening = {
            "kind": "open", "job_id": job.job_id, "start_s": int(began_s), "restart": 0, "node": NODE, "uid": UID,
            "user": "alice", "partition": "gpu", "at_s": began_s, "gpus": list(range(len(job.gpus))),
            "cpus_per_node": "8", "node_names": NODE, "env": {},
        }  # fmt: skip
        self._now_s = began_s
        self._agent.receive_event(json.dumps(opening).encode())
        next_upload_s = began_s
        groups = [group / f"uid_{UID}/job_{job.job_id}" for group in self._groups]
        for group in groups:
            group.mkdir(parents=True)
        while (left_s := began_s + job.run_s - self._now_s) > 0:
            self._use(job, self._now_s - began_s)
            self._use_cores(groups, self._now_s - began_s)
            self._agent.sample()
            if self._now_s >= next_upload_s:
                asyncio.run(self._upload())
                next_upload_s = self._now_s + self._config.heartbeat_s
            self._now_s += min(self._agent._pause_s() + self._source.uniform(0.0, LATENESS_S), left_s)
        for group in groups:
            shutil.rmtree(group)
        ended = {"kind": "close", "job_id": job.job_id, "start_s": int(began_s), "restart": 0, "uid": UID, "node": NODE}
        self._agent.receive_event(json.dumps(ended | {"at_s": self._now_s, "exit_code": "0:0"}).encode())
        self._agent.sample(gpus=False)
        asyncio.run(self._upload())
        return began_s, self._now_s

    async def _upload(self) -> None:
        while await self._agent.upload():
            pass

    def _use(self, job: MadeJob, at_s: float) -> None:
        """What the emulator shows of this instant: the state file of a process, which is this one."""
        used = [(index, pattern.util_pct(at_s)) for index, pattern in enumerate(job.gpus)]
        lines = "".join(f"{index} 20000 {pct} {pct} 0 0\n" for index, pct in used if pct or at_s > 1)
        state = self._path / f".{os.getpid()}"
        state.write_text(f"soda-gpu 2 {self._ticks} 0 made\n{lines}")
        state.rename(self._path / str(os.getpid()))

    def _use_cores(self, groups: Sequence[Path], at_s: float) -> None:
        """Slurm's groups: two and a half cores, memory that grows for ten minutes."""
        cpu, memory = groups
        used_ns = int(2.5e9 * at_s)
        (cpu / "cpuacct.usage").write_text(f"{used_ns}\n")
        (cpu.parents[1] / "cpuacct.usage").write_text(f"{used_ns}\n")
        (memory / "memory.stat").write_text(f"total_rss {int(2**30 * (4 + min(at_s, 600) / 100))}\n")
