"""A sodad that serves the page over a store with as many jobs as are wanted, without Slurm."""

from __future__ import annotations

import math
import random
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from fastapi import APIRouter
from sqlalchemy import insert
from sqlalchemy.orm import Session

from slurm_soda.daemon.api import viewers
from slurm_soda.daemon.api.credential_checks import CredentialChecks
from slurm_soda.daemon.api.routes import ViewRoutes
from slurm_soda.daemon.api.server import ApiServer
from slurm_soda.daemon.api.view_access import ViewAccess
from slurm_soda.daemon.clock import SystemClock
from slurm_soda.daemon.page import routes
from slurm_soda.daemon.page.served_page import ServedPage
from slurm_soda.daemon.settings.addresses import ApiSettings, PageSettings
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.store.engine import open_store
from slurm_soda.daemon.store.tables.job_reports import JobGpuUseRow
from slurm_soda.daemon.store.tables.scheduling import (
    Action,
    AgentHeartbeat,
    Epoch,
    Job,
    JobNodeUsage,
    JobRun,
    NodeEvent,
    Preemption,
)
from slurm_soda.daemon.store.tables.sharing import ShareRow
from slurm_soda.daemon.store.tables.start_forecasts import ExpectedStart
from slurm_soda.slurm_ext.command_runner import CompletedCommand
from slurm_soda.wire.munge import Munge

GPUS_OF_NODE = 8
MODELS = ("resnet50", "bert-large", "vit-b16", "gpt2-medium", "dlrm", "whisper-small")
OWN_USER, OWN_UID = "alice", 50_000
STORY_JOB = 1
"""A job of the own user's with a history: preempted once, and a host then."""


@dataclass(frozen=True, slots=True)
class _SlurmSays:
    """scontrol and sacctmgr, as far as privacy goes: nobody has rights beyond his own."""

    private: str

    def __call__(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes,
        timeout_s: float,
        env: Mapping[str, str],
        most_bytes: int | None = None,
    ) -> CompletedCommand:
        if argv[0] == "scontrol":
            said = f"PrivateData             = {self.private}\nSlurmUser               = slurm(64030)\n"
        else:
            user = next(word.removeprefix("name=") for word in argv if word.startswith("name="))
            said = f"{user}|None|\n"
        return CompletedCommand(tuple(argv), 0, said.encode(), b"")


@dataclass(frozen=True, slots=True)
class ServedSite:
    """Where it is, and who gets in."""

    served: ServedPage
    port: int

    def link(self, uid: int = OWN_UID) -> str:
        """As `sodactl page` prints it."""
        return f"{self.url}#{self.served.sessions.make_link(uid)}"

    @property
    def url(self) -> str:
        """Without a link's secret."""
        return f"http://127.0.0.1:{self.port}/"


@contextmanager
def served_site(folder: Path, jobs: int, *, private: str = "none", names: Sequence[str] = ()) -> Iterator[ServedSite]:
    """Fill a store with so many live jobs, and serve the page over it.

    Args:
        folder: for the store.
        jobs: a tenth of them runs.
        private: PrivateData of slurm.conf.
        names: what users call their jobs, one after the other; none: as people do.
    """
    store, clock = open_store(f"sqlite:///{folder}/soda.db"), SystemClock()
    with store.write() as session:
        _fill(session, clock.now_s(), jobs, names)
    bound = socket.create_server(("127.0.0.1", 0))
    port = int(bound.getsockname()[1])
    settings = Settings(mode="enforce", page=PageSettings(listen=f"127.0.0.1:{port}"))
    access = ViewAccess(CredentialChecks(Munge(), clock), viewers.ViewerRights(_SlurmSays(private), clock))
    views = ViewRoutes(store, clock, access, lambda: settings)
    served = ServedPage(bound, views, access, clock, lambda: settings.page)
    api = ApiSettings(host="127.0.0.1", port=0)
    server = ApiServer(APIRouter(), views.routes(), api, page=served.endpoint())
    with patch.object(viewers, "user_name", _user_name), patch.object(routes, "user_name", _user_name):
        server.start()
        try:
            yield ServedSite(served, port)
        finally:
            server.close()
            store.close()


def _user_name(uid: int) -> str:
    return OWN_USER if uid == OWN_UID else f"user{uid - OWN_UID:02}"


