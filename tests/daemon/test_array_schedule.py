"""Shares derived anew by schedule: a step at a time, only where arrays are applied, never an end of sodad."""

from __future__ import annotations

from pathlib import Path

import pytest
from slurm_soda.daemon.arrays.schedule import NAME, ShareSchedule
from slurm_soda.daemon.config import Settings
from slurm_soda.daemon.store.engine import open_store
from slurm_soda.daemon.store.schema import Job, Run
from slurm_soda.policies.arrays.kinds import NodeClass, Share
from slurm_soda.policies.arrays.layout import lay_out
from slurm_soda.slurm_ext.arranging import Arranger, Wanted
from slurm_soda.slurm_ext.arrays import read_record
from slurm_soda.slurm_ext.cli.partitions import CliPartitions
from slurm_soda.slurm_ext.partitions import wanted_settings
from slurm_soda.slurm_ext.routes import RoutingRules

from tests.daemon.fake_slurm import FakeClock
from tests.slurm_ext.scontrol import QueueOfPartitions, Scontrol

A100 = NodeClass("a100", 4, 28)
DAY_S = 86_400.0


class Site:
    """Arrays with 8 cores of each node for CPU jobs, and a month of GPU jobs that use two cores a GPU."""

    def __init__(self, folder: Path, store_folder: Path) -> None:
        self.folder, self.clock = folder, FakeClock()
        self.scontrol, self.queue = Scontrol(), QueueOfPartitions()
        conf, include = folder / "slurm.conf", folder / "soda-arrays.conf"
        conf.write_text(f"include {include}\n")
        self.scontrol.config["SLURM_CONF"] = str(conf)
        self.settings = Settings.model_validate(
            {"mode": "enforce", "state_dir": str(folder), "arrays": {"include_path": str(include)}}
        )
        self.store = open_store(f"sqlite:///{store_folder}/soda.db")
        self._fill()
        port = CliPartitions(self.scontrol)
        shares = {A100: Share(8, 0)}
        table = lay_out("gpu", 1, 0, [("n1", A100), ("n2", A100)], shares)
        base = port.partitions()["gpu"]
        settings = {part.name: wanted_settings(part, base) for part in table}
        wanted = Wanted(table, settings, shares, RoutingRules(), {"gpu": base.fields}, include)
        Arranger(self.queue, port, folder, self.clock.now_s, "root").apply(wanted)
        self.schedule = self.next_life()

    def next_life(self) -> ShareSchedule:
        return ShareSchedule(self.store, self.queue, lambda _: CliPartitions(self.scontrol), self.clock, "ctl")

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
                session.add(Run(job_pk=job.id, restart=0, start_s=at_s, end_s=at_s + 60, node_names="n1", gpus=1))

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
    assert found.by == NAME
    site.clock.at_s += DAY_S + 1
    assert site.next_life().step(site.settings, enforces=True)
    assert site.cpu_cores == 14


@pytest.mark.parametrize("case", ["observing", "off", "reverted", "refused", "obstacle"])
def test_otherwise_nothing_changes(site: Site, case: str) -> None:
    site.clock.at_s += DAY_S + 1
    settings, before = site.settings, dict(site.scontrol.partitions["gpu_cpu"])
    if case == "off":
        off = settings.arrays.model_copy(update={"rederive_s": 0.0})
        settings = settings.model_copy(update={"arrays": off})
    if case == "reverted":
        Arranger(site.queue, CliPartitions(site.scontrol), site.folder, site.clock.now_s, "root").revert()
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


def test_somebody_else_s_change_is_respected(site: Site) -> None:
    site.clock.at_s += DAY_S + 1
    site.scontrol.partitions["gpu_cpu"]["MaxCPUsPerNode"] = "20"
    assert not site.schedule.step(site.settings, enforces=True)
    assert site.scontrol.partitions["gpu_cpu"]["MaxCPUsPerNode"] == "20"
