"""What `sodactl demo` prints at the end, with a demo that nobody ran."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_soda.demo.cluster_runs import DemoObserver
from slurm_soda.demo.job_mix.demo_settings import DemoSettings
from slurm_soda.demo.job_mix.mix_jobs import draw_mix
from slurm_soda.demo.job_mix.sacct_dump import whatif_command
from slurm_soda.sodactl.containers import demo
from slurm_soda.sodactl.main import run


def test_it_ends_with_what_to_type_next(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    figures = {"avg_jct_s": 20.0, "p50_jct_s": 10.0, "p95_jct_s": 40.0, "avg_queue_s": 5.0, "makespan_s": 60.0,
               "gpu_util_ratio": 0.5, "preemptions": 1}  # fmt: skip
    asked: list[DemoSettings] = []

    def run_demo(settings: DemoSettings, watch: DemoObserver) -> dict[str, Any]:
        asked.append(settings)
        return {
            "runs": {"stock": figures, "soda": figures},
            "whatif_command": whatif_command(settings, draw_mix(settings.seed)),
        }

    monkeypatch.setattr(demo, "run_demo", run_demo)
    assert run(["demo", "--seed", "7", "--out", "there"]) == 0
    assert asked[0].seed == 7
    assert capsys.readouterr().out.splitlines()[-1] == (
        "next: sodactl whatif --sacct there/sacct-stock.txt --restart-cost-s=0.3 --tell-progress --set change_s=1"
    )
