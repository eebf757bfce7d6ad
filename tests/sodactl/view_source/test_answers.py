"""Without rights on the store sodad gives the same answers as the store."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from slurm_soda.daemon.api.view_json import ViewJsonError, decode_view
from slurm_soda.daemon.learning.pair_view import PairView
from slurm_soda.daemon.store.cpu_fit import storable_text
from slurm_soda.daemon.store.tables.cpu_fit import CpuFitRow, CpuMeasurementRow, CpuProposalRow
from slurm_soda.daemon.store.tables.kind_profiles import ProfileValueRow
from slurm_soda.daemon.store.tables.scheduling import AdminSetting
from slurm_soda.slurm_ext.hints.flags import Hints
from tests.daemon.api_server import signed
from tests.sodactl.conftest import HOSTILE, NOW_S, SUBMIT_S, Bench, record
from tests.sodactl.view_source.conftest import fill, leave

COMMANDS = [["explain", "7"], ["explain", "8"], ["jobs"], ["status", "--timings"]]


@pytest.mark.sample(5)
@pytest.mark.parametrize("argv", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("text", HOSTILE)
def test_sodad_tells_what_the_store_holds(soda: Bench, sodad: str, argv: list[str], text: str) -> None:
    fill(soda, text)
    at_home = [soda(*argv, "--json"), soda(*argv)]
    leave(soda, sodad)
    away = [soda(*argv, "--json"), soda(*argv)]
    assert away == at_home
    assert away[0].document["warnings"] == []


@pytest.mark.parametrize("ids", [("7", "5"), ("5", "7")])
def test_sodad_tells_of_a_pair_what_the_store_holds(soda: Bench, sodad: str, ids: tuple[str, str]) -> None:
    fill(soda)
    kind = {"gpu_type": "", "gpus": 1, "at_s": NOW_S, "source": 0}
    soda.add(
        *(
            ProfileValueRow(model="resnet50", batch=batch, quantity=quantity, value=value, error=0.5, **kind)
            for batch, quantity, value in [
                (64, "iteration_s", 0.5),
                (32, "iteration_s", 0.3),
                (64, "memory_mib", 9000.0),
                (32, "memory_mib", 5000.0),
            ]
        ),
        ProfileValueRow(model="lm", batch=0, quantity="memory_mib", value=4000.0, error=None, **kind),
        ProfileValueRow(model="", batch=0, quantity="device_mib", value=12_000.0, error=0.0, **kind),
        ProfileValueRow(
            model="lm", batch=0, quantity="xi", value=1.1, error=None, partner="resnet50", partner_batch=32, **kind
        ),
    )
    mine, its = (
        Hints(model="ResNet-50", batch_size=64, iterations=900, accumulates=True),
        Hints(model="lm", max_slowdown=1.5),
    )
    soda.slurm.queue = [record(5, gpus=1, hints=its), record(7, gpus=1, hints=mine)]
    argv = ["explain", ids[0], "--with", ids[1]]
    at_home = [soda(*argv, "--json"), soda(*argv)]
    leave(soda, sodad)
    away = [soda(*argv, "--json"), soda(*argv)]
    assert away == at_home
    assert away[0].document["warnings"] == []
    assert len(away[0].document["decision"]["trials"]) == (7 if ids[0] == "7" else 1)


def test_a_pair_that_nobody_can_tell_of_is_one_line(soda: Bench) -> None:
    leave(soda, "http://127.0.0.1:1")
    soda.slurm.queue = [record(5, hints=Hints(model="a")), record(7, hints=Hints(model="b"))]
    shown = soda("explain", "7", "--with", "5", status=1)
    assert shown.err.count("\n") == 1
    assert "http://127.0.0.1:1" in shown.err


PAIR: dict[str, Any] = {"new": None, "running": None, "device_mib": None, "slowdowns": []}
ALONE = {"iteration_s": None, "memory_mib": None, "throughput": None, "footprint": None}


@pytest.mark.parametrize(
    "body",
    [
        {},
        PAIR,
        {**PAIR, "new": ALONE, "running": ALONE},
        {
            **PAIR,
            "new": {**ALONE, "iteration_s": {"value": None, "error": None, "source": "measured"}},
            "running": ALONE,
        },
        {
            **PAIR,
            "new": {**ALONE, "iteration_s": {"value": 1.0, "error": -1.0, "source": "measured"}},
            "running": ALONE,
        },
        {**PAIR, "new": {**ALONE, "iteration_s": {"value": 1.0, "error": 1.0, "source": "gossip"}}, "running": ALONE},
        {**PAIR, "new": {**ALONE, "throughput": {"fixed_s": -1.0, "per_sample_s": 0.0, "comm_s": 0.0, "overlap": 1.0}}},
    ],
)
def test_what_is_no_pair_is_not_believed(body: Any) -> None:
    with pytest.raises(ViewJsonError):
        decode_view(PairView, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("model=a&other_model=b", 200),
        ("model=a&other_model=b&batch=9999999&other_batch=1&gpus=4&gpu_type=v100", 200),
        ("model=a", 422),
        ("model=&other_model=b", 422),
        ("model=a&other_model=b&batch=-1", 422),
        ("model=a&other_model=b&batch=10000000", 422),
        ("model=a&other_model=b&gpus=0", 422),
        (f"model={'a' * 65}&other_model=b", 422),
    ],
)
def test_only_kinds_of_jobs_can_be_asked_for(soda: Bench, sodad: str, query: str, status: int) -> None:
    headers = signed(soda.munged, f"/v1/pair?{query}")
    answer = httpx.get(f"{sodad}/v1/pair?{query}", headers=headers, trust_env=False, verify=False)
    assert answer.status_code == status


CORES = ["fit", "fit --user alice", "fit --job 7", "fit --jobs --limit 1", "fit --category nlp", "fit --since 1h"]


@pytest.mark.sample(3)
@pytest.mark.parametrize("argv", [line.split() for line in CORES], ids=CORES)
@pytest.mark.parametrize("text", HOSTILE[::4])
def test_sodad_tells_of_cores_what_the_store_holds(soda: Bench, sodad: str, argv: list[str], text: str) -> None:
    fill(soda, text)
    figures = {"restart": 0, "node": "n1", "at_s": SUBMIT_S + 60, "search": 0, "cores": 3, "most_cores": 8, "gpus": 2,
               "utilisation_ratio": 0.5}  # fmt: skip
    soda.add(
        CpuProposalRow(
            job_id=7, submit_s=SUBMIT_S, at_s=NOW_S, asked_cores=20, cores=None, left_alone=storable_text(text, 255)
        ),
        CpuMeasurementRow(job_id=7, step=0, spread_ratio=0.1, samples=60, **figures),
        CpuFitRow(
            job_id=7,
            submit_s=SUBMIT_S,
            user="alice",
            nodes=1,
            asked_cores=20,
            start_cores=3,
            steps=0,
            start_ratio=0.5,
            reason="best_fit",
            **figures,
        ),
    )
    at_home = [soda(*argv, "--json"), soda(*argv)]
    leave(soda, sodad)
    assert [soda(*argv, "--json"), soda(*argv)] == at_home


def test_it_is_told_without_slurm_too(soda: Bench, sodad: str) -> None:
    fill(soda)
    soda.slurm.down = True
    at_home = [soda("explain", "7"), soda("jobs")]
    leave(soda, sodad)
    assert [soda("explain", "7"), soda("jobs")] == at_home


def test_sodads_configuration_counts_not_the_login_nodes(soda: Bench, sodad: str) -> None:
    fill(soda)
    with soda.store.write() as session:
        session.delete(session.get_one(AdminSetting, "mode"))
    own = 'mode = "advise"\n[policy]\nname = "tiresias-las"\nparameters = {thresholds_gpu_s = [200.0, 500.0]}\n'
    soda.config.with_name("sodad.toml").write_text(own)
    leave(soda, sodad)
    assert soda("status", "--json").document["mode"] == "advise"
    document = soda("explain", "7", "--json").document
    assert (document["mode"], document["numbers"]["leaves_queue_at_gpu_s"]) == ("advise", 500.0)


@pytest.mark.parametrize(
    "argv", [["mode", "advise"], ["policy", "fifo"], ["undo", "--last", "1"]], ids=lambda argv: argv[0]
)
def test_to_change_something_takes_the_store(soda: Bench, sodad: str, argv: list[str]) -> None:
    fill(soda)
    leave(soda, sodad)
    shown = soda(*argv, status=1)
    assert "does not exist" in shown.err
    assert shown.err.count("\n") == 1
