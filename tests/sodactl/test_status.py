"""``sodactl status``: alive or not, what went wrong, how long the parts take."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_soda.daemon.store.tables.scheduling import AdminSetting, AgentHeartbeat, Preemption, Standby
from slurm_soda.slurm_ext.command_runner import CompletedCommand

from .conftest import NOW_S, SUBMIT_S, Bench, stored_job

KEYS = {"now_s", "daemon", "mode", "policy", "last_cycle", "last_error", "breaker", "jobs", "preemptions",
        "changes_last_hour", "expected_starts", "shares", "nodes", "private", "standbys", "warnings", "scope"}  # fmt: skip


def test_a_site_without_a_store_was_never_started(soda: Bench) -> None:
    soda.config.write_text('[store]\nurl = "sqlite:////nonexistent/soda.db"\n[api]\nport = 1\n')
    soda.commands = lambda argv, **_: CompletedCommand(tuple(argv), 0, b"SlurmctldHost[0] = ctl(127.0.0.1)\n", b"")
    shown = soda("status", "--json", status=3)
    assert set(shown.document) == KEYS
    assert shown.document["daemon"]["state"] == "never started"
    assert "does not exist" in shown.document["warnings"][0]
    assert "never started: Slurm schedules alone" in soda("status", status=3).out


def test_a_live_daemon(soda: Bench) -> None:
    soda.daemon()
    soda.cycle(pending=3, running=2, planned=4, sent=4, timings_s={"observe": 0.2, "decide": 0.05})
    soda.add(
        stored_job(1, note={"queue": 0}), stored_job(2, note={"queue": 0}, state="RUNNING"),
        stored_job(3, note={"queue": 1}),
        stored_job(4, end_s=NOW_S, state="COMPLETED", note={"queue": 1}),
    )  # fmt: skip
    document = soda("status", "--json").document
    assert set(document) == KEYS
    assert document["daemon"] == {
        "alive": True, "state": "running", "epoch": 1, "host": "ctl", "pid": 4242, "version": "0.1.0",
        "started_s": NOW_S - 500, "heartbeat_age_s": 1.0,
    }  # fmt: skip
    assert (document["mode"], document["policy"]) == ("observe", "soda")
    assert document["jobs"] == {
        "states": {"PENDING": 2, "RUNNING": 1},
        "queues": {"1": {"PENDING": 1, "RUNNING": 1}, "2": {"PENDING": 1}},
    }
    assert document["last_cycle"]["age_s"] == 2.0
    out = soda("status").out
    for text in ("running (epoch 1, pid 4242 on ctl", "2.0 s ago, 250 ms: 3 pending, 2 running", "queue 1"):
        assert text in out


def test_the_scope_of_the_last_cycle(soda: Bench) -> None:
    soda.daemon()
    scope = {
        "in_scope": {"waiting": 3, "running": 1},
        "not_in_scope": {"waiting": 7, "running": 2},
        "would_have": {"start": 2, "preempt": 1, "order": 0},
    }
    soda.cycle(facts={"scope": scope})
    assert soda("status", "--json").document["scope"] == scope
    line = "3 waiting and 1 running jobs in scope, 7 and 2 only observed; of these would have been: 2 put first, 1 preempted"
    assert line in soda("status").out


@pytest.mark.parametrize(
    ("epoch", "alive", "state"),
    [
        ({}, True, "running"),
        ({"heartbeat_s": NOW_S - 3600}, False, "stalled"),
        ({"heartbeat_s": NOW_S - 3600, "pid": 1}, False, "gone"),
        ({"ended_s": NOW_S - 5}, False, "stopped"),
        ({"pid": 1}, False, "gone"),
        ({"pid": 1, "host": "another"}, True, "running"),
    ],
    ids=["beats", "silent", "silent and killed", "stopped", "killed on this host", "on another host"],
)
def test_alive_or_not(soda: Bench, epoch: dict[str, Any], alive: bool, state: str) -> None:
    soda.daemon(**epoch)
    daemon = soda("status", "--json", status=0 if alive else 3).document["daemon"]
    assert (daemon["alive"], daemon["state"]) == (alive, state)


def test_an_error_is_said_and_remembered(soda: Bench) -> None:
    soda.daemon()
    soda.cycle(error="squeue did not answer in time; is slurmctld up?", started_s=NOW_S - 300)
    assert "failed: squeue did not answer in time" in soda("status").out
    soda.cycle()
    out = soda("status").out
    assert "last error" in out
    assert "5 min 00 s ago: squeue did not answer in time" in out
    assert soda("status", "--json").document["last_error"]["age_s"] == 300


def test_the_setting_overrides_the_file(soda: Bench) -> None:
    soda.daemon()
    soda.add(AdminSetting(key="mode", value="enforce", changed_s=NOW_S, changed_by="root"))
    assert soda("status", "--json").document["mode"] == "enforce"


def test_faults_silence_and_preemptions(soda: Bench) -> None:
    soda.daemon()
    soda.add(
        AgentHeartbeat(node="n1", agent_id="a", seq=1, seen_s=NOW_S - 3, gpu_count=4, faults=[]),
        AgentHeartbeat(node="n2", agent_id="b", seq=1, seen_s=NOW_S - 3, gpu_count=4, faults=["NVML: \x1b[31mdriver lost"]),
        AgentHeartbeat(node="n3", agent_id="c", seq=1, seen_s=NOW_S - 300, gpu_count=4, faults=[]),
        Preemption(job_id=9, submit_s=SUBMIT_S, restart=0, phase="signalled", created_s=NOW_S - 4, deadline_s=NOW_S + 6,
                   updated_s=NOW_S, for_jobs=[11, 12], reason="[bold]2 GPUs for job 11"),
        Preemption(job_id=8, submit_s=SUBMIT_S, restart=0, phase="done", created_s=NOW_S - 4, deadline_s=NOW_S,
                   updated_s=NOW_S, for_jobs=[], reason=""),
    )  # fmt: skip
    document = soda("status", "--json").document
    assert [(n["node"], n["silent"], bool(n["faults"])) for n in document["nodes"]] == [
        ("n1", False, False), ("n2", False, True), ("n3", True, False)]  # fmt: skip
    assert [p["job_id"] for p in document["preemptions"]] == [9]
    out = soda("status").out
    for text in ("3 seen, 1 silent, 1 with faults", "driver lost", "[bold]2 GPUs for job 11", "11 12", "signalled"):
        assert text in out
    assert "\x1b" not in out


def test_timings_leave_failed_cycles_out(soda: Bench) -> None:
    soda.daemon()
    for seconds in (0.1, 0.3, 0.2):
        soda.cycle(timings_s={"observe": seconds, "decide": 0.0})
    soda.cycle(timings_s={"observe": 20.0}, error="squeue did not answer")
    parts = soda("status", "--timings", "--json").document["timings"]
    assert parts["observe"] == {"min_s": 0.1, "median_s": 0.2, "max_s": 0.3, "last_s": 0.2, "cycles": 3}
    assert set(parts) == {"observe", "decide", "total"}
    out = soda("status", "--timings").out
    for text in ("observe", "100 ms", "200 ms", "300 ms", "total"):
        assert text in out


def test_no_cycle_no_timings(soda: Bench) -> None:
    soda.daemon()
    assert "no timings" in soda("status", "--timings").out


@pytest.mark.parametrize(
    ("facts", "state", "said"),
    [
        ({}, "closed", "breaker             closed"),
        ({"breaker_open_until_s": NOW_S + 42, "breaker_cause": "squeue hangs"}, "open",
         "open for another 42.0 s, only observing: squeue hangs"),
        ({"breaker_open_until_s": NOW_S - 1, "breaker_cause": "squeue hangs"}, "closed", "breaker             closed"),
    ],
)  # fmt: skip
def test_the_breaker(soda: Bench, facts: dict[str, Any], state: str, said: str) -> None:
    soda.daemon()
    soda.cycle(facts=facts)
    assert soda("status", "--json").document["breaker"]["state"] == state
    assert said in soda("status").out


def test_parts_within_parts_count_once(soda: Bench) -> None:
    soda.daemon()
    soda.cycle(timings_s={"observe": 0.2, "observe.jobs": 0.15, "decide": 0.1})
    parts = soda("status", "--timings", "--json").document["timings"]
    assert parts["total"]["last_s"] == pytest.approx(0.3)
    assert "300 ms: 0 pending" in soda("status").out


def test_a_setting_that_cannot_be_used_is_said(soda: Bench) -> None:
    soda.daemon()
    soda.cycle(facts={"problems": ["setting policy: there is no policy 'x'; tiresias-las holds"]})
    assert "there is no policy 'x'" in soda("status").out


def test_who_leads_and_who_waits(soda: Bench) -> None:
    soda.daemon()
    soda.cycle()
    soda.add(
        Standby(host="ctl2", state_dir="/var/lib/slurm-soda", pid=8, version="0", seen_s=NOW_S - 4),
        Standby(host="ctl3", state_dir="/var/lib/slurm-soda", pid=9, version="0", seen_s=NOW_S - 400),
    )
    standbys = soda("status", "--json").document["standbys"]
    assert [(one["host"], one["age_s"], one["silent"]) for one in standbys] == [("ctl2", 4, False), ("ctl3", 400, True)]
    out = soda("status").out
    assert "running (epoch 1, pid 4242 on ctl" in out
    assert "waits (pid 8 on ctl2), seen 4.0 s ago" in out
    assert "gone without a word (pid 9 on ctl3)" in out
