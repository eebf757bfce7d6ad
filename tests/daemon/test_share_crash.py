"""kill -9 at every point of every cycle of shares, and any order of what may happen to them: every request comes back."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from slurm_soda.daemon.cycle import cycle
from slurm_soda.policies.pipeline.stages import Pipeline, pipeline_of
from tests.daemon.fake_slurm import FakeClock
from tests.daemon.harness import Daemon, KilledError, Killer
from tests.daemon.sharing_daemon import JoinAsTold, shares, sodad, told
from tests.daemon.sharing_slurm import SharingSlurm

__all__ = ["told"]


def scenario(told: JoinAsTold) -> SharingSlurm:
    """Three guests: one ends first, one outlives its host, one never starts as a guest."""
    slurm = SharingSlurm(FakeClock())
    slurm.submit(1, gpus=4, work_s=20.0)
    slurm.tick()
    slurm.submit(2, gpus=1, work_s=4.0)
    slurm.submit(3, gpus=2, work_s=30.0)
    slurm.submit(4, gpus=1, work_s=4.0)
    told.wanted = {2: ((1,), (0,)), 3: ((1,), (2, 3)), 4: ((1,), (1,))}
    slurm.refuse_gres = 1
    return slurm


def play(slurm: SharingSlurm, path: Path, kill_at: int) -> tuple[Daemon, int]:
    """Run to the end with one death on the way; gives the last life and the points that the first passed."""
    killer = Killer(kill_at)
    daemon, passed = sodad(slurm, path, killer), 0
    for _ in range(200):
        try:
            daemon.run()
        except KilledError:
            passed = killer.passed
            slurm.advance(3)
            daemon = sodad(slurm, path)
        slurm.advance(1)
        if all(job.state == "COMPLETED" for job in slurm.all.values()):
            break
    daemon.run()
    daemon.run()
    return daemon, passed or killer.passed


def check_end(slurm: SharingSlurm, daemon: Daemon) -> None:
    """Nothing of ours is left, and the trail names what was done."""
    assert {row.phase for row in shares(daemon)} <= {"over"}
    assert all(row.end and row.ended_s for row in shares(daemon))
    assert {action.state for action in daemon.actions()} <= {"done", "failed", "void"}
    for job_id, (gres, nodes, extra) in slurm.requests().items():
        ran_as_guest = slurm.all[job_id].guest
        assert ran_as_guest or (gres, nodes, extra) == (f"gres/gpu:{slurm.all[job_id].gpus}", "", ""), job_id


def test_without_a_kill(fresh_store: Path, told: JoinAsTold) -> None:
    slurm = scenario(told)
    daemon, passed = play(slurm, fresh_store, kill_at=-1)
    check_end(slurm, daemon)
    assert [slurm.all[job].restarts for job in (1, 2, 3, 4)] == [0, 0, 1, 0]
    ends = {(row.guest, row.end) for row in shares(daemon)}
    assert {(3, "revoked"), (4, "ended")} <= ends
    assert "refused" in {end for _, end in ends}
    assert passed > 100


@pytest.mark.sample(5)
@pytest.mark.parametrize("kill_at", range(1, 101))
def test_a_kill_at_every_point(fresh_store: Path, told: JoinAsTold, kill_at: int) -> None:
    slurm = scenario(told)
    daemon, passed = play(slurm, fresh_store, kill_at)
    assert passed == kill_at
    assert {job.state for job in slurm.all.values()} == {"COMPLETED"}
    check_end(slurm, daemon)


class Shares(RuleBasedStateMachine):
    """Any order of joins, ends, kills of sodad and slurmctld's own doings."""

    @initialize()
    def begin(self) -> None:
        self.told, self.store = JoinAsTold(), Path(mkdtemp(prefix="shares-"))
        self.slurm = SharingSlurm(FakeClock())
        self.edited: set[int] = set()
        for job_id in (1, 2):
            self.slurm.submit(job_id, gpus=2, work_s=200.0)
        self.slurm.tick()
        for job_id in (3, 4, 5, 6):
            self.slurm.submit(job_id, gpus=1 + job_id % 2, work_s=40.0)
        self.patch = pytest.MonkeyPatch()
        stages = self.told
        self.patch.setattr(cycle, "pipeline_of", lambda policy: Pipeline((*pipeline_of(policy).stages, stages)))
        self.daemon = sodad(self.slurm, self.store)

    def teardown(self) -> None:
        self.told.wanted, self.told.parted = {}, {}
        self.slurm.held = False
        self.daemon = sodad(self.slurm, self.store)
        self.daemon.complete(900)
        assert {job.state for job in self.slurm.all.values()} <= {"COMPLETED", "CANCELLED"}
        assert {row.phase for row in shares(self.daemon)} <= {"over"}
        for job_id, (gres, nodes, extra) in self.slurm.requests().items():
            job = self.slurm.all[job_id]
            if not job.guest and job_id not in self.edited and job.state == "COMPLETED":
                assert (gres, nodes, extra) == (f"gres/gpu:{job.gpus}", "", ""), job_id
            if job_id in self.edited and not job.guest:
                assert not extra.startswith("soda-guest:"), job_id
        self.patch.undo()
        self.daemon.store.close()
        rmtree(self.store)

    @rule(of_waiting=st.integers(0, 5), of_running=st.integers(0, 3))
    def share(self, of_waiting: int, of_running: int) -> None:
        """A waiting job joins a running one, where it fits; the first jobs that there are."""
        jobs = list(self.slurm.all.values())
        waiting = [job for job in jobs if job.state == "PENDING"]
        hosts = [job for job in jobs if job.state == "RUNNING" and not job.guest]
        if waiting and hosts:
            guest, host = waiting[of_waiting % len(waiting)], hosts[of_running % len(hosts)]
            if len(host.devices) >= guest.gpus:
                self.told.wanted = {guest.job_id: ((host.job_id,), host.devices[: guest.gpus])}
        self._cycle()
        self.told.wanted = {}
        self.slurm.advance(1)
        self._cycle()

    @rule(gpus=st.integers(1, 2))
    def submit(self, gpus: int) -> None:
        self.slurm.submit(max(self.slurm.all) + 1, gpus=gpus, work_s=40.0)

    @rule(how=st.sampled_from(["end", "cancel", "requeue"]), which=st.integers(0, 5))
    def leave(self, how: str, which: int) -> None:
        """A running job ends, is cancelled, or goes back to the queue."""
        running = [job for job in self.slurm.all.values() if job.state == "RUNNING"]
        if not running:
            return
        job = running[which % len(running)]
        if how == "requeue":
            self.slurm.requeue(job.job_id)
        elif how == "cancel":
            job.state = "CANCELLED"
        else:
            self.slurm._finish(job, "COMPLETED", "0:0", self.slurm.clock.now_s())

    @rule(which=st.integers(0, 5), part=st.sampled_from(["nodes", "GRES", "extra"]))
    def edit(self, which: int, part: str) -> None:
        """An owner writes a part of a waiting job's request."""
        waiting = [job for job in self.slurm.all.values() if job.state == "PENDING"]
        waiting = [job for job in waiting if job.guest] or waiting
        if not waiting:
            return
        one = waiting[which % len(waiting)]
        self.edited.add(one.job_id)
        if part == "nodes":
            one.req_node_names = "n1"
        elif part == "extra":
            one.extra = ""
        else:
            one.other_gres, one.guest = f"gres/gpu:{one.gpus}", False

    @rule(at=st.integers(1, 12))
    def kill(self, at: int) -> None:
        self.daemon = sodad(self.slurm, self.store, Killer(at))
        for _ in range(6):
            self._cycle()
        self.daemon = sodad(self.slurm, self.store)

    @rule(seconds=st.integers(1, 8))
    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self._cycle()
            self.slurm.advance(1)

    @rule(held=st.booleans())
    def hold(self, held: bool) -> None:
        self.slurm.held = held

    @precondition(lambda self: any(job.guest and job.state == "RUNNING" for job in self.slurm.all.values()))
    @rule()
    def part(self) -> None:
        self.told.parted = {job.job_id: "slow" for job in self.slurm.all.values() if job.guest}
        self._cycle()
        self.told.parted = {}

    def _cycle(self) -> None:
        try:
            self.daemon.run()
        except KilledError:
            self.daemon = sodad(self.slurm, self.store)


@pytest.mark.sample(1)
@pytest.mark.parametrize("part", range(10))
def test_any_order(part: int) -> None:
    """200 sequences, in parts that end within the time limit of a test on a busy machine too."""

    class Part(Shares):
        pass

    few = settings(max_examples=20, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(seed(part)(Part), settings=few)
