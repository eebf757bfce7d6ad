"""The pieces of a run that need no cluster."""

from __future__ import annotations

import json
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.daemon.settings.config_file import load_settings
from slurm_soda.demo.accounting import MixJobRecord, MixJobRun
from slurm_soda.demo.cluster_runs import DemoPhaseResult, parse_driver_events
from slurm_soda.demo.job_mix.demo_settings import DemoSettings, daemon_configuration
from slurm_soda.demo.job_mix.mix_demo import report_document, write_report
from slurm_soda.demo.job_mix.mix_jobs import draw_mix
from slurm_soda.policies.registry.catalog import make_policy, policy_names


@pytest.mark.parametrize("policy", policy_names())
def test_the_daemon_accepts_the_configuration(policy: str, tmp_path: Path) -> None:
    text = daemon_configuration(DemoSettings(policy=policy), draw_mix(1))
    (tmp_path / "soda.toml").write_text(text)
    loaded = load_settings(tmp_path / "soda.toml")
    assert loaded.mode == "observe"
    assert make_policy(loaded.policy.name, loaded.policy.parameters).name == policy


def test_thresholds_shrink_with_time() -> None:
    tiresias = DemoSettings(policy="tiresias-las", time_scale=100)
    text = daemon_configuration(tiresias, draw_mix(1, time_scale=100))
    assert tomllib.loads(text)["policy"]["parameters"]["thresholds_gpu_s"] == [32.0]


@given(st.lists(st.integers(1, 9)), st.data())
def test_events_survive_any_cut_of_the_stream(sizes: list[int], data: st.DataObject) -> None:
    events = [{"event": "queue", "n": i, "text": "ä\u2028|"} for i in range(len(sizes))]
    stream = "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    edges = [0, *cuts, len(stream)]
    chunks: list[tuple[int, bytes]] = [(1, stream[a:b]) for a, b in pairwise(edges)]
    chunks.insert(len(chunks) // 2, (2, b"a warning"))
    said: list[str] = []
    assert list(parse_driver_events(chunks, said)) == events
    assert said == ["a warning"]


def test_a_report_holds_all_that_the_page_needs(tmp_path: Path) -> None:
    mix = draw_mix(1)
    jobs = tuple(
        MixJobRecord(n + 1, job.user, job.name, "COMPLETED", job.gpus, 10.0 * n, 10.0 * n + 30,
                 (MixJobRun(10.0 * n + 5, 10.0 * n + 30, "COMPLETED", "n1"),))
        for n, job in enumerate(mix.jobs)
    )  # fmt: skip
    results = {"stock": DemoPhaseResult(jobs, {}), "soda": DemoPhaseResult(jobs, {})}
    report = report_document(DemoSettings(), mix, results, {"slurm": "24.11.5"})  # type: ignore[arg-type] # phases are literals
    write_report(report, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"report.json", "index.html", "gantt.png", "jct.png"}
    read = json.loads((tmp_path / "report.json").read_text())
    assert read == report
    assert read["soda_over_stock"]["avg_jct"] == 1.0
    assert read["runs"]["soda"]["jobs"] == 30
    assert any("--soda-model" in line for line in read["commands"])
    assert read["predicted"] is None
    assert read["whatif_command"].startswith("sodactl whatif --sacct build/demo/sacct-stock.txt ")
