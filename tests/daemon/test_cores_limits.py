"""Limits of accounting over whole cycles: a job that one may bind keeps its request, and so does each while nobody knows."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

import pytest

from slurm_soda.daemon.cpu_fit.limits_lookup import ASK_EVERY_S, VALID_S, LimitsLookup
from slurm_soda.policies.cpu_fit.limits import Account, AccountingLimits, Association
from slurm_soda.slurm_ext.errors import SlurmReplyError
from tests.daemon.fake_slurm import FakeSlurm
from tests.daemon.harness import AtOnce
from tests.daemon.test_cores_starts import Start, thought, wait

LIMITS = AccountingLimits(
    enforced=True,
    qos_enforced=True,
    users={"alice": (Association("acc"),), "bob": (Association("acc", "MaxTRES=cpu"),)},
    accounts={"acc": Account()},
    qos={"normal": ""},
)


@pytest.fixture
def full(slurm: FakeSlurm) -> FakeSlurm:
    """All GPUs are taken, so that jobs wait."""
    slurm.submit(1, gpus=4, work_s=1e6, checkpoint=None)
    slurm.tick()
    slurm.limits = LIMITS
    return slurm


def test_a_job_that_a_limit_binds_keeps_its_request_and_says_so(full: FakeSlurm, daemon: Start) -> None:
    hers, his, right = wait(full, 2, cpus=20), wait(full, 3, cpus=20, user="bob"), wait(full, 4, cpus=3, user="bob")
    sodad = daemon()
    sodad.follow(3)
    assert (hers.cpus, his.cpus, right.cpus) == (3, 20, 3)
    assert "(MaxTRES=cpu of its owner's association)" in thought(sodad, 3).left_alone
    assert full.calls.count("request") == 1, "a job that is not changed is not asked about"


def test_a_limit_that_is_set_or_removed_counts_after_a_minute(full: FakeSlurm, daemon: Start) -> None:
    full.limits = replace(LIMITS, qos={"normal": "MaxTRESPU=cpu"})
    job = wait(full, cpus=20)
    sodad = daemon()
    sodad.follow(3)
    assert job.cpus == 20
    full.limits = LIMITS
    full.advance(ASK_EVERY_S)
    sodad.follow(2)
    assert (job.cpus, thought(sodad).left_alone) == (3, "")


def test_while_nobody_knows_the_limits_nothing_is_changed(full: FakeSlurm, daemon: Start) -> None:
    job = wait(full, cpus=20)
    full.silent.add("accounting_limits")
    sodad = daemon()
    sodad.follow(10)
    assert (job.cpus, full.calls.count("accounting_limits")) == (20, 1)
    full.silent.clear()
    full.advance(ASK_EVERY_S)
    sodad.follow(2)
    assert job.cpus == 3


class Later(Executor):
    """Answers when the test says so."""

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        self.asked: Future[Any] = Future()
        return self.asked


def test_a_slow_answer_is_not_waited_for_and_an_old_one_does_not_count() -> None:
    later = Later()
    lookup = LimitsLookup(lambda: LIMITS, later)
    assert lookup.current(0.0) is None
    first = later.asked
    assert lookup.current(1.0) is None
    assert later.asked is first, "one question at a time"
    first.set_result(LIMITS)
    assert lookup.current(2.0) == LIMITS
    assert lookup.current(ASK_EVERY_S) == LIMITS, "asked again, and known meanwhile"
    assert later.asked is not first
    assert lookup.current(VALID_S - 1) == LIMITS
    assert lookup.current(VALID_S) is None


def test_an_answer_that_nobody_can_read_is_none() -> None:
    def ask() -> AccountingLimits:
        raise SlurmReplyError("cut short")

    assert LimitsLookup(ask, AtOnce()).current(0.0) is None
