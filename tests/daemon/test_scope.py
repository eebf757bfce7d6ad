"""An enforcing sodad within a scope: others' jobs are planned and explained, and what was changed of them is taken back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from slurm_soda.daemon.scope.counts import count_scope
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.store.tables.scheduling import Action
from slurm_soda.policies.scope.scope import LeftOut, Scope
from tests.daemon.fake_slurm import FakeSlurm
from tests.daemon.harness import Daemon, settings
from tests.daemon.records import record

ONLY_ALICE = {"users": ["alice"]}


def fill(slurm: FakeSlurm) -> None:
    """A job of bob's that ran for long holds all GPUs; two short ones of each wait, the last ones submitted first."""
    slurm.submit(1, gpus=4, work_s=9000.0, user="bob")
    slurm.advance(1000)
    for job_id, user in ((2, "alice"), (3, "bob"), (4, "alice"), (5, "bob")):
        slurm.submit(job_id, gpus=4 if job_id < 4 else 1, work_s=50.0, user=user)


def changed(daemon: Daemon) -> set[int]:
    return {row.job_id for row in daemon.actions()}


def facts(daemon: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = daemon.last_cycle().facts
    return found


def test_nothing_is_changed_of_jobs_out_of_scope_and_it_is_counted_what_would_have_been(
    slurm: FakeSlurm, daemon: Callable[..., Daemon]
) -> None:
    fill(slurm)
    sodad = daemon(scope=ONLY_ALICE)
    sodad.follow(30)
    assert not changed(sodad) & {1, 3, 5}
    assert slurm.all[1].restarts == 0
    scope = facts(sodad)["scope"]
    assert scope["in_scope"] == {"waiting": 2, "running": 0}
    assert scope["not_in_scope"] == {"waiting": 2, "running": 1}
    assert scope["left_out_by"] == {"user": 3}
    assert scope["would_have"]["preempt"] == 1
    assert sodad.job(3).note["not_in_scope"] == "not in scope: user bob"
    assert "not_in_scope" not in sodad.job(2).note


def test_without_a_scope_the_same_jobs_are_changed(slurm: FakeSlurm, daemon: Callable[..., Daemon]) -> None:
    fill(slurm)
    sodad = daemon()
    sodad.follow(30)
    assert 1 in changed(sodad)
    assert "scope" not in facts(sodad)


def lifted(slurm: FakeSlurm) -> dict[int, int]:
    return {job.job_id: job.site_factor for job in slurm.all.values() if job.site_factor}


def wait_in_line(slurm: FakeSlurm) -> None:
    """GPUs are held by a job that cannot checkpoint; of those that wait, the one that has run already is behind."""
    slurm.submit(1, gpus=3, work_s=9000.0, user="root", checkpoint=None)
    slurm.advance(10)
    slurm.submit(2, gpus=4, work_s=50.0, user="alice")
    slurm.submit(3, gpus=4, work_s=50.0, user="bob")
    slurm.submit(4, gpus=2, work_s=50.0, user="bob")


def test_what_was_lifted_is_taken_back_when_its_owner_leaves_the_scope(
    slurm: FakeSlurm, daemon: Callable[..., Daemon]
) -> None:
    wait_in_line(slurm)
    slurm.submit(5, gpus=1, work_s=500.0, user="bob", never_starts=True)
    slurm.all[5].priority = 1
    sodad = daemon(cycle={"skipping_limit_s": 1e6})
    sodad.run()
    before = lifted(slurm)
    assert 5 in before
    slurm.all[3].site_factor = 7  # the site's own
    sodad.cycles.reload(settings(scope=ONLY_ALICE, cycle={"skipping_limit_s": 1e6}))
    sodad.run()
    assert lifted(slurm) == {3: 7}
    (row,) = sodad.actions("release")
    assert row.job_id == 5
    assert row.reason == "not in scope: user bob: what was changed before is taken back"
    sodad.run()
    assert next(row for row in sodad.rows(Action) if row.job_id == 5 and row.kind == "order").state == "undone"
    assert len(sodad.actions("release")) == 1


def test_a_refused_taking_back_is_tried_again_after_a_while(slurm: FakeSlurm, daemon: Callable[..., Daemon]) -> None:
    wait_in_line(slurm)
    slurm.submit(5, gpus=1, work_s=500.0, user="bob", never_starts=True)
    slurm.all[5].priority = 1
    daemon(cycle={"skipping_limit_s": 1e6}).run()
    sodad = daemon(scope=ONLY_ALICE, mode="advise")
    sodad.run()
    assert lifted(slurm), "who advises changes nothing"
    slurm.silent = {"update"}
    sodad = daemon(scope=ONLY_ALICE)
    sodad.run()
    slurm.silent = set()
    sodad.follow(130, every_s=10.0)
    assert lifted(slurm) == {}


def test_a_changed_request_is_given_back_when_its_job_leaves_the_scope(
    slurm: FakeSlurm, daemon: Callable[..., Daemon]
) -> None:
    slurm.submit(1, gpus=4, work_s=9000.0, user="root", checkpoint=None)
    slurm.advance(10)
    slurm.submit(2, gpus=4, work_s=50.0, user="bob", cpus=24, checkpoint=None)
    sodad = daemon(cpu_fit={"rewrite": "all"})
    sodad.run()
    sodad.run()
    if slurm.all[2].cpus == 24:
        pytest.fail("the request was not changed, so nothing can be given back")
    sodad.cycles.reload(settings(scope=ONLY_ALICE, cpu_fit={"rewrite": "all"}))
    sodad.follow(5)
    assert slurm.all[2].cpus == 24
    rewrites = sodad.actions("rewrite")
    assert rewrites[-1].reason.startswith("not in scope: user bob")
    assert rewrites[0].state == "undone"


def test_a_partition_that_slurm_does_not_have_is_said(slurm: FakeSlurm, daemon: Callable[..., Daemon]) -> None:
    slurm.submit(1)
    sodad = daemon(scope={"partitions": ["mian"]})
    sodad.run()
    assert facts(sodad)["problems"] == [
        "scope.partitions: no node of this Slurm is in mian; it has main: correct soda.toml"
    ]
    assert facts(sodad)["scope"]["in_scope"] == {"waiting": 0, "running": 0}


@pytest.mark.parametrize(
    "named", ["alice", "DOM\\alice", "alice@site.example", "grp:phys", "a/b", "j\u00fcrgen", "node$", "x%20"]
)
def test_what_slurm_and_directories_call_somebody_is_a_name(named: str) -> None:
    """`site plan` writes such names for soda.toml."""
    assert Settings.model_validate({"scope": {"users": [named]}}).scope.users == [named]


@pytest.mark.parametrize(
    "named", ["gpu*", "a,b", "", "^gpu$", " gpu", "gpu ", "a b", "-x", "a[1-3]", "a\nb", "a\u202eb", "'a'"]
)
def test_a_pattern_or_a_list_in_one_text_is_no_name(named: str) -> None:
    with pytest.raises(ValueError, match="plain names, one each"):
        Settings.model_validate({"scope": {"partitions": [named]}})


def test_a_name_is_listed_once() -> None:
    with pytest.raises(ValueError, match="'a' is there twice"):
        Settings.model_validate({"scope": {"accounts": ["a", "a"]}})


def test_agents_are_told_of_jobs_out_of_scope_on_their_nodes(slurm: FakeSlurm, daemon: Callable[..., Daemon]) -> None:
    slurm.submit(1, gpus=1, work_s=900.0, user="bob")
    slurm.submit(2, gpus=1, work_s=900.0, user="alice")
    slurm.advance(5)
    slurm.submit(3, gpus=4, work_s=900.0, user="bob")
    sodad = daemon(scope=ONLY_ALICE)
    sodad.run()
    assert sodad.cycles._context.guests.left_out == {"n1": (1,)}
    sodad.cycles.reload(settings())
    sodad.run()
    assert sodad.cycles._context.guests.left_out == {}


def test_ended_jobs_that_slurm_still_lists_do_not_count() -> None:
    jobs = {job_id: record(job_id, state=state) for job_id, state in enumerate(("PENDING", "RUNNING", "COMPLETED"), 1)}
    counts = count_scope(Scope(users=frozenset({"nobody"})), dict.fromkeys(jobs, LeftOut.USER), jobs, None)
    assert counts["left_out_by"] == {"user": 2}
    assert counts["not_in_scope"] == {"waiting": 1, "running": 1}
