"""``sodactl explain``: one job's story, in every state of job, store and Slurm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurm_soda.daemon.store.tables.cpu_fit import CpuProposalRow
from slurm_soda.daemon.store.tables.progress import JobProgressRow
from slurm_soda.daemon.store.tables.scheduling import AdminSetting, JobNodeUsage, JobRun, Preemption, VainPreemption
from slurm_soda.policies.explanation.job_position import VERDICTS
from slurm_soda.policies.plan import JobVerdict
from slurm_soda.policies.snapshot import UnknownNodes
from slurm_soda.slurm_ext.hints.flags import Hints

from .conftest import HOSTILE, NOW_S, SUBMIT_S, Bench, record, stored_job
from .test_shares import use

KEYS = {"now_s", "warnings", "cores", "daemon_alive", "mode", "policy", "job", "note", "numbers", "attained_gpu_s",
        "before", "reasons", "expected_start", "run_time",
        "runs", "used", "preemptions", "changes", "progress", "slowdown_hints", "sharing",
        "not_in_scope"}  # fmt: skip
JOB_KEYS = {"job_id", "user", "account", "partition", "name", "state", "reason", "submit_s", "gpus", "nodes", "cpus",
            "hints", "first_start_s", "end_s", "exit_code", "preemptions", "promotions"}  # fmt: skip
CHANGE_KEYS = {"action_id", "at_s", "finished_s", "kind", "new", "old", "state", "reason", "error", "epoch", "by_hand"}


def note(verdict: str = "wait", position: int = 2, queue: int = 0) -> dict[str, Any]:
    return {"verdict": verdict, "queue": queue, "position": position, "score": 1234.5, "score_name": "attained_gpu_s"}


@pytest.fixture
def site(soda: Bench) -> Bench:
    """Job 7 waits behind 5 (running), 6 and 8."""
    soda.daemon()
    soda.add(AdminSetting(key="mode", value="enforce", changed_s=NOW_S))
    soda.add(
        stored_job(5, state="RUNNING", note=note("run", 0)), stored_job(6, gpus=8, note=note("start", 1)),
        stored_job(8, gpus=4, note=note("wait", 2)), stored_job(7, note=note("wait", 3)),
    )  # fmt: skip
    soda.slurm.queue = [record(5, state="RUNNING"), record(6), record(7), record(8)]
    return soda


def reasons(soda: Bench, job_id: int = 7) -> str:
    return "\n".join(soda("explain", str(job_id), "--json").document["reasons"])


def test_why_it_waits(site: Bench) -> None:
    site.config.write_text(site.config.read_text() + '[policy]\nname = "tiresias-las"\n')
    document = site("explain", "7", "--json").document
    assert set(document) == KEYS
    assert set(document["job"]) == JOB_KEYS
    assert document["before"] == {"jobs": 2, "gpus": 12}
    assert document["note"] == note("wait", 4, queue=1), "counted from 1"
    assert document["reasons"] == [
        "Slurm: PENDING, reason Priority, priority 100.",
        "It has had 0 GPU s of service, which puts it in queue 1 of 2; at 8,000 GPU s, after 4,000 s of running, it moves "
        "to the next. Position 4 in line.",
        "It waits: it does not fit beside the jobs before it.",
        "Before it in line: 2 waiting jobs, for 12 GPUs.",
        "It is never preempted: it names no --soda-checkpoint signal.",
    ]
    assert document["numbers"]["leaves_queue_at_gpu_s"] == 8000
    assert (document["numbers"]["queue"], document["numbers"]["position"]) == (1, 4)
    out = site("explain", "7").out
    assert out.startswith("Job 7 (train) of alice: 2 GPUs, 4 CPUs on 1 node of main\n")
    for line in document["reasons"]:
        assert f"  {line}\n" in out


def test_a_job_that_is_not_in_scope(site: Bench) -> None:
    site.add(stored_job(9, note=note() | {"not_in_scope": "not in scope: partition big"}))
    site.slurm.queue.append(record(9))
    assert "It is not in scope: partition big: sodad plans for it and changes nothing of it" in reasons(site, 9)
    assert site("explain", "9", "--json").document["not_in_scope"] == "not in scope: partition big"
    assert site("explain", "7", "--json").document["not_in_scope"] is None


@pytest.mark.parametrize("verdict", list(JobVerdict), ids=lambda verdict: verdict.name)
def test_every_verdict_has_its_sentence(site: Bench, verdict: JobVerdict) -> None:
    site.add(stored_job(9, note=note(verdict.name.lower())))
    site.slurm.queue.append(record(9))
    document = site("explain", "9", "--json").document
    assert document["numbers"]["verdict"] == verdict.name.lower()
    assert any(VERDICTS[verdict].split(":")[0].rstrip(".") in line for line in document["reasons"])


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        ("start", "It fits, but stays behind job 8, which does not fit and is not to be passed"),
        ("wait", "It waits behind job 8, for which nodes are kept"),
        ("run", "It keeps running."),
    ],
)
def test_it_says_behind_whom_a_job_stays(site: Bench, verdict: str, said: str) -> None:
    site.add(stored_job(9, note={**note(verdict), "behind": 8}))
    site.slurm.queue.append(record(9))
    assert said in reasons(site, 9)


@pytest.mark.parametrize("why", [why for why in UnknownNodes if why])
def test_it_says_why_its_node_request_was_not_worked_out(site: Bench, why: UnknownNodes) -> None:
    site.add(stored_job(9, note={**note("wait"), "unknown_nodes": why.name.lower()}))
    site.slurm.queue.append(record(9))
    assert "Its node request was not worked out, so no one is preempted for it: " in reasons(site, 9)
    assert site("explain", "9", "--json").document["numbers"]["unknown_nodes"] == why.name.lower()


def test_a_verdict_of_a_newer_daemon_is_shown_as_it_is(site: Bench) -> None:
    site.add(stored_job(9, note=note("teleport")))
    site.slurm.queue.append(record(9))
    assert "The policy says: teleport." in reasons(site, 9)


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("JobHeldUser", "Its user holds it; `scontrol release 7` lets it go."),
        ("JobHeldAdmin", "An admin holds it"),
        ("Dependency", "It waits for other jobs: afterok:3."),
        ("ReqNodeNotAvail, UnavailableNodes:n3", "Nodes that it needs are down, drained or reserved."),
        ("BeginTime", "Its begin time has not come."),
        (
            "launch failed requeued held",
            "Slurm could not start it and holds it. `sodactl doctor` says more; then an admin runs `scontrol release 7`.",
        ),
        ("launch_failed_requeued_held", "Slurm could not start it and holds it."),
    ],
)
def test_slurms_own_reasons(site: Bench, reason: str, said: str) -> None:
    site.slurm.queue = [record(7, reason=reason, dependency="afterok:3")]
    assert said in reasons(site)


@pytest.mark.parametrize(
    ("mode", "said"),
    [("observe", "sodad only observes"), ("advise", "sodad only advises"), ("enforce", "It waits: it does not fit")],
)
def test_the_mode_is_part_of_the_answer(site: Bench, mode: str, said: str) -> None:
    site("mode", mode)
    assert said in reasons(site)


def test_preemptions_in_vain_are_told_to_both_sides(site: Bench) -> None:
    entry = {"user": "alice", "gpus": 2, "gpus_per_node": 0, "gpu_type": "", "times": 2, "noted_s": NOW_S - 10}
    site.add(VainPreemption(**entry, job_id=8, until_s=NOW_S + 590))
    site.slurm.queue = [record(5, state="RUNNING"), record(7, gpus_per_node=0, gpu_type="", gpus=2)]
    assert "Job 8 did not start on GPUs that others had left for it (twice in a row), so until" in reasons(site)
    assert "no one is preempted" not in reasons(site, 5)
    site.add(
        Preemption(job_id=5, submit_s=SUBMIT_S, restart=0, phase="done", created_s=NOW_S - 60, deadline_s=NOW_S,
                   updated_s=NOW_S, for_jobs=[8], vain_for=[8]),
    )  # fmt: skip
    assert "to job 8 in vain: no start followed." in reasons(site, 5)


def test_runs_service_and_preemptions(site: Bench) -> None:
    job = stored_job(9, state="RUNNING", preemptions=2, executed_s=100, first_start_s=SUBMIT_S + 10, note=note("run", 0),
                     hints={"checkpoint": "USR1@30"})  # fmt: skip
    site.add(job)
    site.add(JobRun(job_pk=job.id, restart=0, start_s=SUBMIT_S + 10, end_s=SUBMIT_S + 110, gpus=2, node_names="n1"))
    site.add(JobRun(job_pk=job.id, restart=1, start_s=NOW_S - 50, gpus=2, node_names="n[1-2]"))
    site.add(
        JobNodeUsage(
            job_id=9,
            restart=0,
            node="n1",
            first_s=SUBMIT_S + 10,
            last_s=SUBMIT_S + 110,
            samples=9,
            gpu_count=2,
            gpu_util_ratio=0.8,
            gpu_util_last_ratio=0.8,
            gpu_memory_peak_mib=9000,
            cpu_s=70,
            memory_peak_mib=512,
        )
    )
    site.add(
        Preemption(
            job_id=9,
            submit_s=SUBMIT_S,
            restart=1,
            phase="signalled",
            created_s=NOW_S - 4,
            deadline_s=NOW_S + 26,
            updated_s=NOW_S,
            for_jobs=[6],
            reason="job 6 has attained less service",
        )
    )
    site.slurm.queue.append(record(9, state="RUNNING", node_names="n[1-2]", start_s=NOW_S - 50))
    document = site("explain", "9", "--json").document
    assert document["attained_gpu_s"] == 2 * 150
    assert document["used"]["gpu_util_ratio"] == 0.8
    assert [(r["restart"], r["node_names"], r["end_s"]) for r in document["runs"]] == [
        (0, "n1", SUBMIT_S + 110),
        (1, "n[1-2]", None),
    ]
    text = "\n".join(document["reasons"])
    assert "It was asked to save its state and has until" in text
    assert "job 6 has attained less service" in text
    assert "It ran twice" in text
    assert "attained service 300 GPU s" in text
    assert "It gave way twice." in text
    assert "never preempted" not in text
    assert "n[1-2]" in site("explain", "9").out


def test_a_promotion_during_the_run_forgives_what_came_before(site: Bench) -> None:
    job = stored_job(9, state="RUNNING", executed_s=0)
    site.add(job)
    site.add(JobRun(job_pk=job.id, restart=0, start_s=NOW_S - 100, promoted_s=NOW_S - 30, gpus=2))
    assert site("explain", "9", "--json").document["attained_gpu_s"] == 60


def test_the_audit_trail(site: Bench) -> None:
    site.action(reason="tiresias-las: starts now, position 1 of 3")
    site.action(kind="requeue", new={}, old={}, state="failed", error="Job is not \x1b[31mrunning", reason="for 6")
    site.action(epoch_id=None, kind="release", new={"SiteFactor": "0"}, old={"SiteFactor": "500"}, reason="release-all")
    site.action(submit_s=SUBMIT_S - 99, reason="of an older job with this id")
    changes = site("explain", "7", "--json").document["changes"]
    assert all(set(change) == CHANGE_KEYS for change in changes)
    assert [(c["kind"], c["state"], c["by_hand"]) for c in changes] == [
        ("order", "done", False), ("requeue", "failed", False), ("release", "done", True)]  # fmt: skip
    out = site("explain", "7").out
    for text in (
        "SiteFactor=500",
        "failed: Job is not \\x1b[31mrunning",
        "release-all (by hand)",
        "starts now, position 1 of 3",
    ):
        assert text in out
    assert "older job" not in out


def test_a_long_trail_is_cut_in_text_only(site: Bench) -> None:
    for _ in range(25):
        site.action()
    assert "the newest 20 of 25 changes" in site("explain", "7").out
    assert len(site("explain", "7", "--json").document["changes"]) == 25


@pytest.mark.parametrize("forgotten", [True, False], ids=["Slurm forgot it", "Slurm still knows it"])
def test_an_ended_job(site: Bench, forgotten: bool) -> None:
    job = stored_job(9, state="COMPLETED", end_s=NOW_S - 10)
    site.add(job)
    site.add(JobRun(job_pk=job.id, restart=0, start_s=SUBMIT_S + 10, end_s=NOW_S - 10, gpus=2))
    if not forgotten:
        site.slurm.queue.append(record(9, state="COMPLETED", end_s=NOW_S - 10))
    text = reasons(site, 9)
    assert "It ended as COMPLETED at " in text
    assert "It ran once; `sodactl history --job 9` (root and SlurmUser, on the controller) shows what it used." in text
    assert "policy" not in text


def test_a_job_that_sodad_has_not_seen(site: Bench) -> None:
    site.slurm.queue.append(record(10, hints=Hints(model="bert")))
    document = site("explain", "10", "--json").document
    assert set(document) == KEYS
    assert document["job"]["hints"] == {"model": "bert"}
    assert "sodad has not seen it yet" in document["reasons"][1]


def test_an_id_that_slurm_uses_again_means_the_new_job(site: Bench) -> None:
    site.slurm.queue = [replace(record(7), submit_s=NOW_S - 5)]
    assert "sodad has not seen it yet" in reasons(site)


def test_a_requeued_job_is_the_same_though_slurm_moved_its_submit_time(site: Bench) -> None:
    site.slurm.queue = [replace(record(7), submit_s=NOW_S - 5, restarts=1)]
    document = site("explain", "7", "--json").document
    assert document["note"]["verdict"] == "wait"
    assert document["job"]["submit_s"] == SUBMIT_S


def test_slurm_down(site: Bench) -> None:
    site.slurm.down = True
    shown = site("explain", "7")
    assert "Slurm does not answer" in shown.err
    assert "what follows is what sodad last saw" in shown.out


def test_no_store(site: Bench) -> None:
    site.config.write_text('[store]\nurl = "sqlite:////nonexistent/soda.db"\n')
    document = site("explain", "7", "--json").document
    assert set(document) == KEYS
    assert document["reasons"][0].startswith("Slurm: PENDING")
    assert "without the policy's view" in document["warnings"][0]


@pytest.mark.parametrize(
    ("down", "said"), [(False, "neither Slurm nor the store knows job 99"), (True, "Slurm does not answer")]
)
def test_an_unknown_job(site: Bench, down: bool, said: str) -> None:
    site.slurm.down = down
    shown = site("explain", "99", status=1)
    assert said in shown.err
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_users_does_no_harm(site: Bench, text: str) -> None:
    site.add(stored_job(9, name=text, note=note()))
    site.slurm.queue.append(record(9, name=text, reason=text, node_names=text, dependency=text))
    site.action(9, reason=text, error=text)
    document = site("explain", "9", "--json").document
    assert document["job"]["name"] == text
    out = site("explain", "9").out
    assert all(char.isprintable() or char == "\n" for char in out)


@pytest.mark.parametrize(
    ("asked", "cores", "left_alone", "present", "text"),
    [
        (20, 3, "", 3, "It asked for 20 cores on each node and will start with 3."),
        (3, 3, "", 3, "It asks for 3 cores on each node, which is right to start with."),
        (20, 3, "", 20, "It asks for 20 cores on each node; 3 would be right to start with."),
        (20, None, "--exclusive", 20, "Its request of 20 cores on each node is left alone: --exclusive."),
    ],
)
def test_cores_of_a_waiting_job(
    soda: Bench, asked: int, cores: int | None, left_alone: str, present: int, text: str
) -> None:
    soda.daemon()
    soda.add(stored_job(7))
    soda.add(
        CpuProposalRow(job_id=7, submit_s=SUBMIT_S, at_s=1.0, asked_cores=asked, cores=cores, left_alone=left_alone)
    )
    soda.slurm.queue = [record(7, cpus=present)]
    document = soda("explain", "7", "--json").document
    assert text in document["reasons"]
    assert document["cores"] == {"asked": asked, "start": cores, "source": "", "left_alone": left_alone}


@pytest.mark.parametrize(("mode", "shares", "told"), [
    ("enforce", {"gpus": {"n1": [1, 2]}, "with": [5]}, "it shall share GPUs now: GPU 1, 2 of n1, with job 5."),
    ("advise", {"gpus": {"n1": [1]}, "with": [5, 8]}, "it would share GPUs now: GPU 1 of n1, with job 5, 8."),
    ("enforce", {"gpus": {"n1": [1]}, "with": [5], "refused": "node n1 will not do for it"},
     "It does not, since that cannot be: node n1 will not do for it."),
    ("enforce", {"no_guest": "it has --exclusive"}, "It cannot join running jobs as their guest: it has --exclusive."),
    ("enforce", {"unguarded": "n1 (share-start is not whole)"},
     "It cannot be a guest on some nodes with jobs that it could join: n1 (share-start is not whole)."),
    ("enforce", {"stays": "guest 8 cannot go"}, "A bound on slowdown does not hold: guest 8 cannot go."),
])  # fmt: skip
def test_whom_it_joins_or_why_it_cannot(soda: Bench, mode: str, shares: dict[str, Any], told: str) -> None:
    soda.daemon()
    soda.add(AdminSetting(key="mode", value=mode, changed_s=NOW_S))
    soda.add(stored_job(7, note={**note("join", 1), "shares": shares}))
    soda.slurm.queue = [record(7)]
    assert told in reasons(soda)
    assert VERDICTS[JobVerdict.JOIN] in reasons(soda)


def test_who_tells_no_progress_has_a_hint_of_its_slowdown(site: Bench) -> None:
    site.add(stored_job(9, state="RUNNING"))
    site.add(use(9, ([], 40.0, 32.0), ([4], 20.0, 8.0), ([5, 6], 60.0, 24.0)))
    site.slurm.queue.append(record(9, state="RUNNING", node_names="n1", start_s=NOW_S - 50))
    document = site("explain", "9", "--json").document
    assert [(hint["hint"], hint["co_runners"]) for hint in document["slowdown_hints"]] == [(True, [4]), (True, [5, 6])]
    text = "\n".join(document["reasons"])
    assert (
        "Beside job 5, 6 it is perhaps 2.00 times as slow as alone. That is only a hint, by which nothing is decided"
        in text
    )
    assert "its kernels ran 40% of the time, for 1 min 00 s, and 80% alone, for 40.0 s." in text
    site.add(
        JobProgressRow(
            job_id=9, restart=0, node="n1", first_s=SUBMIT_S + 10, began_s=SUBMIT_S + 11, began_iterations=0.0,
            at_s=NOW_S - 5, clock_s=50.0, idle_s=0.0, iterations=400.0, total=0.0, batch=64, saved=-1.0, saves=0,
        )
    )  # fmt: skip
    document = site("explain", "9", "--json").document
    assert document["slowdown_hints"] == []
    assert "only a hint" not in "\n".join(document["reasons"])