def _fill(session: Session, now_s: float, jobs: int, names: Sequence[str]) -> None:
    draw = random.Random(1)
    session.add(Epoch(host="ctl", pid=1, version="0", started_s=now_s - 9000, heartbeat_s=now_s + 3600))
    session.flush()
    running = _running(jobs)
    rows = [_job(number, jobs, now_s, draw, names) for number in range(1, jobs + 1)]
    session.execute(insert(Job), [{key: value for key, value in row.items() if key != "restart"} for row in rows])
    runs = [row for row in rows if row["state"] == "RUNNING"]
    nodes = math.ceil(2 * running / GPUS_OF_NODE) + 1
    agents = [
        {"node": f"gpu{node:03}", "agent_id": "a", "seq": 1, "seen_s": now_s + 3600, "gpu_count": GPUS_OF_NODE}
        for node in range(1, nodes + 1)
    ]
    session.execute(insert(AgentHeartbeat), agents)
    placed = {row["job_id"]: _place(at) for at, row in enumerate(runs)}
    session.execute(insert(JobRun), [
        {"job_pk": row["id"], "restart": row["restart"], "start_s": row["first_start_s"], "gpus": 2, "shared": False,
         "node_names": placed[row["job_id"]][0]}
        for row in runs
    ])  # fmt: skip
    session.execute(insert(NodeEvent), [
        {"kind": "open", "job_id": row["job_id"], "restart": row["restart"], "node": placed[row["job_id"]][0],
         "at_s": row["first_start_s"], "record": {"cpus": 16, "gpus": placed[row["job_id"]][1]}}
        for row in runs
    ])  # fmt: skip
    session.execute(insert(JobNodeUsage), [
        _usage(row, placed[row["job_id"]][0], now_s, draw) for row in runs
    ])  # fmt: skip
    waiting = [row for row in rows if row["state"] == "PENDING"]
    session.execute(insert(ExpectedStart), [
        {"job_pk": row["id"], "at_s": now_s, "low_s": now_s + 40 * at, "median_s": now_s + 60 * at + 30,
         "high_s": now_s + 120 * at + 90}
        for at, row in enumerate(waiting[:1000])
    ])  # fmt: skip
    session.execute(insert(Action), [
        {"epoch_id": 1, "job_id": row["job_id"], "submit_s": row["submit_s"], "kind": "order", "state": "done",
         "old": {"SiteFactor": "0"}, "new": {"SiteFactor": str(1000 - at)}, "created_s": now_s - 5 - at / 10,
         "finished_s": now_s - 5 - at / 10, "reason": f"soda: position {at + 1} of {len(waiting)}", "error": ""}
        for at, row in reversed(list(enumerate(waiting[:1000])))
    ])  # fmt: skip
    _add_story(session, rows[STORY_JOB - 1], runs, placed, now_s)


def _job(number: int, jobs: int, now_s: float, draw: random.Random, names: Sequence[str]) -> dict[str, object]:
    running = _running(jobs)
    runs = number <= running
    user = OWN_USER if number in (1, 2) or number % 50 == 0 else f"user{number % 50:02}"
    submit_s = now_s - (20_000 if runs else 10_000) + number / 10
    waits = {"verdict": "wait", "queue": draw.randrange(2), "position": (number - running - 1) % jobs, "score": 2e4 + number,
             "score_name": "attained_gpu_s"}  # fmt: skip
    usual = f"{draw.choice(MODELS)}-seed{draw.randrange(40)}"
    return {
        "id": number, "job_id": number, "submit_s": submit_s, "user": user, "account": f"lab{number % 7}",
        "partition": "gpu", "name": names[number % len(names)] if names else usual,
        "state": "RUNNING" if runs else "PENDING",
        "reason": "" if runs else draw.choice(("Resources", "Priority", "Priority", "Dependency")), "gpus": 2, "nodes": 1,
        "cpus": 16, "time_limit_s": 86_400.0, "hints": {"model": draw.choice(MODELS), "checkpoint": "TERM"},
        "first_start_s": submit_s + 3000 if runs else None, "last_seen_s": now_s,
        "note": waits | ({"verdict": "run"} if runs else {}),
        "memory_mib": 65_536, "preemptions": int(number == STORY_JOB), "restart": int(number == STORY_JOB),
    }  # fmt: skip


