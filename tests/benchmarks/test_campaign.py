"""The campaign's pure parts: its schedule, what it says of recorded replies, and its report."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks.campaign import __main__ as campaign
from benchmarks.campaign import faults, hostile, leftovers, load, report
from benchmarks.campaign.__main__ import CampaignSettings
from benchmarks.campaign.invariants import LookChecks, RoundBook, check_accounting, check_ended, check_trail
from benchmarks.campaign.load import CampaignJob
from benchmarks.campaign.observation import AccountedRun, Seen, parse_accounting
from benchmarks.campaign.round import RoundRecord, RoundRunner
from benchmarks.campaign.schedule import FAULTS, LOAD, Event, is_rough, kinds, round_events

STORE: dict[str, Any] = {
    "actions": [[3, 1, 3]], "open_actions": [], "open_preemptions": [], "preempted": [], "jobs": [],
    "cycle": [[9, "", "enforce"]], "agents": [["n1"], ["n2"]], "settings": [],
}  # fmt: skip


def said(text: str = "", status: int = 0) -> dict[str, object]:
    return {"status": status, "stdout": text}


def seen(squeue: str = "", sprio: str = "", at_s: float = 1000.0, status: int = 0, **changed: Any) -> Seen:
    document = {
        "squeue": said(squeue, status), "sprio": said(sprio), "sinfo": said("n1|idle|none\nn2|drained*|Duplicate jobid\n"),
        "at_s": at_s, "store": STORE, "sodad": ["S"], "lock_age_s": 1.0,
    }  # fmt: skip
    return Seen.parse(document | changed)


def book(*names: str, **about: Any) -> RoundBook:
    jobs = {name: CampaignJob(name, "alice", "train", 1000.0, job_id=7, **about) for name in names}
    return RoundBook(jobs, began_s=900.0)


def run(state: str = "COMPLETED", name: str = "a", **about: Any) -> AccountedRun:
    values = {"submit_s": 1000.0, "start_s": 1001.0, "end_s": 1009.0, "restarts": 0} | about
    return AccountedRun(7, name, "alice", state, **values)


@cache
def many_events() -> tuple[Event, ...]:
    return round_events(1, 1, 20_000)


def test_a_schedule_follows_from_seed_and_round() -> None:
    first = round_events(3, 1, 300)
    assert first == round_events(3, 1, 300)
    assert first != round_events(4, 1, 300) != round_events(3, 3, 300)
    assert [event.at_s for event in first] == sorted(event.at_s for event in first)
    assert all(0 < event.at_s < 300 for event in first)
    assert [Event.from_dict(json.loads(json.dumps(event.to_dict()))) for event in first] == list(first)


def test_a_campaign_of_four_hours_kills_often_enough() -> None:
    """Rounds of 240 s that take 6 minutes: 40 in four hours."""
    events = [event for number in range(40) for event in round_events(1, number, 240)]
    kills = {"sodad": 0, "agent": 0, "slurmctld": 0}
    for event in events:
        target, times = faults.kills(event)
        if target in kills:
            kills[target] += times
    assert kills["sodad"] >= 1000
    assert kills["slurmctld"] >= 100
    assert kills["agent"] + 0.5 * kinds(events)["hook"] >= 500
    assert set(kinds(events)) == set(LOAD) | set(FAULTS)


def test_slurm_is_only_hurt_in_rough_rounds() -> None:
    assert not is_rough(0)
    assert not any(FAULTS[event.kind].rough for event in round_events(1, 0, 3000) if event.kind in FAULTS)


@pytest.mark.parametrize("kind", sorted(set(FAULTS) - {"hostile"}))
def test_every_fault_is_a_script(kind: str) -> None:
    scripts = {faults.fault(event).script for event in many_events() if event.kind == kind}
    assert scripts
    for script in list(scripts)[:6]:
        assert "{for_s}" not in script
        subprocess.run(["sh", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize("script", [faults.HEAL_CONTROLLER, faults.HEAL_NODE, faults.HOOK_WRAPPER, faults.MEND_STORE])
def test_scripts_can_be_read_by_a_shell(script: str) -> None:
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize("attempt", sorted(hostile.ATTEMPTS))
def test_every_attempt_can_be_read_by_a_shell(attempt: str) -> None:
    subprocess.run(["sh", "-n"], input=hostile.ATTEMPTS[attempt].command, text=True, check=True)


def test_every_submission_is_a_command_line() -> None:
    events = {event.kind: event for event in round_events(1, 0, 1200) if event.kind in LOAD and load.submits(event)}
    assert set(events) == set(LOAD) - {"cancel", "requeue"}
    for kind, event in events.items():
        wanted = load.submission(event, "r0-1")
        assert wanted.argv[0] == (kind if kind in ("srun", "salloc") else "sbatch")
        assert "--job-name=r0-1" in wanted.argv
        assert wanted.script.startswith("#!") != wanted.interactive
    assert load.submission(events["array"], "x").records == events["array"].values["tasks"]


def test_a_quiet_cluster_violates_nothing() -> None:
    checks = LookChecks(book("a"), 12.0)
    assert checks.check(seen("7|RUNNING|None|alice|990|1001|a\n", "8 0\n9 12\n")) == []


@pytest.mark.parametrize(
    ("line", "about", "invariant"),
    [
        ("7|PENDING|JobHeldAdmin|alice|990|N/A|a", {}, "held"),
        ("7|RUNNING|None|alice|990|1001|a", {"held": True}, "started"),
        ("7|RUNNING|None|alice|990|1001|a", {"not_before_s": 1020.0}, "started"),
        ("7|RUNNING|None|bob|990|1001|a", {}, "nobody's job"),
        ("8|PENDING|Priority|root|990|N/A|b|c", {}, "nobody's job"),
    ],
)
def test_jobs_are_as_their_owners_want(line: str, about: dict[str, Any], invariant: str) -> None:
    found = LookChecks(book("a", **about), 12.0).check(seen(line + "\n"))
    assert [violation.invariant for violation in found] == [invariant]


def test_site_factors_are_neither_negative_nor_stale() -> None:
    checks = LookChecks(book(), 12.0)
    assert [v.invariant for v in checks.check(seen(sprio="7 -1\n"))] == ["negative SiteFactor"]
    assert checks.check(seen(sprio="7 5\n", at_s=1050.0, lock_age_s=40.0)) == []
    assert [v.invariant for v in checks.check(seen(sprio="7 5\n", at_s=1060.0, lock_age_s=50.0))] == [
        "stale SiteFactor"
    ]
    silent = seen(sprio="7 5\n", at_s=1061.0, status=1)
    assert checks.check(silent) == []
    assert checks.check(seen(sprio="7 5\n", at_s=1070.0, lock_age_s=60.0)) == [], "nobody could release them meanwhile"


def test_a_sodad_whose_clock_is_set_shows_life_by_what_it_dates() -> None:
    checks = LookChecks(book(), 12.0)
    for at_s in range(1000, 1100, 5):
        assert checks.check(seen(sprio="7 5\n", at_s=float(at_s), lock_age_s=18_001.0)) == []
    for at_s in range(1100, 1145, 5):
        assert checks.check(seen(sprio="7 5\n", at_s=float(at_s), lock_age_s=18_001.0 + at_s - 1100)) == []
    dead = seen(sprio="7 5\n", at_s=1150.0, lock_age_s=18_051.0)
    assert [violation.invariant for violation in checks.check(dead)] == ["stale SiteFactor"]


@pytest.mark.parametrize(
    ("changed", "invariant"),
    [
        ({"actions": [[3, 1, 4]]}, "gap in the audit trail"),
        ({"agents": [["n1"], ["n9"]]}, "forged report"),
        ({"settings": [["mode", "observe"]]}, "changed settings"),
    ],
)
def test_the_store_is_whole(changed: dict[str, Any], invariant: str) -> None:
    found = LookChecks(book(), 12.0).check(seen(store=STORE | changed))
    assert [violation.invariant for violation in found] == [invariant]
    assert LookChecks(book(), 12.0).check(seen(store={"error": "locked"})) == []


def test_drained_nodes_are_told() -> None:
    assert seen().drained == {"n2": "Duplicate jobid"}


def test_accounting_has_every_job_with_a_good_end() -> None:
    assert check_accounting(book("a"), [run("PREEMPTED"), run()]) == []
    assert [v.invariant for v in check_accounting(book("a"), [])] == ["lost"]
    assert [v.invariant for v in check_accounting(book("a"), [run("FAILED")])] == ["bad end"]
    assert [v.invariant for v in check_accounting(book("a", not_before_s=1005.0), [run()])] == ["started"]
    assert check_accounting(book("a", cancelled=True), [run("CANCELLED")]) == []


def test_what_a_killed_slurmctld_forgets_is_counted_apart() -> None:
    hurt = book("a")
    hurt.hurt_s.append(1004.0)
    assert check_accounting(hurt, []) == check_accounting(hurt, [run("FAILED")]) == []
    assert check_accounting(hurt, [run("TIMEOUT", end_s=1600.0)]) == [], (
        "its end was forgotten, and it has a time limit"
    )
    assert sum(hurt.forgiven.values()) == 3
    assert [v.invariant for v in check_accounting(hurt, [run("FAILED", end_s=1600.0)])] == ["bad end"]
    hurt.hurt_s = [2000.0]
    assert [v.invariant for v in check_accounting(hurt, [])] == ["lost"]


def test_the_audit_trail_equals_accounting() -> None:
    preempted = STORE | {"preempted": [[7, 0]], "jobs": [[7, "COMPLETED", 1, 1009.0]]}
    assert check_trail(book("a"), [run(restarts=1)], preempted, exact=True) == []
    assert [v.invariant for v in check_trail(book("a"), [run()], preempted, exact=False)] == ["requeues differ"]
    assert [v.invariant for v in check_trail(book("a"), [run(restarts=2)], preempted, exact=True)] == [
        "requeues differ"
    ]
    assert check_trail(book("a"), [run(restarts=2)], preempted, exact=False) == []
    assert check_trail(book("a", requeued=1), [run(restarts=2)], preempted, exact=True) == []
    failed = check_trail(book("a"), [run("FAILED", restarts=1)], preempted, exact=True)
    assert [v.invariant for v in failed] == ["states differ"]
    still = STORE | {"open_actions": [[1, 7, "requeue", "sent", ""]], "open_preemptions": [[1, 7, "signalled"]]}
    found = check_trail(book("a"), [run()], still | {"preempted": [[5, 0], [5, 0]]}, exact=True)
    assert [v.invariant for v in found] == ["action left open", "preemption left open", "a run preempted twice"]


def test_accounting_is_read_whatever_the_names_are() -> None:
    text = "7|a|b|alice|CANCELLED by 2001|1000|1001|1009|2\n7.batch|x\n8|c|bob|PENDING|1000|Unknown|Unknown|0\n"
    first, second = parse_accounting(text)
    assert (first.name, first.user, first.state, first.restarts) == ("a|b", "alice", "CANCELLED", 2)
    assert (second.start_s, second.end_s) == (None, None)


def test_jobs_that_do_not_end_are_told() -> None:
    jobs = seen("7|PENDING|BeginTime|alice|990|N/A|a\n8|COMPLETED|None|alice|990|1|b\n").jobs
    assert ["7 (a)" in str(violation) for violation in check_ended(jobs or ())] == [True]


def test_a_job_that_runs_too_long_is_known() -> None:
    lines = "7|RUNNING|None|alice|990|1001|a\n8|PENDING|Priority|alice|990|N/A|b\n9|COMPLETED|None|alice|990|1001|c\n"
    jobs = seen(lines).jobs or ()
    assert [job.shown_id for job in jobs if job.started_before(1002.0)] == ["7"]
    assert not any(job.started_before(1001.0) for job in jobs)


def test_jobs_of_earlier_rounds_are_no_concern() -> None:
    assert LookChecks(book(), 12.0).check(seen("6|COMPLETED|None|alice|890|891|old\n")) == []


def test_what_is_left_on_a_host_is_told() -> None:
    before: dict[str, Any] = {
        "cgroups": [],
        "files": ["/tmp/x"],
        "processes": [],
        "hooks": "",
        "mounts": ["/"],
        "tables": "",
        "qdiscs": "qdisc noqueue 0: dev eth0 root\n",
    }
    assert leftovers.check_left("n1", before, before) == []
    now = before | {
        "processes": [
            ["2001", "S", "soda-train"],
            ["0", "S", "/bin/sh /opt/slurm-soda/libexec/epilog"],
            ["2001", "Z", ""],
        ],
        "cgroups": ["/sys/fs/cgroup/cpuset/slurm_n1/uid_2001/job_7"],
        "files": [*before["files"], "/var/spool/slurm-soda/7.1.open", "/run/slurm-soda/wake"],
        "qdiscs": before["qdiscs"] + "qdisc htb 50da: dev eth0 root\n",
    }
    found = [violation.what.partition(" ")[0] for violation in leftovers.check_left("n1", before, now)]
    assert found == ["process", "process", "cgroup", "file", "qdisc"]
    assert leftovers.has_users_processes(now)
    assert not leftovers.has_users_processes(before)


def test_partitions_and_gres_are_as_before() -> None:
    slurm = {
        "partitions": said("PartitionName=gpu\n"),
        "reservations": said("No reservations\n"),
        "nodes": said("NodeName=n1 CPUAlloc=0 GresUsed=gpu:a100:0(IDX:N/A),cog:g0:0(IDX:N/A) X=1\n"),
    }
    assert leftovers.check_slurm(slurm, slurm) == []
    now = {
        "partitions": said("PartitionName=gpu\nPartitionName=gpu_cpu\n"),
        "reservations": slurm["reservations"],
        "nodes": said("NodeName=n1 CPUAlloc=0 GresUsed=gpu:a100:0(IDX:N/A),cog:g0:1(IDX:0) X=1\n"),
    }
    assert [v.invariant for v in leftovers.check_slurm(slurm, now)] == ["partitions differ", "left on n1"]


def record(**about: Any) -> dict[str, Any]:
    one = RoundRecord(5, 0, 1000.0, 360.0)
    one.kills.update({"sodad": 30, "agent": 9, "hooks": 8, "slurmctld": 6})
    one.ends.update({"COMPLETED": 40, "CANCELLED": 2})
    one.events.update({"kill-sodad": 25, "network": 3})
    return one.to_dict() | about


def test_the_report_counts_over_rounds(tmp_path: Path) -> None:
    for number in range(2):
        report.append_round(tmp_path, record(number=number, actions=100 * (number + 1)))
    with (tmp_path / report.ROUNDS).open("a") as file:
        file.write('{"seed": 5, "numb')  # interrupted
    rounds = report.read_rounds(tmp_path)
    assert len(rounds) == 2
    text = report.write_report(tmp_path, rounds).read_text()
    assert "seeds: 5, rounds: 2, hours: 0.20" in text
    assert "| sodad | 60 | 1000 |" in text
    assert "| agents and hooks | 34 | 500 |" in text
    assert "**violations: 0**" in text
    assert "made 200 changes" in text
    assert (tmp_path / "campaign.png").stat().st_size > 1000
    assert "- seed 5, round 0: lost: a" in report.page([record(violations=["lost: a"])])


def test_a_script_is_read_as_it_was_kept(tmp_path: Path) -> None:
    one, events = RoundRecord(5, 3, 1000.0), list(round_events(5, 3, 60))
    campaign.keep_script(tmp_path, events, one)
    assert campaign.read_script(campaign.script_path(tmp_path, one)) == (5, 3, events)


def test_an_unfinished_campaign_goes_on_and_a_whole_one_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []

    class Site:
        def __init__(self) -> None:
            self.cluster = self

        def down(self) -> None:
            pass

    def round_of(runner: RoundRunner, *_: object) -> RoundRecord:
        ran.append(runner.record.number)
        runner.record.took_s = 360.0
        runner.record.ends["COMPLETED"] = 1
        return runner.record

    monkeypatch.setattr(report, "draw", lambda *_: None)
    monkeypatch.setattr(campaign.CampaignSite, "up", lambda *_: Site())
    monkeypatch.setattr(campaign, "run_round", round_of)
    for hours, numbers in ((0.2, [0, 1]), (0.3, [0, 1, 2]), (0.3, [0, 1, 2])):
        assert campaign.campaign(CampaignSettings(hours, 5, 60.0, 1.0, "x", tmp_path), lambda _: None) == []
        assert ran == numbers
