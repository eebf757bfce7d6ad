"""A daemon whose plans let jobs join others as a test says, in the stage where a policy that shares GPUs would."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.daemon.cycle import cycle
from slurm_soda.daemon.store.tables.sharing import ShareRow
from slurm_soda.policies.pipeline.actions import JoinGpus, PreemptJob
from slurm_soda.policies.pipeline.stages import Pipeline, pipeline_of
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState
from tests.daemon.fake_slurm import FakeClock
from tests.daemon.harness import Daemon, Killer, settings
from tests.daemon.sharing_slurm import SharingSlurm

OWN = ("gres/gpu:2", "", "")
"""The request of job 2 of :func:`cluster`, as it was submitted."""
PAIR = {2: ((1,), (0, 1))}
"""It joins job 1."""


@dataclass
class JoinAsTold:
    """Waiting jobs join running ones: host and GPU indices by guest; some guests are to be parted again."""

    wanted: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    parted: Mapping[int, str] = field(default_factory=dict)
    name: str = "join as told"

    def apply(self, snapshot: ClusterSnapshot, plan: Plan) -> Plan:
        states = dict(zip(snapshot.jobs.job_id.tolist(), snapshot.jobs.state.tolist(), strict=True))
        waiting = [guest for guest in self.wanted if states.get(guest) in (JobState.PENDING, JobState.BLOCKED)]
        joins = [
            JoinGpus(guest, self.wanted[guest][0], ("n1",), self.wanted[guest][1], 0, "the test says so")
            for guest in waiting
            if all(states.get(host) == JobState.RUNNING for host in self.wanted[guest][0])
        ]
        parts = [PreemptJob(guest, (), why, parted_from=(1,)) for guest, why in self.parted.items()]
        return replace(plan, actions=(*plan.actions, *joins, *parts))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> JoinAsTold:
    stage = JoinAsTold()

    def with_joins(policy: Policy) -> Pipeline:
        return Pipeline((*pipeline_of(policy).stages, stage))

    monkeypatch.setattr(cycle, "pipeline_of", with_joins)
    return stage


def sharing_settings(**more: Any) -> Any:
    return settings(**{"sharing": {"partitions": ["main"]}, "policy": {"name": "fifo"}} | more)


def cluster() -> SharingSlurm:
    """Job 1 runs on all four GPUs, job 2 waits."""
    slurm = SharingSlurm(FakeClock())
    slurm.submit(1, gpus=4, work_s=200.0)
    slurm.tick()
    slurm.submit(2, gpus=2, work_s=60.0)
    return slurm


def sodad(slurm: SharingSlurm, path: Path, killer: Killer | None = None, **more: Any) -> Daemon:
    return Daemon(slurm, path, sharing_settings(**more), killer)


def shares(daemon: Daemon) -> list[ShareRow]:
    return daemon.rows(ShareRow)


def joined(path: Path, told: JoinAsTold) -> tuple[SharingSlurm, Daemon]:
    """Job 2 is rewritten, and has not started yet."""
    slurm, told.wanted = cluster(), dict(PAIR)
    daemon = sodad(slurm, path)
    daemon.run()
    assert slurm.all[2].other_gres == "gres/sharedgpu:g0:1,gres/sharedgpu:g1:1"
    return slurm, daemon


def running(path: Path, told: JoinAsTold) -> tuple[SharingSlurm, Daemon]:
    """Job 2 runs as a guest."""
    slurm, daemon = joined(path, told)
    slurm.advance(1)
    daemon.run()
    assert (slurm.all[2].state, slurm.all[2].devices) == ("RUNNING", (0, 1))
    assert [row.phase for row in shares(daemon)] == ["started"]
    return slurm, daemon


def ends(daemon: Daemon) -> list[tuple[str, str]]:
    return [(row.phase, row.end) for row in shares(daemon)]
