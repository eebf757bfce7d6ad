"""Bands from arrival to arrival: who waits for whom in whole simulations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.engine.run import simulate
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.site.description import read_site
from slurm_soda.simulator.workload import Workload
from tests.sampling import examples

QOS = {"high": {"priority": 2}, "middle": {"priority": 1}, "low": {"priority": 0}}
PREEMPTIVE = ("srsf", "srtf", "tiresias-las")
NOT_PREEMPTIVE = ("sjf", "smallest", "fifo-skip", "drf", "backfill", "multifactor", "fifo", "kelp-fifo", "kelp-drf")


def run(name: str, rows: list[dict[str, Any]], nodes: str, bands: str) -> SimulationOutcome:
    site = read_site({"bands": bands, "qos": QOS})
    parameters = {"min_run_s": 0.0} if name in PREEMPTIVE else {}
    workload = Workload.build("bands", rows)
    return simulate(workload, parse_cluster(nodes), make_policy(name, parameters), costs=Costs(), site=site)


jobs = st.fixed_dictionaries({
    "submit_s": st.integers(0, 60), "run_s": st.integers(1, 40), "gpus": st.sampled_from([1, 1, 2, 3, 4, 6]),
    "qos": st.sampled_from(["high", "middle", "low"]), "user": st.sampled_from("abc"),
})  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(rows=st.lists(jobs, min_size=2, max_size=14), name=st.sampled_from(PREEMPTIVE), best=st.sampled_from([1, 2]))
def test_no_job_starts_later_than_without_those_of_worse_bands(
    rows: list[dict[str, Any]], name: str, best: int
) -> None:
    """Where they can be preempted at once and for nothing; then it ends no later either, as it is never stopped for them."""
    names = ("high", "middle", "low")[:best]
    labelled = [{**row, "label": f"j{at}"} for at, row in enumerate(rows)]
    alone_rows = [row for row in labelled if row["qos"] in names]
    if not alone_rows:
        return
    together, alone = (run(name, some, "2x4", "qos") for some in (labelled, alone_rows))
    at = [together.workload.label.index(label) for label in alone.workload.label]
    np.testing.assert_allclose(together.first_start_s[at], alone.first_start_s)
    np.testing.assert_allclose(together.end_s[at], alone.end_s)


@pytest.mark.parametrize("name", NOT_PREEMPTIVE)
def test_an_endless_stream_of_worse_jobs_delays_a_gang_by_one_time_limit_at_most(name: str) -> None:
    """Those that run when it comes are not stopped; those that come later do not stay beyond them."""
    stream = [
        {"submit_s": 7 * at, "run_s": 90, "time_limit_s": 100.0, "gpus": 1, "qos": "low", "user": f"u{at}"}
        for at in range(300)
    ]
    gang = {"submit_s": 500, "run_s": 50, "time_limit_s": 60.0, "gpus": 8, "qos": "high", "label": "gang"}
    outcome = run(name, [*stream, gang], "1x8", "qos")
    assert outcome.first_start_s[outcome.workload.label.index("gang")] <= 600


@pytest.mark.parametrize("name", ["sjf", "smallest", "fifo-skip"])
def test_without_bands_it_waits_for_the_end_of_the_stream(name: str) -> None:
    stream = [
        {"submit_s": 7 * at, "run_s": 90, "time_limit_s": 100.0, "gpus": 1, "qos": "low", "user": f"u{at}"}
        for at in range(300)
    ]
    gang = {"submit_s": 500, "run_s": 95, "time_limit_s": 100.0, "gpus": 8, "qos": "high", "label": "gang"}
    outcome = run(name, [*stream, gang], "1x8", "off")
    assert outcome.first_start_s[outcome.workload.label.index("gang")] > 2000


@pytest.mark.parametrize("name", PREEMPTIVE)
def test_jobs_that_cannot_be_preempted_do_not_pass_a_gang_either(name: str) -> None:
    stream = [
        {"submit_s": 7 * at, "run_s": 90, "time_limit_s": 100.0, "gpus": 1, "qos": "low", "user": f"u{at}",
         "preemptible": False}
        for at in range(100)
    ]  # fmt: skip
    gang = {"submit_s": 300, "run_s": 500, "time_limit_s": 600.0, "gpus": 8, "qos": "high", "label": "gang"}
    outcome = run(name, [*stream, gang], "1x8", "qos")
    assert outcome.first_start_s[outcome.workload.label.index("gang")] <= 400
