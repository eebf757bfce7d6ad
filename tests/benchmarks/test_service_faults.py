"""What the benchmark of services' faults serves, sees, and holds against what is wanted."""

from __future__ import annotations

import json
import math
import tomllib
from typing import Any

import pytest

from benchmarks.service_faults.findings import IN_FLIGHT_THERE, findings_of
from benchmarks.service_faults.served_model import (
    BURST_QPS,
    DAEMON_TOML,
    HEADROOM,
    HIGH_QPS,
    LOW_QPS,
    SERVER_TEXT,
    profile_document,
    service_text,
)
from benchmarks.service_faults.service_cluster import CORES, NODES
from benchmarks.service_faults.service_watch import least_ready, most_ready, read_sight
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.services.router.routed_instances import BATCHES_IN_FLIGHT
from slurm_soda.wire.services.service_file import read_service_file
from slurm_soda.wire.services.service_profile import ServiceProfile


def test_loads_are_on_either_side_of_the_switching_point_and_a_burst_takes_all_nodes() -> None:
    profile = ServiceProfile.from_dict(profile_document(500.0, 0.0), "profile")
    cpu, gpu = (HEADROOM * 1000.0 * one.batch / one.batch_ms for one in profile.devices)
    assert 0.9 * cpu > LOW_QPS
    assert cpu < HIGH_QPS < cpu / HEADROOM < gpu
    assert math.ceil(10 * BURST_QPS / cpu) == NODES * CORES
    service = read_service_file(service_text(500.0), "service")
    assert (service.cpu and service.cpu.batch) == profile.devices[0].batch
    assert BATCHES_IN_FLIGHT * profile.devices[0].batch == IN_FLIGHT_THERE
    assert Settings.model_validate(tomllib.loads(DAEMON_TOML)).services.headroom == HEADROOM
    compile(SERVER_TEXT, "server.py", "exec")


def instance(job_id: int, state: str = "ready", device: str = "cpu") -> dict[str, Any]:
    return {
        "job_id": job_id,
        "device": device,
        "state": state,
        "host": "n1",
        "since_s": 1.0,
        "queries": 2,
        "reason": "",
    }


def answer(*instances: dict[str, Any]) -> str:
    return json.dumps({"services": [{"name": "answers", "load_qps": 3.0, "reason": "", "instances": instances}]})


def test_a_sight_has_what_serves_and_nothing_else_of_another_service() -> None:
    sight = read_sight(answer(instance(1), instance(2, "draining")), "answers", 5.0)
    assert sight is not None
    assert [one.job_id for one in sight.ready] == [1]
    assert not sight.serves(1)
    whole = read_sight(answer(instance(1, device="gpu")), "answers", 6.0)
    assert whole is not None
    assert (whole.serves(1), whole.serves(1, "gpu"), whole.serves(1, "cpu"), whole.serves(2)) == (
        True,
        True,
        False,
        False,
    )
    assert (least_ready([sight, whole]), most_ready([sight, whole]), least_ready([])) == (1, 1, 0)
    assert read_sight(answer(instance(1)), "another", 5.0) is None
    assert read_sight(answer(instance(1))[:-1], "answers", 5.0) is None


FIGURES = {"queries": 100, "errors": 0, "violations": 1, "errors_by_kind": {}} | dict.fromkeys(
    ("p50_ms", "p95_ms", "p99_ms", "max_ms"), 40.0
)
SODAD = {"handovers": 4, "handover_s": 12.0, "requeues": 4, "open_actions": 0}
KILLS = {
    "kinds": ["step", "server"],
    "lost": [0, 4],
    "in_flight": [3, 2],
    "back_after_s": [0.0, 30.0],
    "ready_again_after_s": [9.0, 3.5],
}
BURST = {
    "bursts": 2,
    "burst_answered_after_s": [11.0, 15.0],
    "least_ready": [1, 1],
    "most_ready": [4, 3],
    "second_begins_after_s": [3.0, 4.0],
    "second_ready_after_s": [6.0, 7.0],
}


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("load", {"handovers": 4, "handover_s": 12.0}, {"errors": 1}),
        ("drains", {"handovers": 4, "handover_s": 12.0}, {"errors": 1}),
        ("sodad", SODAD, {"requeues": 5}),
        ("sodad", SODAD, {"open_actions": 1}),
        ("instances", KILLS, {"lost": [0, 5]}),
        ("nodes", KILLS | {"down_after_s": [25.0, 26.0]}, {"back_after_s": [35.0, 0.0]}),
        ("burst", BURST, {"burst_answered_after_s": [11.0, 15.1]}),
        ("burst", BURST, {"least_ready": [1, 0]}),
        ("burst", BURST, {"most_ready": [4, 1]}),
        ("burst", BURST, {"errors": 3, "errors_by_kind": {"status 503": 3}}),
    ],
)
def test_what_is_wanted_is_held_against_what_was_found(name: str, good: dict[str, Any], bad: dict[str, Any]) -> None:
    assert all(one.holds for one in findings_of(name, FIGURES | good, 500.0))
    assert [one.holds for one in findings_of(name, FIGURES | good | bad, 500.0)].count(False) == 1


def test_a_scenario_that_did_not_end_is_told() -> None:
    (found,) = findings_of("burst", {"failed": "not within 120 s: one instance"}, 500.0)
    assert not found.holds
    assert "120 s" in found.found
