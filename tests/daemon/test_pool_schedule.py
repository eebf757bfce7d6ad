"""Shares derived anew by schedule: a step at a time, only where pools are applied, never an end of sodad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from slurm_soda.daemon.cpu_fit.limits_lookup import LimitsLookup
from slurm_soda.daemon.cycle.accounting_lookup import AccountingLookup
from slurm_soda.daemon.cycle.cycle import CycleRunner
from slurm_soda.daemon.cycle.daemon_state import DaemonContext
from slurm_soda.daemon.cycle.epoch import SupersededError, begin_epoch
from slurm_soda.daemon.cycle.lease import Lease, LeaseTiming
from slurm_soda.daemon.pools.share_schedule import CHANGED_BY, RESUME_AFTER_S, ShareSchedule
from slurm_soda.daemon.settings.scope import ScopeSettings
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.store.engine import open_store
from slurm_soda.daemon.store.tables.scheduling import Action, Job, JobRun
from slurm_soda.policies.cpu_fit.limits import AccountingLimits
from slurm_soda.policies.pools.kinds import NodeClass, PoolShare
from slurm_soda.policies.pools.layout.partitions import PoolTable, plan_pool_partitions
from slurm_soda.slurm_ext.client import JobUpdate, JobUpdateResult, SlurmJob
from slurm_soda.slurm_ext.pools.partition_settings import pool_partition_settings
from slurm_soda.slurm_ext.pools.pool_installer import PoolInstaller, WantedPools
from slurm_soda.slurm_ext.pools.pools_record import read_record
from slurm_soda.slurm_ext.pools.routes_file import RoutingRules
from slurm_soda.slurm_ext.pools.scontrol_partitions import ScontrolPartitions
from tests.daemon.fake_slurm import FakeClock
from tests.slurm_ext.pool_site import unrecorded
from tests.slurm_ext.scontrol import QueueOfPartitions, Scontrol, detail, partition
from tests.sodactl.conftest import record

A100 = NodeClass("a100", 4, 28)
DAY_S = 86_400.0


class Site:
    """Pools with 8 cores of each node for CPU jobs, and a month of GPU jobs that use two cores a GPU."""

    def __init__(self, folder: Path, store_folder: Path) -> None:
        self.folder, self.clock = folder, FakeClock()
        self.scontrol, self.queue = Scontrol(), QueueOfPartitions()
        conf, include = folder / "slurm.conf", folder / "soda-pools.conf"
        conf.write_text(f"include {include}\n")
        self.scontrol.config["SLURM_CONF"] = str(conf)
        self.settings = Settings.model_validate(
            {"mode": "enforce", "state_dir": str(folder), "pools": {"include_path": str(include)}}
        )
        self.store = open_store(f"sqlite:///{store_folder}/soda.db")
        self._fill()
        self.port, self.include = ScontrolPartitions(self.scontrol), include
        self.by_hand("gpu")
        self.schedule = self.next_life()

    @property
    def installer(self) -> PoolInstaller:
        """As `sodactl pools` has it."""
        return PoolInstaller(self.queue, self.port, self.folder, self.clock.now_s, "root", unrecorded(self.queue))

    def by_hand(self, *bases: str) -> None:
        self.installer.apply(self.wanted(*bases))

    def wanted(self, *bases: str) -> WantedPools:
        """Pools of these partitions with 8 cores of each node for CPU jobs."""
        shares, present = {A100: PoolShare(8, 0)}, self.port.partitions()
        table = PoolTable()
        for base in bases:
            table = table.merged(plan_pool_partitions(base, 1, 0, [("n1", A100), ("n2", A100)], shares))
        settings = {part.name: pool_partition_settings(part, present[part.base]) for part in table}
        shown = {base: present[base].fields for base in bases}
        return WantedPools(table, settings, shares, RoutingRules(), shown, self.include)

    def next_life(self) -> ShareSchedule:
        """A new sodad, whose cycles only observe."""
        epoch = begin_epoch(self.store, host="ctl", pid=1, version="0", now_s=self.clock.now_s())
        timing = LeaseTiming(1000 * DAY_S, 60.0)  # days pass between steps, without a cycle
        lease = Lease(self.store, epoch, self.clock, timing, self.clock.elapsed_s())
        limits = LimitsLookup(AccountingLimits)
        context = DaemonContext(self.store, self.queue, lease, self.clock, AccountingLookup(None, 0.0), limits)
        self.cycles = CycleRunner(self.settings.model_copy(update={"mode": "observe"}), context)
        send = self.cycles.actor.send_outside_plan
        return ShareSchedule(context, ScontrolPartitions(self.scontrol), "ctl", send)

    def strand(self, *job_ids: int, **more: Any) -> None:
        """A day later these jobs wait in a pool that can no longer hold them."""
        small = {"partition": "gpu_small", "gpus": 1, "gpus_per_node": 1, "cpus": 20}
        self.queue.queue = [record(job_id, **(small | more)) for job_id in job_ids]
        self.scontrol.waiting = {job_id: detail() for job_id in job_ids}
        self.clock.at_s += DAY_S + 1

    @property
    def moves(self) -> list[Action]:
        with self.store.read() as session:
            return list(session.scalars(select(Action).order_by(Action.id)))

    def _fill(self) -> None:
        with self.store.write() as session:
            for job_id in range(1, 41):
                at_s = self.clock.now_s() - 3600
                job = Job(
                    job_id=job_id, submit_s=at_s, user="a", state="COMPLETED", gpus=1, cpus=2, end_s=at_s + 60,
                    hints={}, note={},
                )  # fmt: skip
                session.add(job)
                session.flush()
                session.add(JobRun(job_pk=job.id, restart=0, start_s=at_s, end_s=at_s + 60, node_names="n1", gpus=1))

    @property
    def cpu_cores(self) -> int:
        found = read_record(self.folder)
        assert found is not None
        return found.shares[A100].cpu_cores


@pytest.fixture
def site(tmp_path: Path, fresh_store: Path) -> Site:
    return Site(tmp_path, fresh_store)


def test_shares_move_a_step_a_day(site: Site) -> None:
    assert not site.schedule.step(site.settings, enforces=True)
    site.clock.at_s += DAY_S + 1
    assert site.schedule.step(site.settings, enforces=True)
    assert site.cpu_cores == 11
    assert site.scontrol.partitions["gpu_cpu"]["MaxCPUsPerNode"] == "11"
    assert not site.schedule.step(site.settings, enforces=True)
    found = read_record(site.folder)
    assert found is not None
    assert found.by == CHANGED_BY
    site.clock.at_s += DAY_S + 1
    assert site.next_life().step(site.settings, enforces=True)
    assert site.cpu_cores == 14


@pytest.mark.parametrize("case", ["observing", "off", "reverted", "refused", "obstacle"])
def test_otherwise_nothing_changes(site: Site, case: str) -> None:
    site.clock.at_s += DAY_S + 1
    settings, before = site.settings, dict(site.scontrol.partitions["gpu_cpu"])
    if case == "off":
        off = settings.pools.model_copy(update={"rederive_s": 0.0})
        settings = settings.model_copy(update={"pools": off})
    if case == "reverted":
        site.installer.revert()
    if case == "refused":
        site.scontrol.refuse_after = len(site.scontrol.sent)
    if case == "obstacle":
        site.scontrol.config["PreemptType"] = "preempt/none"
    assert not site.schedule.step(settings, enforces=case != "observing")
    if case == "reverted":
        assert read_record(site.folder) is None
    else:
        assert site.scontrol.partitions["gpu_cpu"] == before
        assert site.cpu_cores == 8


def test_shares_of_partitions_that_are_not_in_scope_as_a_whole_stay(site: Site) -> None:
    site.clock.at_s += DAY_S + 1
    for left_out in ({"partitions": ["other"]}, {"partitions": ["gpu"], "users": ["a"]}):
        scoped = site.settings.model_copy(update={"scope": ScopeSettings.model_validate(left_out)})
        assert not site.schedule.step(scoped, enforces=True)
        site.clock.at_s += DAY_S + 1
    assert site.cpu_cores == 8
    scoped = site.settings.model_copy(update={"scope": ScopeSettings(partitions=["gpu"])})
    assert site.schedule.step(scoped, enforces=True)
    assert site.cpu_cores == 11


def test_what_goes_is_deleted_once_its_last_job_has_ended(site: Site) -> None:
    site.scontrol.partitions["big"] = partition(Nodes="n[1-2]", MinNodes="0")
    site.by_hand("gpu", "big")
    site.scontrol.used = {"big_small"}
    site.by_hand("gpu")
    site.queue.queue = [record(1, partition="big_small")]  # Slurm requeued it
    for _ in range(4):  # until the shares are where history wants them
        site.clock.at_s += DAY_S + 1
        site.schedule.step(site.settings, enforces=True)
    assert site.queue.queue[0].partition == "big"
    assert "big_small" in site.scontrol.partitions
    site.scontrol.used = set()
    site.clock.at_s += DAY_S + 1
    cores = site.cpu_cores
    assert site.schedule.step(site.settings, enforces=True)
    assert "big_small" not in site.scontrol.partitions
    found = read_record(site.folder)
    assert found is not None
    assert (found.leaving, site.cpu_cores) == ((), cores)
    site.clock.at_s += DAY_S + 1
    assert not site.schedule.step(site.settings, enforces=True)


def test_a_change_that_was_cut_short_is_finished_as_it_was_meant(site: Site) -> None:
    original = site.scontrol._change

    def dies(words: tuple[str, ...]) -> tuple[int, str, str]:
        if words[2] == "PartitionName=gpu_large":
            raise KeyboardInterrupt
        return original(words)

    site.scontrol._change = dies  # type: ignore[method-assign]
    site.clock.at_s += DAY_S + 1
    with pytest.raises(KeyboardInterrupt):
        site.schedule.step(site.settings, enforces=True)
    site.scontrol._change = original  # type: ignore[method-assign]
    after = site.next_life()
    assert not after.step(site.settings, enforces=True)  # it may be somebody's who is still at it
    site.clock.at_s += RESUME_AFTER_S + 1
    assert after.step(site.settings, enforces=True)
    found = read_record(site.folder)
    assert found is not None
    assert (found.phase, site.cpu_cores) == ("applied", 11)
    assert [site.scontrol.partitions[name]["MaxCPUsPerNode"] for name in ("gpu_cpu", "gpu_large")] == ["11", "17"]
    site.clock.at_s += RESUME_AFTER_S + 1
    assert not after.step(site.settings, enforces=True)


def test_who_waits_follows_the_shares(site: Site) -> None:
    site.strand(1)
    assert site.schedule.step(site.settings, enforces=True)
    assert site.queue.queue[0].partition == "gpu"


def test_a_move_is_recorded_before_it_is_made(site: Site) -> None:
    requeued = {"restarts": 1, "reason": "Resources"}
    site.strand(1, submit_s=site.clock.now_s() - 900)
    assert not site.cycles.run().error  # sodad knows the job from before its requeue
    first_submit_s = site.queue.queue[0].submit_s
    site.queue.queue = [replace(site.queue.queue[0], submit_s=first_submit_s + 500, **requeued)]
    update, before = site.queue.update, []

    def looks_first(updates: Sequence[JobUpdate]) -> list[JobUpdateResult]:
        before.extend(action.state for action in site.moves)
        return update(updates)

    site.queue.update = looks_first  # type: ignore[method-assign]
    assert site.schedule.step(site.settings, enforces=True)
    assert before == ["intended"]
    (move,) = site.moves
    assert (move.job_id, move.kind, move.state, move.epoch_id) == (1, "rewrite", "done", 1)
    assert (move.new, move.old) == ({"Partition": "gpu"}, {"Partition": "gpu_small"})
    assert "its pool changed" in move.reason
    assert move.submit_s == first_submit_s


def test_the_change_limits_hold_for_moves_and_what_waits_goes_with_the_next_cycles(site: Site) -> None:
    limits = site.settings.change_limits.model_copy(update={"max_changes_per_cycle": 2})
    site.settings = site.settings.model_copy(update={"change_limits": limits})
    site.schedule = site.next_life()
    site.strand(1, 2, 3, 4, 5)
    left = []
    for _ in range(4):
        site.cycles.run()
        assert site.schedule.step(site.settings, enforces=True) == (len(left) < 3)
        left.append([job.job_id for job in site.queue.queue if job.partition == "gpu_small"])
        site.clock.at_s += 2
    assert left == [[3, 4, 5], [5], [], []]
    assert {move.state for move in site.moves} == {"done"}
    assert site.cpu_cores == 11, "the shares did not move a second time"


def test_what_a_killed_sodad_held_back_is_moved_by_the_next(site: Site) -> None:
    limits = site.settings.change_limits.model_copy(update={"max_changes_per_cycle": 2})
    site.settings = site.settings.model_copy(update={"change_limits": limits})
    site.schedule = site.next_life()
    site.strand(1, 2, 3)
    site.schedule.step(site.settings, enforces=True)
    site.schedule = site.next_life()
    site.clock.at_s += RESUME_AFTER_S + 1
    site.schedule.step(site.settings, enforces=True)
    assert [job.partition for job in site.queue.queue] == ["gpu"] * 3
    record_now = read_record(site.folder)
    assert record_now is not None
    assert (record_now.phase, site.cpu_cores) == ("applied", 11)


def test_a_job_changed_a_moment_ago_is_moved_a_moment_later(site: Site) -> None:
    site.strand(1)
    site.cycles.actor._limits.remember(1, site.clock.now_s())
    site.schedule.step(site.settings, enforces=True)
    assert site.queue.queue[0].partition == "gpu_small"
    site.clock.at_s += 2
    site.schedule.step(site.settings, enforces=True)
    assert site.queue.queue[0].partition == "gpu"


@pytest.mark.parametrize("at", ["before", "between"])
def test_a_sodad_that_was_superseded_changes_nothing(site: Site, at: str) -> None:
    site.strand(1)
    sent = list(site.scontrol.sent)
    jobs = site.queue.jobs

    def superseded() -> list[SlurmJob]:
        begin_epoch(site.store, host="ctl", pid=2, version="0", now_s=site.clock.now_s())
        return jobs()

    if at == "before":
        superseded()
    else:
        site.queue.jobs = superseded  # type: ignore[method-assign]
    with pytest.raises(SupersededError):
        site.schedule.step(site.settings, enforces=True)
    assert (site.queue.queue[0].partition, site.moves, site.queue.sent) == ("gpu_small", [], [])
    assert at == "between" or site.scontrol.sent == sent


def test_a_sodad_that_is_superseded_between_two_commands_begins_no_more_and_the_next_one_finishes(site: Site) -> None:
    original, before = site.scontrol._change, len(site.scontrol.sent)

    def superseded(words: tuple[str, ...]) -> tuple[int, str, str]:
        begin_epoch(site.store, host="ctl", pid=2, version="0", now_s=site.clock.now_s())
        return original(words)

    site.scontrol._change = superseded  # type: ignore[method-assign]
    site.clock.at_s += DAY_S + 1
    with pytest.raises(SupersededError):
        site.schedule.step(site.settings, enforces=True)
    assert len(site.scontrol.sent) == before + 1
    site.scontrol._change = original  # type: ignore[method-assign]
    site.clock.at_s += RESUME_AFTER_S + 1
    assert site.next_life().step(site.settings, enforces=True)
    found = read_record(site.folder)
    assert found is not None
    assert (found.phase, len(site.scontrol.sent) > before + 1) == ("applied", True)


def test_a_move_without_an_answer_is_settled_in_the_next_cycle(site: Site) -> None:
    site.strand(1)
    site.queue.unanswered = "taken"
    site.schedule.step(site.settings, enforces=True)
    assert [move.state for move in site.moves] == ["sent"]
    site.queue.unanswered = ""
    assert not site.cycles.run().error
    assert [move.state for move in site.moves] == ["done"]


def test_somebody_else_s_change_is_respected(site: Site) -> None:
    site.clock.at_s += DAY_S + 1
    site.scontrol.partitions["gpu_cpu"]["MaxCPUsPerNode"] = "20"
    assert not site.schedule.step(site.settings, enforces=True)
    assert site.scontrol.partitions["gpu_cpu"]["MaxCPUsPerNode"] == "20"
