"""The day of an inference service: its load, its jobs, and the arithmetic of its report."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.daemon.settings.config_file import load_settings
from slurm_soda.demo.accounting import DemoError, MixJobRecord, MixJobRun
from slurm_soda.demo.services_day.day_figures import (
    PARTS,
    ServiceRun,
    devices_in_turn,
    gpu_part,
    read_samples,
    read_service_runs,
    service_document,
)
from slurm_soda.demo.services_day.day_jobs import ARRIVE_WITHIN, LONGEST_PART, OFFERED, SHORTEST_PART, draw_day_jobs
from slurm_soda.demo.services_day.day_load import day_rate, needed_part, query_times
from slurm_soda.demo.services_day.day_report import report_document, table_rows, unmet, write_report
from slurm_soda.demo.services_day.day_runs import DayPhaseResult, DayResult
from slurm_soda.demo.services_day.day_settings import (
    CLUSTER_GPUS,
    HEADROOM,
    MOST_PEAK_QPS,
    DaySettings,
    daemon_configuration,
    rates_of,
    service_file,
)
from slurm_soda.services.load.load_report import SentQuery
from slurm_soda.wire.services.service_file import read_service_file

DAY_S = 600.0


def test_the_load_is_low_at_midnight_and_highest_at_noon() -> None:
    rates = rates_of(40.0)
    rate = day_rate(rates, DAY_S)
    assert rate(0.0) == pytest.approx(rates.night_qps) == pytest.approx(rate(DAY_S))
    assert rate(DAY_S / 2) == pytest.approx(rates.peak_qps)
    assert rates.night_qps < HEADROOM * rates.cpu_qps < rates.peak_qps
    assert 0.2 < needed_part(rates, DAY_S, HEADROOM * rates.cpu_qps) < 0.45


def test_a_fast_machine_gets_no_more_than_the_generator_can_send() -> None:
    assert rates_of(10_000.0).peak_qps == MOST_PEAK_QPS
    with pytest.raises(DemoError, match="does not meet 1000 ms"):
        rates_of(0.0)


def test_queries_come_as_often_as_the_rate_says() -> None:
    rates = rates_of(40.0)
    times = query_times(rates, DAY_S, 1)
    assert times == sorted(times) == query_times(rates, DAY_S, 1)
    assert times != query_times(rates, DAY_S, 2)
    noon = [one for one in times if 0.45 * DAY_S < one < 0.55 * DAY_S]
    assert len(noon) / (0.1 * DAY_S) == pytest.approx(rates.peak_qps, rel=0.15)
    assert len([one for one in times if one < 0.05 * DAY_S]) / (0.05 * DAY_S) == pytest.approx(rates.night_qps, rel=0.5)


@pytest.mark.parametrize("seed", [1, 2, 7])
def test_the_jobs_take_a_known_part_of_the_gpus(seed: int) -> None:
    jobs = draw_day_jobs(seed, DAY_S)
    assert jobs == draw_day_jobs(seed, DAY_S)
    assert sum(job.gpus * job.run_s for job in jobs) / (CLUSTER_GPUS * DAY_S) == pytest.approx(OFFERED, rel=0.25)
    assert all(DAY_S * SHORTEST_PART <= job.run_s <= DAY_S * LONGEST_PART + 0.01 for job in jobs)
    assert max(job.arrival_s for job in jobs) <= ARRIVE_WITHIN * DAY_S
    quarter_s = ARRIVE_WITHIN * DAY_S / 4
    early = [sum(job.arrival_s < part * quarter_s for job in jobs) for part in (1, 2, 3)]
    assert early == pytest.approx([part * len(jobs) / 4 for part in (1, 2, 3)], abs=1)


def test_only_the_placed_service_may_run_on_cores() -> None:
    pinned, placed = (read_service_file(service_file(cores=cores), "x.toml") for cores in (False, True))
    assert pinned.cpu is None
    assert placed.cpu is not None
    assert pinned.gpu == placed.gpu
    assert pinned.command == placed.command


def test_sodads_configuration_differs_in_the_placement_alone(tmp_path: Path) -> None:
    path = tmp_path / "soda.toml"
    found = []
    for places in (False, True):
        path.write_text(daemon_configuration(DAY_S, places=places))
        found.append(load_settings(path).model_dump())
    assert [one["services"].pop("enabled") for one in found] == [False, True]
    assert found[0] == found[1]


def test_samples_that_are_none_are_refused() -> None:
    head = "planned_s,late_s,latency_s,error\n"
    assert read_samples(head + "1.5,0.001,0.2,\n2.0,0.0,30.0,timeout\n") == [
        SentQuery(1.5, 0.001, 0.2),
        SentQuery(2.0, 0.0, 30.0, "timeout"),
    ]
    with pytest.raises(DemoError, match=re.escape("'1.5;0.2'")):
        read_samples(head + "1.5;0.2\n")


SACCT = """\
7|alice|classify-cpu|REQUEUED|1000|1000|1300|n1|billing=1,cpu=1,node=1
7|alice|classify-cpu|CANCELLED by 0|1301|1500|1700|n2|billing=1,cpu=1,node=1
9|alice|classify-gpu|CANCELLED by 0|1000|1290|1510|n1|billing=1,cpu=1,gres/gpu=1,node=1
11|alice|classify-gpu|CANCELLED by 0|1000|Unknown|1700|None assigned|
"""


def test_where_the_service_ran_comes_from_accounting() -> None:
    runs = read_service_runs(SACCT, 1010.0, DAY_S)
    assert runs == [
        ServiceRun("cpu", 0.0, 290.0, "n1", 0),
        ServiceRun("gpu", 280.0, 500.0, "n1", 1),
        ServiceRun("cpu", 490.0, 600.0, "n2", 0),
    ]
    assert devices_in_turn(runs) == ["cpu", "gpu", "cpu"]
    assert gpu_part(runs, DAY_S) == pytest.approx(220 / 600)


def test_the_parts_of_the_day_hold_all_queries() -> None:
    queries = [SentQuery(at / 10, 0.0, 0.1 if at % 100 else 0.9) for at in range(5990)]
    queries.append(SentQuery(599.5, 0.0, 30.0, "timeout"))
    found = service_document(queries, read_service_runs(SACCT, 1010.0, DAY_S), 500.0, DAY_S)
    parts = found["parts"]
    assert len(parts) == PARTS
    assert sum(part["violations"] for part in parts) == found["violations"] == 60
    assert sum(part["failed"] for part in parts) == found["errors"] == 1
    assert sum(part["load_qps"] for part in parts) * DAY_S / PARTS == pytest.approx(5991, abs=1)
    assert (parts[0]["cpu"], parts[0]["gpu"]) == (1, 0)
    assert (parts[PARTS // 2]["cpu"], parts[PARTS // 2]["gpu"]) == (0, 1)


def day(errors: int = 0, jct_s: float = 40.0, gpu_s: float = 220.0) -> DayResult:
    def phase(jct_s: float, runs: tuple[ServiceRun, ...], errors: int) -> DayPhaseResult:
        queries = [SentQuery(float(at), 0.0, 0.1, "timeout" if at < errors else "") for at in range(600)]
        job = MixJobRecord(
            3,
            "bob",
            "bert-01",
            "COMPLETED",
            4,
            1000.0,
            1000.0 + jct_s,
            (MixJobRun(1010.0, 1000.0 + jct_s, "COMPLETED", "n1"),),
        )
        return DayPhaseResult(queries, runs, (job,), {})

    return DayResult(
        rates_of(40.0),
        draw_day_jobs(1, DAY_S),
        {
            "pinned": phase(50.0, (ServiceRun("gpu", 0.0, DAY_S, "n1", 1),), 0),
            "placed": phase(
                jct_s,
                (ServiceRun("cpu", 0.0, 200.0, "n1", 0), ServiceRun("gpu", 190.0, 190.0 + gpu_s, "n2", 1)),
                errors,
            ),
        },
        {},
        {"slurm": "24.11.5"},
    )


def test_the_report_says_what_was_reached(tmp_path: Path) -> None:
    report = report_document(DaySettings(), day())
    assert report["placed_over_pinned"] == {"avg_jct": 0.8, "gpu_held": pytest.approx(220 / 600, abs=1e-4)}
    assert unmet(report) == []
    rows = {row[0]: row[1:] for row in table_rows(report)}
    assert rows["It ran on"][:2] == ["GPU", "CPU → GPU"]
    assert rows["Failed queries"][:2] == ["0", "0"]
    write_report(report, tmp_path)
    assert (tmp_path / "services.png").stat().st_size > 10_000
    page = (tmp_path / "index.html").read_text()
    assert "Not met" not in page
    assert "CPU → GPU" in page


@pytest.mark.parametrize(
    ("missed", "said"),
    [
        ({"errors": 2}, "2 queries failed"),
        ({"jct_s": 49.0}, "0.98 of the time"),
        ({"gpu_s": 400.0}, "67% of the day"),
        ({"errors": 7}, "98.83% of the queries"),
    ],
)
def test_the_report_says_what_was_missed(missed: dict[str, Any], said: str) -> None:
    assert said in " ".join(unmet(report_document(DaySettings(), day(**missed))))
