"""Jobs that ended after their checkpoint while no sodad lived: requeued by others, as long as Slurm lists them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import select

from slurm_soda.daemon.store.tables.scheduling import Action, Job, Preemption
from slurm_soda.slurm_ext.errors import SlurmCommandError
from slurm_soda.slurm_ext.hints.flags import Hints

from .conftest import NOW_S, SUBMIT_S, Bench, record, stored_job

USR1 = Hints(checkpoint_signal="USR1", checkpoint_grace_s=30)
SAVED = record(7, state="FAILED", exit_code="3:0", end_s=NOW_S - 20, hints=USR1)
AUTOMATIC = ("release-lifts", "--unless-alive", "--json")


def preemption(job_id: int = 7, **values: object) -> Preemption:
    defaults: dict[str, object] = {
        "submit_s": SUBMIT_S, "restart": 0, "phase": "signalled", "created_s": NOW_S - 40, "deadline_s": NOW_S - 10,
        "updated_s": NOW_S - 40, "for_jobs": [8], "reason": "tiresias-las: 8 goes first",
    }  # fmt: skip
    return Preemption(job_id=job_id, **(defaults | values))


@pytest.fixture
def site(soda: Bench) -> Bench:
    """sodad asked 7 for its checkpoint, and was killed; 7 then saved its state and ended."""
    soda.slurm.queue = [SAVED]
    soda.daemon(pid=1)
    soda.add(stored_job(7, state="RUNNING", hints={"checkpoint": "USR1@30"}), preemption())
    soda.action(7, kind="signal", new={"Signal": "USR1"}, old={}, preemption_id=1)
    return soda


def states(site: Bench) -> tuple[str, list[tuple[str, str, float, int | None]]]:
    with site.store.read() as session:
        recorded = session.scalars(select(Action).where(Action.kind == "requeue"))
        actions = [(a.kind, a.state, a.submit_s, a.preemption_id) for a in recorded]
        return session.get_one(Preemption, 1).phase, actions


REQUEUED = ("requeued", [("requeue", "done", SUBMIT_S, 1)])


@pytest.mark.parametrize("command", [AUTOMATIC, ("release-lifts", "--json"), ("release-all", "--json")])
def test_it_is_requeued_once_and_recorded(site: Bench, command: tuple[str, ...]) -> None:
    row = next(row for row in site(*command).document["changes"] if row["kind"] == "requeue")
    assert (row["job_id"], row["error"]) == (7, "")
    assert (site.slurm.requeued, states(site)) == ([7], REQUEUED)
    site(*command)
    assert site.slurm.requeued == [7]
    assert any("saved its state" in change["reason"] for change in site("explain", "7", "--json").document["changes"])


def test_a_lift_that_it_had_does_not_come_back_with_it(site: Bench) -> None:
    site.action(7, new={"SiteFactor": "500"})
    site.slurm.factors = {7: 500}
    assert "1 job requeued after a checkpoint" in site("release-lifts").out
    assert site.slurm.factors == {7: 0}


@pytest.mark.parametrize(
    "shown",
    [
        replace(SAVED, state="COMPLETED", exit_code="0:0"),
        replace(SAVED, state="CANCELLED"),
        replace(SAVED, state="TIMEOUT"),
        replace(SAVED, restarts=1, submit_s=NOW_S - 30),
        replace(SAVED, submit_s=SUBMIT_S - 5),
        replace(SAVED, state="RUNNING"),
        replace(SAVED, hints=Hints(checkpoint_signal="TERM")),
    ],
    ids=["success", "cancelled", "time limit", "next run", "another job", "runs", "TERM"],
)
@pytest.mark.parametrize("command", [AUTOMATIC, ("release-all",)])
def test_others_are_not(site: Bench, shown: object, command: tuple[str, ...]) -> None:
    site.slurm.queue = [shown]  # type: ignore[list-item]  # a table of records
    if getattr(shown, "hints", None) != USR1:  # signalled by hand alone: a requeue sends TERM itself
        with site.store.write() as session:
            session.get_one(Preemption, 1).phase = "intended"
    unfinished = command == ("release-all",) and getattr(shown, "state", None) == "RUNNING"
    site(*command, status=1 if unfinished else 0)
    assert site.slurm.requeued == []


@pytest.mark.parametrize("command", [AUTOMATIC, ("release-all",)])
def test_one_that_had_ended_before_its_signal_was_to_be_sent_is_not(site: Bench, command: tuple[str, ...]) -> None:
    """Whether Slurm took the signal nobody knows."""
    site.slurm.queue = [replace(SAVED, end_s=NOW_S - 60)]
    with site.store.write() as session:
        session.get_one(Preemption, 1).phase = "intended"
    site(*command)
    assert site.slurm.requeued == []


@pytest.mark.parametrize(
    ("command", "started_s", "requeued"),
    [
        (AUTOMATIC, 0.0, []),
        (("release-lifts",), 0.0, []),
        (("release-all",), 0.0, []),
        (("release-all",), NOW_S - 30, [7]),
    ],
    ids=["timer", "release-lifts", "release-all", "slurmctld was down"],
)
def test_one_that_ran_on_and_failed_hours_later_is_not(
    site: Bench, command: tuple[str, ...], started_s: float, requeued: list[int]
) -> None:
    site.slurm.started_s = started_s
    with site.store.write() as session:
        row = session.get_one(Preemption, 1)
        row.created_s = row.updated_s = NOW_S - 7200
        row.deadline_s = NOW_S - 7170
    site(*command)
    assert site.slurm.requeued == requeued


def test_a_sodad_that_lives_requeues_it_itself(site: Bench) -> None:
    site.pids.add(1)
    site(*AUTOMATIC)
    assert site("release-all", "--json", status=1).document["unfinished"] == [7], "it has not done so yet"
    assert site.slurm.requeued == []


def test_it_is_waited_for_while_its_grace_runs(site: Bench) -> None:
    site.slurm.queue = [replace(SAVED, state="RUNNING")]
    assert site(*AUTOMATIC).document["released"] is True
    with site.store.write() as session:
        for row in session.query(Job).all():
            row.last_seen_s = NOW_S
        session.get_one(Preemption, 1).deadline_s = NOW_S + 5
        session.get_one(Preemption, 1).created_s = NOW_S - 2000
        session.execute(Action.__table__.delete())  # type: ignore[attr-defined]  # a site that never ordered
    assert site(*AUTOMATIC).document["released"] is True
    with site.store.write() as session:
        session.get_one(Preemption, 1).deadline_s = NOW_S - 121
    assert site(*AUTOMATIC).document["released"] is False


def test_what_slurm_refuses_stays_to_be_done(site: Bench) -> None:
    site.slurm.refuse = {7: "Requested operation is presently disabled"}
    assert site(*AUTOMATIC, status=1).document["complete"] is False
    site.slurm.refuse = {}
    assert site(*AUTOMATIC).document["complete"] is True
    assert states(site)[0] == "requeued"


@pytest.mark.parametrize("command", [AUTOMATIC, ("release-all", "--json")])
def test_who_comes_second_says_nothing_of_it(
    site: Bench, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another command requeued it between this one's look at Slurm and its requeue."""
    requeue = site.slurm.requeue

    def second(job_id: int, *, ended: bool = False) -> None:
        requeue(job_id, ended=ended)
        raise SlurmCommandError(("scontrol",), 1, "Job is pending execution for job 7", "")

    monkeypatch.setattr(site.slurm, "requeue", second)
    row = next(row for row in site(*command).document["changes"] if row["kind"] == "requeue")
    assert row["error"] == ""
    assert states(site)[1] == [("requeue", "void", SUBMIT_S, 1)]


