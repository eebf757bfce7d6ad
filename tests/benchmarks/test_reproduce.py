"""The reproduction: its lower bound by hand, and its figures are what the commands beside them give."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import click
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

# The benchmarks are no part of the package, so they are found by their place.
from benchmarks.reproduce import pollux, regret, sharing
from benchmarks.reproduce.__main__ import sections
from benchmarks.reproduce.bounds import lower_bound_s, srpt_s
from benchmarks.reproduce.simulation import Results, check_data, command, data_files, run_command
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.engine.run import simulate
from slurm_soda.simulator.workload import Workload
from slurm_soda.sodactl.main import run

DATA = Path(__file__).parents[3] / "shared/data"


@pytest.mark.parametrize(
    ("submit_s", "work_s", "average_s"),
    [
        ([0.0], [5.0], 5.0),
        ([0.0, 0.0], [4.0, 2.0], 4.0),
        ([0.0, 1.0], [10.0, 2.0], 7.0),  # the second one passes the first: 12 and 2
        ([0.0, 9.0], [10.0, 2.0], 6.5),  # it does not: 10, and 2 after one second of waiting
        ([0.0, 100.0], [1.0, 1.0], 1.0),
    ],
)
def test_one_machine_that_works_on_the_shortest_rest(
    submit_s: list[float], work_s: list[float], average_s: float
) -> None:
    assert srpt_s(submit_s, work_s) == average_s


@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {"submit_s": st.integers(0, 50), "run_s": st.integers(1, 60), "gpus": st.sampled_from((1, 2, 4, 8))}
        ),
        min_size=1,
        max_size=15,
    )
)
def test_nobody_is_below_the_bound(rows: list[dict[str, int]]) -> None:
    workload = Workload.build("drawn", rows)
    bound_s = lower_bound_s(workload, 8)
    for name in ("fifo", "fifo-skip", "srtf", "srsf", "tiresias-las"):
        outcome = simulate(workload, parse_cluster("2x4"), make_policy(name))
        assert float(np.mean(outcome.end_s - workload.submit_s)) >= bound_s * (1 - 1e-9)


def test_a_figure_is_what_its_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    line = command(
        "--workload small --jobs 60 --seed 3 --cluster 16x4", "srtf", "min_run_s=30", options="--restart-cost-s 5"
    )
    found = run_command(line, None)
    assert run([*line.split()[1:], "--json"]) == 0
    assert found.avg_s == pytest.approx(json.loads(capsys.readouterr().out)["avg_jct_s"], abs=1e-3)


@pytest.mark.parametrize(("data", "pairs"), [(False, False), (True, False), (True, True)])
def test_sections_name_their_commands(data: bool, pairs: bool) -> None:
    parts = sections(data=data, pairs=pairs)
    lines = [line for part in parts for line in part.commands]
    assert len({part.title for part in parts}) == len(parts) > 3
    assert all(line.startswith("sodactl simulate ") for line in lines)
    assert bool(data_files(lines)) == data


def test_traces_that_are_not_there_are_named(tmp_path: Path) -> None:
    line = command("--trace $DATA/some/where.csv --cluster 1x1", "fifo")
    with pytest.raises(click.ClickException, match=r"some/where\.csv"):
        check_data([line], tmp_path)


@pytest.mark.skipif(not (DATA / sharing.PAIRS).exists(), reason=f"{DATA / sharing.PAIRS} is not there")
@pytest.mark.thorough
@pytest.mark.parametrize("load", sharing.LOADS)
def test_wise_sharing_keeps_the_ratio_of_its_paper(load: str) -> None:
    """On Pollux' workloads; the whole table is in docs/reproduction.md."""
    lines = [make(load, seed) for make in (_bsbf, pollux.theirs) for seed in pollux.SEEDS]
    mean_s = [run_command(line, DATA).avg_s for line in lines]
    assert sum(mean_s[:4]) <= sharing.RATIO * sum(mean_s[4:])


def _bsbf(load: str, seed: int) -> str:
    return sharing.on_pollux(load, seed, "sjf-bsbf")


@pytest.mark.parametrize(("factor", "holds"), [(1.05, True), (1.09, False)])
def test_regret_is_over_the_truth_and_worst_of_the_workloads_means(factor: float, holds: bool) -> None:
    part = regret.section()
    worse = {line for line in part.commands if "load-2.0" in line and "predicted" in line and "sjf-bsbf" in line}
    found = {line: SimpleNamespace(avg_s=1000.0 * (factor if line in worse else 1.0)) for line in part.commands}
    written = part.write(cast(Results, found))
    assert len(worse) == 4
    assert [claim.holds for claim in written.claims] == [holds]
    assert f"at most {factor:.3f} in the mean of every workload" in written.claims[0].text
    row = next(line for line in written.lines if line.startswith("| Pollux, load 2.0 | `sjf-bsbf`"))
    assert row.endswith(f"| {factor:.3f} ({factor:.3f} to {factor:.3f}) | 1.000 (1.000 to 1.000) |")
