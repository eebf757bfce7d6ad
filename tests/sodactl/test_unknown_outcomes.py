"""Changes whose outcome nobody recorded: compared with Slurm, settled, and undone like any other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import select

from slurm_soda.daemon.store.settlement import SETTLE_AFTER_S
from slurm_soda.daemon.store.tables.scheduling import Action
from slurm_soda.slurm_ext.client import SlurmJob

from .conftest import NOW_S, SUBMIT_S, Bench, record, stored_job

OVER_S = NOW_S - SETTLE_AFTER_S - 1
"""Whoever recorded a change then has long ended."""


@pytest.fixture
def site(soda: Bench) -> Bench:
    """Job 7 waits with SiteFactor 500."""
    soda.daemon()
    soda.add(stored_job(7))
    soda.slurm.queue = [record(7)]
    soda.slurm.factors = {7: 500}
    return soda


def states(soda: Bench) -> list[tuple[str, str]]:
    with soda.store.read() as session:
        return [(action.kind, action.state) for action in session.scalars(select(Action).order_by(Action.id))]


@pytest.mark.parametrize("state", ["intended", "sent"])
@pytest.mark.parametrize("argv", [["1"], ["--job", "7"], ["--last", "1"]])
def test_a_change_that_slurm_took_without_an_answer_is_undone(site: Bench, state: str, argv: list[str]) -> None:
    site.action(state=state)
    assert site("undo", *argv, "-n", "--json").document["actions"][0]["outcome"] == "would undo"
    assert states(site) == [("order", state)], "a dry run records nothing"
    site("undo", *argv)
    assert site.slurm.factors == {7: 0}
    assert states(site) == [("order", "undone"), ("undo", "done")]


@pytest.mark.parametrize("epoch_id", [1, None])
def test_a_change_that_slurm_does_not_show_is_void_once_nobody_can_be_at_it(site: Bench, epoch_id: int | None) -> None:
    site.action(state="sent", new={"SiteFactor": "900"}, old={"SiteFactor": "500"}, epoch_id=epoch_id)
    shown = site("undo", "1", "--json", status=1).document["actions"][0]
    assert "Slurm has not answered and does not show it" in shown["reason"]
    assert states(site) == [("order", "sent")], "it may still come"
    site.action(state="sent", new={"SiteFactor": "800"}, old={"SiteFactor": "500"}, created_s=OVER_S, epoch_id=epoch_id)
    assert "it is void" in site("undo", "2", "--json", status=1).document["actions"][0]["reason"]
    assert states(site) == [("order", "sent"), ("order", "void")]
    assert not site.slurm.sent


def test_two_open_changes_do_not_refuse_each_other(site: Bench) -> None:
    site.action(state="sent", new={"SiteFactor": "300"}, old={"SiteFactor": "0"}, created_s=OVER_S)
    site.action(state="sent", new={"SiteFactor": "500"}, old={"SiteFactor": "300"}, created_s=OVER_S + 5)
    site("undo", "2")
    site("undo", "1")
    assert site.slurm.factors == {7: 0}
    assert states(site)[:2] == [("order", "undone"), ("order", "undone")]


def test_of_two_open_changes_the_one_that_slurm_never_took_is_void(site: Bench) -> None:
    site.action(state="sent", new={"SiteFactor": "300"}, old={"SiteFactor": "0"}, created_s=OVER_S)
    site.action(state="sent", new={"SiteFactor": "500"}, old={"SiteFactor": "0"}, created_s=OVER_S + 5)
    site("undo", "--job", "7")
    assert states(site) == [("order", "void"), ("order", "undone"), ("undo", "done")]
    assert site.slurm.factors == {7: 0}


def test_an_open_change_that_slurm_does_not_show_bars_no_other(site: Bench) -> None:
    site.action()
    site.action(state="sent", new={"SiteFactor": "900"}, old={"SiteFactor": "500"})
    site("undo", "1")
    assert site.slurm.factors == {7: 0}


def held(job: SlurmJob) -> SlurmJob:
    return replace(job, reason="JobHeldUser")


def test_where_slurm_does_not_tell_open_changes_can_be_undone_and_are_settled_later(site: Bench) -> None:
    site.slurm.queue = [held(job) for job in site.slurm.queue]
    site.action(state="sent", created_s=OVER_S)
    site.action(state="sent", new={"SiteFactor": "900"}, old={"SiteFactor": "500"}, created_s=OVER_S + 5)
    site("undo", "--job", "7")
    assert site.slurm.factors == {7: 0}
    assert states(site)[:2] == [("order", "undone"), ("order", "undone")]


@pytest.mark.parametrize(("slurm", "outcome", "undo"), [("taken", "undone", "done"), ("lost", "failed", "sent")])
def test_an_undo_that_ran_out_of_time_ends_as_slurm_shows_it(site: Bench, slurm: str, outcome: str, undo: str) -> None:
    site.action()
    site.slurm.unanswered = slurm  # type: ignore[assignment]
    (row,) = site("undo", "1", "--json", status=None).document["actions"]
    assert row["outcome"] == outcome
    assert states(site) == [("order", "undone" if slurm == "taken" else "done"), ("undo", undo)]
    assert site.slurm.factors == {7: 0 if slurm == "taken" else 500}
    site.slurm.unanswered = ""
    site("undo", "--job", "7", status=None)
    assert states(site)[0] == ("order", "undone")
    assert site.slurm.factors == {7: 0}


def test_an_undo_that_was_killed_settles_what_it_took_back(site: Bench) -> None:
    site.action()
    undo = {"new": {"SiteFactor": "0"}, "old": {"SiteFactor": "500"}, "kind": "undo", "state": "intended"}
    site.action(epoch_id=None, **undo)
    site.slurm.factors = {7: 0}
    assert site("undo", "--job", "7").out == "no change stands that could be undone\n"
    assert states(site) == [("order", "undone"), ("undo", "done")]


def test_release_all_restores_a_request_whose_change_got_no_answer(site: Bench) -> None:
    site.slurm.queue = [record(7, cpus=3, cpus_per_task=3), record(8, cpus=20)]
    wrote, asked = {"CPUsPerTask": "3", "NumCPUs": "3"}, {"CPUsPerTask": "20", "NumCPUs": "20"}
    for job_id in (7, 8):
        site.action(job_id, kind="rewrite", state="sent", new=wrote, old=asked)
    assert "NumCPUs=20" in site("release-all", "-n").out
    site("release-all")
    assert [job.cpus for job in site.slurm.queue] == [20, 20]
    assert states(site)[:2] == [("rewrite", "undone"), ("rewrite", "sent")], "Slurm never took the second"


@pytest.mark.parametrize(("slurm", "state"), [("taken", "done"), ("lost", "sent")])
def test_a_release_that_ran_out_of_time_ends_as_slurm_shows_it(site: Bench, slurm: str, state: str) -> None:
    site.slurm.unanswered = slurm  # type: ignore[assignment]
    site("release-all", status=0 if slurm == "taken" else 1)
    assert states(site) == [("release", state)]


def test_a_change_of_an_earlier_job_of_this_id_is_void(site: Bench) -> None:
    site.action(state="sent", submit_s=SUBMIT_S - 5)
    site("release-all")
    assert states(site)[0] == ("order", "void")