def _running(jobs: int) -> int:
    return max(jobs // 10, 3)


def _place(at: int) -> tuple[str, list[int]]:
    """Node and GPUs of the running job at this place."""
    node, first = divmod(2 * at, GPUS_OF_NODE)
    return f"gpu{node + 1:03}", [first, first + 1]


def _usage(row: dict[str, object], node: str, now_s: float, draw: random.Random) -> dict[str, object]:
    return {
        "job_id": row["job_id"], "restart": row["restart"], "node": node, "first_s": row["first_start_s"], "last_s": now_s,
        "samples": 900, "gpu_count": 2, "gpu_util_ratio": draw.uniform(0.4, 0.95), "cpu_s": 90_000.0,
        "cpu_source": "cgroup/v2", "gpu_util_last_ratio": draw.uniform(0.4, 1.0),
        "gpu_memory_peak_mib": 60_000.0, "memory_peak_mib": 30_000.0,
    }  # fmt: skip


def _add_story(
    session: Session,
    row: dict[str, object],
    runs: Sequence[dict[str, object]],
    placed: Mapping[object, tuple[str, list[int]]],
    now_s: float,
) -> None:  # fmt: skip
    """Of the first job: a run that was preempted, the present one beside a guest, and how its GPUs were used."""
    submit_s, node = now_s - 20_000, placed[STORY_JOB][0]
    first_s, gave_s, again_s = submit_s + 3000, submit_s + 8000, submit_s + 11_000
    at = {"job_id": STORY_JOB, "submit_s": row["submit_s"], "epoch_id": 1, "state": "done"}
    session.query(JobRun).filter_by(job_pk=STORY_JOB).update({"start_s": again_s, "shared": True})
    session.query(NodeEvent).filter_by(job_id=STORY_JOB).update({"at_s": again_s})
    session.query(JobNodeUsage).filter_by(job_id=STORY_JOB).update({"first_s": again_s})
    session.add_all([
        JobRun(job_pk=STORY_JOB, restart=0, start_s=first_s, end_s=gave_s, gpus=2, node_names="gpu002"),
        Preemption(job_id=STORY_JOB, submit_s=row["submit_s"], restart=0, phase="done", created_s=gave_s - 60,
                   deadline_s=gave_s, updated_s=gave_s, for_jobs=[9], reason="job 9 has attained less service"),
        Action(**at, kind="order", new={"SiteFactor": "900"}, old={"SiteFactor": "0"}, created_s=submit_s + 1500,
               reason="soda: position 2 of 40"),
        Action(**at, kind="signal", new={"signal": "TERM"}, created_s=gave_s - 60, reason="it has 60 s for its state"),
        Action(**at, kind="requeue", new={"state": "PENDING"}, created_s=gave_s, reason="job 9 has attained less service"),
        ShareRow(guest=runs[1]["job_id"], submit_s=runs[1]["submit_s"], restart=0, hosts=[STORY_JOB], nodes=[node],
                 gpus=[0, 1], phase="started", why="both together end 41 min earlier", created_s=again_s + 2000,
                 deadline_s=now_s, started_s=again_s + 2010, updated_s=now_s),
        *(_gpu_use(restart, on, from_s, to_s)
          for restart, on, from_s, to_s in ((0, "gpu002", first_s, gave_s), (1, node, again_s, now_s))),
    ])  # fmt: skip


def _gpu_use(restart: int, node: str, from_s: float, to_s: float) -> JobGpuUseRow:
    lasts_s, points = to_s - from_s, 100
    gpus = []
    for index in (0, 1):
        ratios = [0.0 if at < 4 or 40 < at < 46 else 0.75 + 0.2 * math.sin(at / 5 + index) for at in range(points)]
        gpus.append({
            "index": index, "readings": int(lasts_s / 2), "covered_s": lasts_s, "util_ratio": sum(ratios) / points,
            "util_max_ratio": max(ratios), "memory_peak_mib": 31_000.0, "memory_mib": 81_920.0, "power_w": 410.0,
            "power_max_w": 640.0, "busy_from_s": 0.04 * lasts_s, "busy_until_s": lasts_s, "idle_s": 0.09 * lasts_s,
            "idle_spans": 2, "idle_spans_s": 0.09 * lasts_s,
            "spans": [[0.0, 0.04 * lasts_s], [0.41 * lasts_s, 0.05 * lasts_s]], "step_s": lasts_s / points,
            "timeline": "".join(f"{round(200 * ratio):02x}" for ratio in ratios),
        })  # fmt: skip
    return JobGpuUseRow(
        job_id=STORY_JOB, restart=restart, node=node, first_s=from_s, last_s=time.time(), gpus=gpus
    )  # fmt: skip
