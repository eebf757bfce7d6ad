"""An agent that dies anywhere: the next one leaves nothing of it, and nobody else's group is touched."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_soda.agent.contention import limit_enforcer
from slurm_soda.agent.contention.limit_enforcer import LimitEnforcer
from slurm_soda.agent.contention.limit_record import LimitRecord, write_limit_record
from slurm_soda.agent.contention.resctrl import Resctrl, ResctrlGroup
from slurm_soda.policies.node_limits.eliminator import (
    LimitAction,
    LimitCores,
    ReleaseBandwidth,
    RestoreCores,
    ThrottleBandwidth,
)
from tests.sampling import examples

from .conftest import Machine

JOBS = {1: [11, 12], 2: [21], 3: [31]}


class Death(BaseException):
    """kill -9, as far as Python can."""


class Fuse:
    """Counts effects; the agent dies before or after the given one."""

    def __init__(self, at: int, *, before: bool) -> None:
        self.left, self.before = at, before

    def burn(self, effect: Callable[[], object]) -> None:
        """Called around each effect."""
        self.left -= 1
        if self.left == 0 and self.before:
            raise Death
        effect()
        if self.left == 0:
            raise Death


class DyingResctrl(Resctrl):
    """The port, each effect of which may be the last."""

    def __init__(self, mount: Path, fuse: Fuse) -> None:
        super().__init__(mount)
        self.fuse = fuse

    def create(self, group: ResctrlGroup) -> None:
        self.fuse.burn(lambda: Resctrl.create(self, group))

    def remove(self, group: ResctrlGroup) -> None:
        self.fuse.burn(lambda: Resctrl.remove(self, group))

    def limit(self, group: ResctrlGroup, percents: Mapping[int, int]) -> None:
        self.fuse.burn(lambda: Resctrl.limit(self, group, percents))

    def add_tasks(self, group: ResctrlGroup, task_ids: Iterable[int]) -> int:
        for task_id in task_ids:
            self.fuse.burn(lambda task_id=task_id: Resctrl.add_tasks(self, group, [task_id]))
        return 0


class DyingCores:
    """Cores, each change of which may be the last."""

    def __init__(self, now: set[int], fuse: Fuse | None) -> None:
        self.now, self.fuse = now, fuse

    def limit(self, job_id: int, cores: int) -> None:
        assert self.fuse is not None
        self.fuse.burn(lambda: self.now.add(job_id))

    def restore(self, job_id: int) -> None:
        if self.fuse is None:
            self.now.discard(job_id)
        else:
            self.fuse.burn(lambda: self.now.discard(job_id))


job = st.sampled_from(sorted(JOBS))
actions = st.one_of(
    st.builds(ThrottleBandwidth, job, st.sampled_from([50, 20])),
    st.builds(ReleaseBandwidth, job),
    st.builds(LimitCores, job, st.just(1)),
    st.builds(RestoreCores, job),
    job.map(lambda job_id: job_id),  # it ends
    st.none(),  # a refresh
)


@given(script=st.lists(actions, max_size=8), at=st.integers(1, 60), before=st.booleans(), again=st.integers(1, 20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60), deadline=None)
def test_whatever_a_dead_agent_left_the_next_one_takes_back(
    server: Machine, script: list[LimitAction | int | None], at: int, before: bool, again: int
) -> None:
    """The second agent dies too, while it cleans up; the third has what is left."""
    server.tell(reset={"closids": 8})
    server.run({tid: {} for tids in JOBS.values() for tid in tids})
    for name in ("site", "mon_groups/site", "soda-lab"):
        (server.mount / name).mkdir()
    foreign = sorted(server.look())
    limited: set[int] = set()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "limits.json"
        for deadly in (Fuse(at, before=before), Fuse(again, before=before)):
            patch.setattr(
                limit_enforcer,
                "write_limit_record",
                lambda p, r, fuse=deadly: fuse.burn(lambda: write_limit_record(p, r)),
            )
            with contextlib.suppress(Death):
                _live(
                    LimitEnforcer(DyingResctrl(server.mount, deadly), DyingCores(limited, deadly), path, print), script
                )
            _is_recorded(path, server, limited)
        patch.undo()
        last = LimitEnforcer(Resctrl(server.mount), DyingCores(limited, None), path, print)
        last.recover()
        assert sorted(server.look()) == foreign
        assert limited == set()
        assert limit_enforcer.read_limit_record(path) == LimitRecord()


def _live(resource_controller: LimitEnforcer, script: list[LimitAction | int | None]) -> None:
    resource_controller.recover()
    jobs = dict(JOBS)
    for entry in script:
        match entry:
            case None:
                resource_controller.refresh(jobs)
            case int():
                jobs.pop(entry, None)
                resource_controller.end(entry)
            case _:
                resource_controller.carry_out([entry] if entry.job_id in jobs else [], jobs)


def _is_recorded(path: Path, server: Machine, limited: set[int]) -> None:
    """What a limit needs to be taken back is on disk before the limit is there."""
    record = limit_enforcer.read_limit_record(path)
    ours = {name for name in server.look() if ResctrlGroup.parse(name)}
    assert ours <= record.groups
    assert limited <= record.cores
