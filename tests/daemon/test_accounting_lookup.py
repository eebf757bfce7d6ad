"""Figures of ended jobs come from accounting, however long it was away."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import wait
from pathlib import Path

import pytest

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.cycle import accounting_lookup
from slurm_soda.daemon.cycle.accounting_lookup import ACCOUNTING_TIMEOUT_S, AccountingLookup
from slurm_soda.daemon.store.engine import Store, open_store
from slurm_soda.daemon.store.jobs.cached_job import CachedJob
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.slurm_ext.errors import SlurmCommandError
from slurm_soda.slurm_ext.read.sacct import JobAccounting, RunAccounting

BEGIN_S = 1e6
JOBS = 450


class Accounting:
    """Knows all jobs but those in :attr:`unknown`, when it answers."""

    def __init__(self) -> None:
        self.answers = True
        self.unknown: set[int] = set()

    def __call__(self, job_ids: Sequence[int]) -> Iterable[JobAccounting]:
        if not self.answers:
            raise SlurmCommandError(("sacct",), 1, "slurmdbd is down", "")
        for job_id in set(job_ids) - self.unknown:
            run = RunAccounting(2.0, BEGIN_S + job_id, "COMPLETED", "0:0", 77.0, 5.0, 1, 1, 1, "n1")
            yield JobAccounting(job_id, "alice", 1.0, "COMPLETED", "0:0", (run,))


class Site:
    """A lookup by a clock that the test moves, and jobs that have ended one second after the other."""

    def __init__(self, store: Store) -> None:
        self.accounting, self.jobs, self.now_s = Accounting(), JobCache(store), BEGIN_S + JOBS
        self.lookup = AccountingLookup(self.accounting, 5.0)
        for job_id in range(1, JOBS + 1):
            job = CachedJob(job_id, 1.0)
            job.end_s, job.state = BEGIN_S + job_id, "COMPLETED"
            self.jobs.jobs[job_id] = job

    def run(self, seconds: float, every_s: float = 60.0) -> None:
        for _ in range(math.ceil(seconds / every_s)):
            self.now_s += every_s
            self.lookup.step(self.jobs, set(), Instant(self.now_s, self.now_s))
            wait([asked] if (asked := self.lookup._asked) else [])

    def with_figures(self) -> int:
        return sum(job.cpu_s is not None for job in self.jobs.jobs.values())

    def settled(self) -> int:
        return sum(job.accounted for job in self.jobs.jobs.values())


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    store = open_store(f"sqlite:///{tmp_path}/soda.db")
    site = Site(store)
    yield site
    site.lookup.close()
    store.close()


def test_every_job_has_its_figures_after_slurmdbd_was_away_for_long(site: Site) -> None:
    site.accounting.answers = False
    site.run(3 * ACCOUNTING_TIMEOUT_S)
    assert site.settled() == 0
    site.accounting.answers = True
    site.run(600)
    assert site.with_figures() == JOBS


def test_every_job_has_its_figures_after_sodad_was_away_for_long(site: Site) -> None:
    site.now_s += 3 * ACCOUNTING_TIMEOUT_S
    site.run(600)
    assert site.with_figures() == JOBS


def test_what_accounting_does_not_know_is_given_up_an_hour_after_its_end(site: Site) -> None:
    site.accounting.unknown = {1, 2, 3}
    site.run(ACCOUNTING_TIMEOUT_S / 2)
    assert site.settled() == JOBS - 3
    site.run(ACCOUNTING_TIMEOUT_S)
    assert (site.settled(), site.with_figures()) == (JOBS, JOBS - 3)


def test_a_site_where_accounting_never_answers_keeps_a_bounded_number(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounting_lookup, "MAX_JOBS_WITHOUT_ANSWER", 100)
    site.accounting.answers = False
    site.run(600)
    assert [job.job_id for job in site.jobs.jobs.values() if not job.accounted] == list(range(JOBS - 99, JOBS + 1))