def test_a_dry_run_shows_it(site: Bench) -> None:
    assert "requeue" in site("release-all", "-n").out
    assert site.slurm.requeued == []


def test_commands_name_the_remedy(site: Bench) -> None:
    assert "scontrol requeue JOB" in site("status", status=3).err
    assert "`scontrol requeue 7`" in site("explain", "7").out
    found = {row["check"]: row for row in site("doctor", "--json", status=1).document["findings"]}
    assert "scontrol requeue JOB" in found["preemptions"]["remedy"]
    site.pids.add(1)
    assert "sodad requeues it" in site("explain", "7").out
    assert site("status").err == ""


def test_explain_says_that_a_success_was_not_run_again(site: Bench) -> None:
    site.slurm.queue = [replace(SAVED, state="COMPLETED", exit_code="0:0")]
    with site.store.write() as session:
        session.get_one(Preemption, 1).phase = "lost"
    assert "If it had not done its work: `scontrol requeue 7`" in site("explain", "7").out
    site.slurm.queue = [replace(site.slurm.queue[0], array_job_id=7, array_task="2")]
    assert "If it had not done its work: `scontrol requeue 7_2`" in site("explain", "7").out


def asked(site: Bench) -> None:
    """7 was asked for its checkpoint 40 s ago and has 20 s left."""
    site.slurm.queue = [replace(SAVED, state="RUNNING")]
    with site.store.write() as session:
        session.get_one(Preemption, 1).deadline_s = NOW_S + 20


