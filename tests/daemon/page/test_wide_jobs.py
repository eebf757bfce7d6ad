"""A job with very many GPUs or runs costs the page no more than what it shows of them."""

from __future__ import annotations

from dataclasses import replace

from slurm_soda.daemon.job_reports.build import build_report
from slurm_soda.daemon.page.job_view import MAX_SHARES_OF_JOB, without_many_gpus
from slurm_soda.daemon.store.gpu_uses import stored_gpu_use
from slurm_soda.daemon.store.tables.job_reports import JobGpuUseRow
from slurm_soda.daemon.store.tables.scheduling import JobRun
from slurm_soda.daemon.store.tables.sharing import ShareRow
from tests.daemon.job_reports import rows
from tests.daemon.page.page_site import NOW_S, SUBMIT_S, PageSite, fill, job


def test_of_a_wide_job_the_page_gets_the_gpus_that_it_shows(site: PageSite) -> None:
    """500 nodes of 8 GPUs in five runs were 13 MB, every 15 s and for each window."""
    nodes, uses = 60, [stored_gpu_use(replace(rows.BUSY, index=index)) for index in range(8)]
    wide = job(50, state="RUNNING", gpus=8 * nodes, nodes=nodes)
    site.add(wide)
    times = {"first_s": SUBMIT_S, "last_s": NOW_S}
    site.add(
        JobRun(job_pk=wide.id, restart=0, start_s=SUBMIT_S, gpus=8 * nodes, node_names=f"w[0-{nodes - 1}]"),
        *(JobGpuUseRow(job_id=50, restart=0, node=f"w{at}", gpus=uses, **times) for at in range(nodes)),
    )
    view = site.browser(1000).view("/data/jobs/50")
    (told,) = view["report"]["runs"]
    assert sum(len(node["gpus"]) for node in told["nodes"]) == 256
    assert [run["gpus_measured"] for run in view["runs"]] == [8 * nodes]
    assert view["report"]["used"]["gpu_util_ratio"] == 0.9, "of all"


def test_of_many_runs_the_newest_are_told_gpu_by_gpu_and_the_oldest_in_totals_alone() -> None:
    times = [(restart, rows.START_S + 10.0 * restart) for restart in range(150)]
    uses = [
        rows.gpu_uses(*[rows.BUSY] * 40, restart=restart, first_s=start_s, last_s=start_s + 9)
        for restart, start_s in times
    ]
    runs = [rows.run(restart, start_s, start_s + 9) for restart, start_s in times]
    report = build_report(rows.facts(runs=runs, usage=[], gpu_uses=uses), rows.END_S)
    shown = [sum(len(node.gpus) for node in run.nodes) for run in without_many_gpus(report).runs]
    assert shown == [0] * 50 + [32] * 95 + [40] * 5


def test_nodes_without_gpus_are_bounded_too() -> None:
    told = rows.facts(runs=[rows.run(node_names="n[1-900]")], usage=[], gpu_uses=[])
    (run,) = without_many_gpus(build_report(told, rows.END_S)).runs
    assert len(run.nodes) == 256


def test_the_newest_shares_are_shown(site: PageSite) -> None:
    fill(site)
    at = {
        "restart": 0,
        "nodes": ["n1"],
        "gpus": [0],
        "phase": "over",
        "why": "",
        "deadline_s": NOW_S,
        "updated_s": NOW_S,
    }
    site.add(
        *(
            ShareRow(guest=1000 + past, submit_s=SUBMIT_S, hosts=[8], created_s=SUBMIT_S, started_s=NOW_S, **at)
            for past in range(MAX_SHARES_OF_JOB + 9)
        )
    )
    shares = site.browser(1001).view("/data/jobs/8")["shares"]
    assert len(shares) == MAX_SHARES_OF_JOB
    assert shares[-1]["others"] == [9], "that of now"
