"""At which stage a site stands, and what the next one waits for."""

from __future__ import annotations

import pytest

from slurm_soda.daemon.scope.stage_record import SETTING, note_stage
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.store.tables.scheduling import AdminSetting, AgentHeartbeat, VainPreemption
from slurm_soda.sodactl.site.roll_out import DAY_S, Standing, describe_standing, read_standing
from tests.sodactl.conftest import NOW_S, Bench, stored_job

PART = {"mode": "enforce", "scope": {"partitions": ["small"]}}


def standing(soda: Bench, **settings: object) -> Standing:
    with soda.store.read() as session:
        return read_standing(session, Settings.model_validate(settings), NOW_S)


def begin(soda: Bench, days: float, **settings: object) -> None:
    chosen = Settings.model_validate(settings)
    with soda.store.write() as session:
        note_stage(session, chosen.mode, chosen.scope, NOW_S - days * DAY_S)


def unmet(found: Standing) -> list[str]:
    return [one.text for one in found.conditions if not one.met]


def test_a_site_that_observes_waits_for_a_week_and_for_jobs(soda: Bench) -> None:
    soda.daemon(started_s=NOW_S - 3 * DAY_S)
    soda.cycle()
    found = standing(soda)
    assert (found.stage, found.ready, found.then) == ("observe", False, "sodactl mode advise")
    assert unmet(found) == ["3.0 of 7 days", "0 of 100 GPU jobs have ended"]
    soda.add(*(stored_job(1000 + at, end_s=NOW_S, state="COMPLETED") for at in range(100)))
    soda.daemon(started_s=NOW_S - 8 * DAY_S)
    assert standing(soda).ready


def test_what_goes_wrong_keeps_a_site_where_it_is(soda: Bench) -> None:
    soda.daemon()
    begin(soda, 5, mode="advise")
    assert standing(soda, mode="advise").ready
    soda.cycle(error="squeue did not answer")
    soda.add(AgentHeartbeat(node="n1", agent_id="a", seq=1, seen_s=NOW_S - 900, gpu_count=4, faults=[]))
    assert unmet(standing(soda, mode="advise")) == ["1 failed cycles in the last day", "1 silent agents"]


def test_another_scope_is_another_stage(soda: Bench) -> None:
    soda.daemon()
    begin(soda, 8, **PART)
    assert standing(soda, **PART).ready
    wider = {"mode": "enforce", "scope": {"partitions": ["big", "small"]}}
    found = standing(soda, **wider)
    assert (found.since_s, found.ready) == (None, False)
    begin(soda, 1, **wider)
    begin(soda, 0, mode="enforce", scope={"partitions": ["small", "big"]})
    assert standing(soda, **wider).since_s == NOW_S - DAY_S, "in whatever order they are named"


def test_a_part_waits_until_changes_are_taken_and_nobody_made_way_in_vain(soda: Bench) -> None:
    soda.daemon()
    begin(soda, 8, **PART)
    for at in range(10):
        soda.action(at + 1, state="failed" if at == 0 else "done")
    vain = VainPreemption(
        user="a", gpus=1, gpus_per_node=0, gpu_type="", times=1, job_id=3, noted_s=NOW_S - 5, until_s=NOW_S + 300
    )
    soda.add(vain)
    assert unmet(standing(soda, **PART)) == [
        "1 of 10 changes refused in the last day",
        "preempted in vain lately for 1 requests",
    ]


@pytest.mark.parametrize(("since_s", "met"), [(600.0, True), (900.0, False)])
def test_jobs_out_of_scope_wait_no_longer_than_before(soda: Bench, since_s: float, met: bool) -> None:
    soda.daemon()
    begin(soda, 8, **PART)
    for at in range(60):
        submit_s = NOW_S - (10 if at % 2 else 5) * DAY_S + at
        waited_s = 600.0 if at % 2 else since_s
        soda.add(stored_job(5000 + at, partition="big", submit_s=submit_s, first_start_s=submit_s + waited_s))
    found = standing(soda, **PART)
    assert found.ready is met
    (waits,) = [one.text for one in found.conditions if "mean wait" in one.text]
    assert waits.startswith("mean wait out of scope 10 min 00 s before, 1")


def test_the_last_stage_waits_for_nothing(soda: Bench) -> None:
    soda.daemon()
    found = standing(soda, mode="enforce")
    assert (found.stage, found.conditions, describe_standing(found)) == (
        "all",
        (),
        "enforce on all jobs: the last stage",
    )


def test_the_stage_is_recorded_once(soda: Bench) -> None:
    begin(soda, 5, **PART)
    begin(soda, 2, **PART)
    with soda.store.read() as session:
        known = session.get(AdminSetting, SETTING)
    assert known is not None
    assert known.changed_s == NOW_S - 5 * DAY_S
    assert len(known.value) < 64
