"""What a report says of a job's use, its waits and its past, and what it says is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest

from slurm_soda.daemon.api.view_json import decode_view, encode_view
from slurm_soda.daemon.job_reports.build import build_report
from slurm_soda.daemon.job_reports.model import JobReport, Preemptions, Sharing, WaitReason
from slurm_soda.daemon.job_reports.stored_facts import StoredFacts
from slurm_soda.wire.gpu_use import IdleSpan
from tests.daemon.job_reports.rows import (
    BUSY,
    END_S,
    RUN_S,
    START_S,
    SUBMIT_S,
    UNUSED,
    facts,
    gpu_uses,
    job,
    pace,
    progress,
    run,
    share,
    usage,
)

NOW_S = END_S + 1000


def report(**more: object) -> JobReport:
    return build_report(facts(**more), NOW_S)


def test_the_figures_of_a_whole_run() -> None:
    paused = replace(BUSY, spans=(IdleSpan(600.0, 90.0),), idle_spans=1, idle_spans_s=90.0, idle_s=90.0)
    found = report(gpu_uses=[gpu_uses(BUSY, paused)])
    (ran,) = found.runs
    (node,) = ran.nodes
    assert (node.node, node.cpus, node.cores_used, node.memory_peak_mib, node.memory_mib) == (
        "n1",
        16,
        12.0,
        40_960,
        65_536,
    )
    first, second = node.gpus
    assert (first.index, first.util_ratio, first.memory_mib, first.power_w, first.energy_wh) == (
        0,
        0.9,
        40_960,
        300,
        300,
    )
    assert (first.first_use_s, first.last_use_s, first.never_used) == (START_S + 5, END_S, False)
    assert [(span.start_s, span.length_s) for span in second.longest_idle] == [(START_S + 600, 90.0)]
    assert second.timeline.util_ratios == [0.9] * 60
    used = found.used
    assert (used.run_s, used.gpu_hours, used.gpu_util_ratio, used.energy_wh) == (RUN_S, 2.0, pytest.approx(0.9), 600.0)
    assert used.gpu_idle_ratio == pytest.approx((20 + 90) / 2 / RUN_S)
    assert (used.cores_used, used.memory_peak_mib, used.memory_asked_mib) == (12.0, 40_960, 65_536)
    assert (used.gpu_memory_peak_mib, used.gpu_memory_mib, used.gpus_never_used) == (30_000, 40_960, 0)
    assert found.missing == []
    assert found.sharing is None


def test_accounting_knows_cpu_time_and_of_memory_that_of_one_task() -> None:
    used = report(job=job(cpu_s=7200.0, memory_peak_mib=1000.0)).used
    assert (used.cores_used, used.memory_peak_mib) == (2.0, 40_960)
    assert report(job=job(memory_peak_mib=50_000.0)).used.memory_peak_mib == 50_000


def test_waits_by_their_reasons() -> None:
    waits = {"spent_s": {"Priority": 120.0, "Resources": 480.0}, "reason": "", "since_s": 0.0}
    waiting = report(job=job(waits=waits)).waiting
    assert (waiting.first_s, waiting.later_s) == (600.0, 0.0)
    assert waiting.reasons == [WaitReason("Resources", 480.0), WaitReason("Priority", 120.0)]
    assert report().waiting.reasons == []


def test_a_job_that_waits_still() -> None:
    pending = job(state="PENDING", first_start_s=None, end_s=None)
    found = build_report(StoredFacts(pending), SUBMIT_S + 60)
    assert (found.waiting.first_s, found.used.run_s, found.runs, found.missing, found.advice) == (60.0, 0.0, [], [], [])
    assert found.used.gpu_util_ratio is None


def twice() -> list[object]:
    """Requeued after 1000 s, and on again 300 s later."""
    return [run(0, START_S, START_S + 1000), run(1, START_S + 1300, END_S)]


def test_what_a_preemption_cost_by_the_jobs_own_progress() -> None:
    found = report(
        job=job(preemptions=1),
        runs=twice(),
        progress=[progress(0, 500.0, 0.0, START_S + 10), progress(1, 2000.0, 450.0, START_S + 1340)],
        paces=[pace(0, 400.0, 800.0), pace(1, 1000.0, 2000.0)],
    )
    assert found.preemptions == Preemptions(1, 1, lost_s=100.0, lost_iterations=50.0, reload_s=40.0)
    assert (found.waiting.first_s, found.waiting.later_s) == (600.0, 300.0)


def test_what_a_preemption_cost_nobody_knows_of_a_job_that_tells_nothing() -> None:
    assert report(job=job(preemptions=1), runs=twice()).preemptions == Preemptions(1, 1, None, None, None)


def test_sharing_counts_others_and_names_nobody() -> None:
    shares = [
        share(8, [7], START_S + 100, START_S + 200),
        share(9, [7, 11], START_S + 150, START_S + 300),
        share(7, [10], None, None),  # never began
    ]
    paces = [pace(0, 1000.0, 1000.0), pace(0, 100.0, 150.0, "8.0")]
    found = report(shares=shares, paces=paces)
    assert found.sharing == Sharing(other_jobs=2, as_guest=0, as_host=2, shared_s=200.0, slowdown_ratio=1.5)
    assert report(shares=[share(7, [8, 9], START_S, None)]).sharing == Sharing(2, 1, 0, RUN_S, None)
    shared = json.dumps(asdict(found)["sharing"])
    assert not {"8", "9", "11"} & set(shared.replace(",", " ").split())


def test_a_gpu_is_never_used_only_where_enough_was_seen_of_it() -> None:
    short = replace(UNUSED, covered_s=59.0)
    found = report(gpu_uses=[gpu_uses(UNUSED, short)])
    assert [gpu.never_used for gpu in found.runs[0].nodes[0].gpus] == [True, False]
    assert found.used.gpus_never_used == 1


MISSING = {
    "nobody reported": (
        {"usage": [], "gpu_uses": [], "seen_s": {}},
        "n1: not measured: no agent ever reported from there.",
    ),
    "the agent missed the run": (
        {"usage": [], "gpu_uses": []},
        "n1: not measured: its agent told nothing of this run.",
    ),
    "an older agent": (
        {"gpu_uses": []},
        "n1: figures of single GPUs are not measured: its agent does not tell them (an older "
        "version, or they are no longer kept).",
    ),
    "no driver": (
        {"usage": [usage(gpu_memory_peak_mib=0.0)], "gpu_uses": []},
        "n1: figures of single GPUs are not measured: its driver told nothing of them (in MIG mode a GPU has "
        "no utilisation).",
    ),
    "one GPU in MIG mode": (
        {"gpu_uses": [gpu_uses(BUSY)]},
        "n1: 1 of its 2 GPUs were measured (in MIG mode a GPU has no utilisation).",
    ),
    "an agent that was away": (
        {"gpu_uses": [gpu_uses(BUSY, replace(BUSY, covered_s=RUN_S / 2))]},
        "n1: its GPUs were measured for 50 % of the run, as its agent or its driver was away meanwhile.",
    ),
}


@pytest.mark.parametrize(("more", "said"), MISSING.values(), ids=MISSING)
def test_what_is_missing_is_said_with_its_reason(more: dict[str, object], said: str) -> None:
    assert report(**more).missing == [said]


def test_an_agent_that_died_in_the_run() -> None:
    until_s = START_S + 1800
    found = report(usage=[usage(last_s=until_s)], gpu_uses=[gpu_uses(BUSY, BUSY, last_s=until_s)])
    (said,) = found.missing
    assert said.startswith("n1: not measured after 20")
    assert said.endswith(", 30 min 00 s before the end.")


def test_a_running_job_whose_agent_is_silent() -> None:
    live = {"job": job(state="RUNNING", end_s=None), "runs": [run(end_s=None)]}
    last_s = START_S + 600
    seen = {"usage": [usage(last_s=last_s)], "gpu_uses": [gpu_uses(replace(BUSY, covered_s=600.0), last_s=last_s)]}
    silent = build_report(facts(**live, **seen, seen_s={"n1": last_s}), last_s + 300)
    assert any(said.startswith("n1: nothing has come from its agent since ") for said in silent.missing)
    assert build_report(facts(**live, **seen, seen_s={"n1": last_s}), last_s + 30).runs[0].end_s is None


def test_each_node_is_told_by_itself() -> None:
    found = report(
        job=job(nodes=3, cpus=48),
        runs=[run(node_names="n[1-3]")],
        usage=[usage(), usage(node="n2", cpu_s=RUN_S)],
        gpu_uses=[gpu_uses(BUSY, BUSY), gpu_uses(BUSY, UNUSED, node="n2")],
        cpus_on={(0, "n1"): 16, (0, "n2"): 16},
    )
    assert [(node.node, node.cores_used, len(node.gpus)) for node in found.runs[0].nodes] == [
        ("n1", 12.0, 2), ("n2", 1.0, 2), ("n3", None, 0),
    ]  # fmt: skip
    assert found.missing == ["n3: not measured: no agent ever reported from there."]
    assert found.used.memory_asked_mib == pytest.approx(65_536 / 3)


def test_a_report_survives_the_way_over_http() -> None:
    whole = report(shares=[share(8, [7], START_S, None)], runs=twice())
    assert asdict(decode_view(JobReport, encode_view(whole))) == json.loads(json.dumps(asdict(whole)))


def test_names_of_nodes_that_cannot_be_read_take_nothing_away() -> None:
    (node,) = report(runs=[run(node_names="n[1-")]).runs[0].nodes
    assert node.node == "n1"


def test_nodes_that_lack_the_same_are_told_together() -> None:
    found = report(runs=[run(node_names="n[1-900]")], job=job(nodes=900))
    assert found.missing == ["n2, n3, n4 and 896 more nodes: not measured: no agent ever reported from there."]
    seen = {f"n{number}": START_S + 90 * number for number in range(1, 31)}
    usages = [usage(node=node, last_s=last_s) for node, last_s in seen.items()]
    several = report(runs=[run(node_names="n[1-30]")], usage=usages, seen_s=seen, job=job(nodes=30, gpus=0))
    assert len(several.missing) == 11
    assert several.missing[-1].endswith(" more; each node has its own (--json).")


class CountedRows(list[Any]):
    """Rows that count how often somebody goes through them."""

    passes = 0

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        return super().__iter__()


def test_rows_are_gone_through_a_few_times_however_many_runs_and_nodes_there_are() -> None:
    """A job of 1000 nodes that was requeued four times took 36 s of a core, in which cycles are slowed down."""
    nodes, runs = 20, range(30)
    rows = {
        "usage": CountedRows(usage(restart=restart, node=f"n{at}") for restart in runs for at in range(nodes)),
        "gpu_uses": CountedRows(
            gpu_uses(BUSY, restart=restart, node=f"n{at}") for restart in runs for at in range(nodes)
        ),
        "progress": CountedRows(progress(restart, 10.0, 0.0, START_S) for restart in runs),
        "paces": CountedRows(pace(restart, 10.0, 5.0) for restart in runs),
    }
    told = facts(runs=[run(restart, node_names=f"n[0-{nodes - 1}]") for restart in runs], **rows)
    report = build_report(told, END_S)
    assert [len(one.nodes) for one in report.runs] == [nodes] * len(runs)
    assert {name: of_kind.passes < 10 for name, of_kind in rows.items()} == dict.fromkeys(rows, True)


def test_a_node_whose_clock_was_set_ahead_makes_cores_no_fewer() -> None:
    """The agent dates its readings by the time of day: by these the run took a day longer than by Slurm."""
    found = report(usage=[usage(last_s=END_S + 86_400.0)])
    (node,) = found.runs[0].nodes
    assert node.cores_used == pytest.approx(12.0, rel=0.02)
    assert "cpus" not in {advice.topic for advice in found.advice}
