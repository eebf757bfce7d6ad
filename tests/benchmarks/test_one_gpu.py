"""Jobs of one GPU and slowdowns of pairs, both drawn."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from benchmarks.one_gpu import GPU, KNOWN, draw_pair_table, main, make_scenario
from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.simulator.generators.families.sites import GAVEL_KINDS
from slurm_soda.simulator.sharing.true_slowdowns import DOES_NOT_FIT, MeasuredSlowdowns
from slurm_soda.simulator.speed.pair_table import load_pairs


def test_a_drawn_table_has_all_pairs_and_is_the_same_for_a_seed(tmp_path: Path) -> None:
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps(draw_pair_table(3)))
    assert draw_pair_table(3) == json.loads(path.read_text()) != draw_pair_table(4)
    truth = MeasuredSlowdowns(load_pairs(path), GPU)
    kinds = [JobKind(model, batch, GPU) for model, batch in GAVEL_KINDS]
    xi = np.array([[truth.pair_xi(one, other) for other in kinds] for one in kinds])
    fits = xi < DOES_NOT_FIT
    assert (fits == fits.T).all()
    assert 0.7 < fits.mean() <= 1.0
    assert (xi >= 1.0).all()
    assert 1.1 < np.median(xi[fits]) < 2.0
    assert xi[fits].max() < 4.0


def test_each_kind_of_knowledge_is_what_it_says(tmp_path: Path) -> None:
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps(draw_pair_table(1)))
    for known, (estimates, knowledge) in KNOWN.items():
        scenario = make_scenario(1, 12, 1.5, known, path)
        assert scenario.predicted == (estimates == "predicted")
        assert scenario.sharing is not None
        assert scenario.sharing.knowledge == knowledge
        assert (scenario.workload.gpus == 1).all()


def test_the_table_names_each_run() -> None:
    told = CliRunner().invoke(main, ["--seeds", "2", "--jobs", "6"])
    assert told.exit_code == 0, told.output
    lines = told.output.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["srsf-share", "soda", "soda", "soda", "soda"]
    assert "1.000 (1.000 to 1.000)" in lines[1]
    assert CliRunner().invoke(main, ["--seeds", "x"]).exit_code == 1
