"""The sharing demo without a cluster: its jobs, the daemon's configuration, the forecast, the report."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from slurm_soda.containers.images import find_checkout
from slurm_soda.daemon.settings.config_file import load_settings
from slurm_soda.demo.accounting import MixJobRecord, MixJobRun
from slurm_soda.demo.report_files import REPORT
from slurm_soda.demo.sharing_mix.sharing_forecast import forecast_sharing
from slurm_soda.demo.sharing_mix.sharing_jobs import (
    CHECKPOINTS,
    LONGEST_S,
    SHORTEST_S,
    TIME_SCALE,
    batch_script,
    draw_sharing_mix,
    sbatch_argv,
)
from slurm_soda.demo.sharing_mix.sharing_report import headline_text, report_document, table_rows, write_report
from slurm_soda.demo.sharing_mix.sharing_runs import (
    PARAMETERS,
    PHASES,
    POLICIES,
    SharingDemoResult,
    SharingDemoSettings,
    SharingPhaseResult,
    daemon_configuration,
)
from slurm_soda.demo.sharing_mix.speed_table import GPU_TYPE, make_table, read_slowdowns, read_speeds
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.simulator.speed.pair_table import load_pairs

TRAINER = find_checkout() / "emulation" / "trainer"
SPEEDS = read_speeds(TRAINER)
TABLE = make_table(SPEEDS, read_slowdowns(TRAINER), TIME_SCALE)


def test_the_same_seed_draws_the_same_jobs() -> None:
    mix = draw_sharing_mix(3, 24, SPEEDS)
    assert mix == draw_sharing_mix(3, 24, SPEEDS) != draw_sharing_mix(4, 24, SPEEDS)
    assert len({job.name for job in mix}) == len(mix) == 24
    assert [job.arrival_s for job in mix] == sorted(job.arrival_s for job in mix)
    assert all(SHORTEST_S * 0.9 <= job.run_s <= LONGEST_S * 1.1 for job in mix)
    assert np.median([job.run_s for job in mix]) > 30
    assert sum(job.checkpoints for job in mix) == round(24 * CHECKPOINTS)


def test_a_job_says_what_its_program_does() -> None:
    for job in draw_sharing_mix(1, 24, SPEEDS):
        argv, script = sbatch_argv(job, SPEEDS), batch_script(job, SPEEDS)
        assert ("--soda-checkpoint=TERM" in argv) == job.checkpoints == ("--checkpoint-dir" in script)
        assert f"--soda-iterations={job.iterations}" in argv
        assert f"--iterations={job.iterations} " in script
        assert "--soda-share=yes" in argv


def test_a_table_of_speeds_is_one_that_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "table.json").write_text(TABLE)
    table = load_pairs(tmp_path / "table.json")
    assert table.fastest() == GPU_TYPE


@pytest.mark.parametrize("phase", PHASES)
def test_the_daemon_accepts_each_configuration(phase: str, tmp_path: Path) -> None:
    (tmp_path / "soda.toml").write_text(daemon_configuration(phase))  # type: ignore[arg-type] # phases are literals
    loaded = load_settings(tmp_path / "soda.toml")
    assert loaded.mode == ("observe" if phase == "stock" else "enforce")
    assert bool(loaded.sharing.partitions) == (phase == "sharing")
    assert (loaded.policy.name, loaded.policy.parameters) == (POLICIES[phase], PARAMETERS[phase])  # type: ignore[index]
    make_policy(loaded.policy.name, loaded.policy.parameters)


@pytest.mark.parametrize("seed", [1, 5, 12])
def test_the_simulator_foretells_every_run(seed: int) -> None:
    """The policy once asked, in these, to be asked again at once and for ever."""
    found = forecast_sharing(draw_sharing_mix(seed, 24, SPEEDS), SPEEDS, TABLE, PHASES)
    assert set(found) == set(PHASES)
    assert found["sharing"] < found["tiresias"]


def test_a_report_holds_all_that_the_page_needs(tmp_path: Path) -> None:
    mix = draw_sharing_mix(1, 8, SPEEDS)
    jobs = tuple(
        MixJobRecord(n + 1, job.user, job.name, "COMPLETED", job.gpus, 10.0 * n, 10.0 * n + 30,
                     (MixJobRun(10.0 * n + 5, 10.0 * n + 30, "COMPLETED", "n1"),))
        for n, job in enumerate(mix)
    )  # fmt: skip
    share = {
        "job_id": 2,
        "restart": 0,
        "hosts": [1],
        "nodes": ["n1"],
        "gpus": [0],
        "phase": "over",
        "reason": "it <ended>",
    }
    runs = {phase: SharingPhaseResult(jobs, {}, [share] if phase == "sharing" else []) for phase in PHASES}
    report = report_document(SharingDemoSettings(), SharingDemoResult(mix, TABLE, runs, {"slurm": "24.11.5"}))
    write_report(report, tmp_path)
    assert json.loads((tmp_path / REPORT).read_text()) == report
    assert report["runs"]["sharing"]["shares"] == [share]
    page = (tmp_path / "index.html").read_text()
    assert mix[1].name in page
    assert "it &lt;ended&gt;" in page
    assert (tmp_path / "sharing.png").read_bytes().startswith(b"\x89PNG")
    assert headline_text(report).startswith("With sharing jobs complete in 30 s on average; 30 s under Stock Slurm")
    assert {len(row) for row in table_rows(report)} == {5}