def ends_after(site: Bench, seconds: int, ended: Callable[[], None]) -> list[float]:
    waited_s: list[float] = []

    def sleep(more_s: float) -> None:
        waited_s.append(more_s)
        if sum(waited_s) == seconds:
            ended()

    site.sleep = sleep
    return waited_s


def test_release_all_waits_for_a_checkpoint_and_requeues_the_job(site: Bench) -> None:
    asked(site)
    waited_s = ends_after(site, 12, lambda: site.slurm.queue.__setitem__(0, SAVED))
    shown = site("release-all")
    assert (site.slurm.requeued, states(site)) == ([7], REQUEUED)
    assert sum(waited_s) < 20
    assert "waiting for jobs that save their state (7): 30 s at most" in shown.err
    assert "waiting for jobs that save their state (7): 20 s at most" in shown.err


def test_a_living_sodad_requeues_it_and_release_all_leaves_it_to_slurm(site: Bench) -> None:
    asked(site)
    site.pids.add(1)
    back = replace(SAVED, state="PENDING", reason="BeginTime", restarts=1, submit_s=NOW_S - 3, eligible_s=NOW_S + 118)
    ends_after(site, 5, lambda: site.slurm.queue.__setitem__(0, back))
    document = site("release-all", "--json").document
    assert document["unfinished"] == []
    assert [row["new"] for row in document["changes"]] == [{"SiteFactor": "0"}]
    assert site.slurm.requeued == []


def test_release_all_names_jobs_that_do_not_end_and_the_next_one_requeues_them(site: Bench) -> None:
    asked(site)
    waited_s = ends_after(site, 10_000, lambda: None)
    shown = site("release-all", status=1)
    assert "not over yet: 7" in shown.err
    assert "run `sodactl release-all` again" in shown.err
    assert 20 <= sum(waited_s) <= 40
    assert site("release-all", "-n", "--json").document["unfinished"] == [7]
    site.slurm.queue = [SAVED]
    site("release-all")
    assert site.slurm.requeued == [7]


def test_a_job_that_release_all_requeues_gets_the_request_of_its_user_back(site: Bench) -> None:
    wrote, asked_for = {"CPUsPerTask": "12", "NumCPUs": "12"}, {"CPUsPerTask": "8", "NumCPUs": "8"}
    site.action(kind="rewrite", new=wrote, old=asked_for)
    site.slurm.queue = [replace(SAVED, cpus=12)]
    site("release-all")
    assert (site.slurm.requeued, site.slurm.queue[0].cpus) == ([7], 8)
    with site.store.read() as session:
        assert session.scalars(select(Action.state).where(Action.kind == "rewrite")).all() == ["undone"]


def test_a_requeued_job_that_leaves_its_nodes_gets_its_request_back_when_it_is_in_the_queue(site: Bench) -> None:
    site.action(kind="rewrite", new={"NumCPUs": "12"}, old={"NumCPUs": "8"})
    leaving = replace(SAVED, state="COMPLETING", restarts=1, cpus=12, submit_s=NOW_S - 3)
    site.slurm.queue = [leaving]
    back = replace(leaving, state="PENDING", reason="BeginTime", eligible_s=NOW_S + 118)
    ends_after(site, 4, lambda: site.slurm.queue.__setitem__(0, back))
    site("release-all")
    assert site.slurm.queue[0].cpus == 8
