"""Requests to drain that a router found when it began, before sodad has said anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_soda.services.router.drain_requests import DrainRequests
from slurm_soda.services.router.routed_instances import RoutedInstance
from slurm_soda.services.router.runtime_socket import ServerStats
from slurm_soda.services.router.service_folder import ServiceFolder
from slurm_soda.wire.services.instance_file import InstanceFile
from slurm_soda.wire.services.service_file import read_service_file

SERVICE = 'name = "chat"\ncommand = "serve {port}"\n[cpu]\n'


def view(job_id: int, state: str) -> RoutedInstance:
    instance = InstanceFile("chat", job_id, "n1", 9000, "cpu", state, 0.0, 0.0)
    status = "UP" if state == "ready" else "DRAIN"
    return RoutedInstance(f"n1.{job_id}", instance, False, False, ServerStats(status, "L7OK"))


@pytest.fixture
def requests(tmp_path: Path) -> DrainRequests:
    folder = ServiceFolder(tmp_path / "chat.toml", read_service_file(SERVICE, "chat.toml"))
    return DrainRequests(folder, lambda _text: None)


def test_those_found_are_kept_also_while_their_instance_serves_on(requests: DrainRequests) -> None:
    requests.choose([view(1, "ready")], {"n1.1"})
    assert not requests.chosen, "no other instance is ready"
    requests.choose([view(1, "ready"), view(2, "ready")], ())
    assert requests.chosen == {"n1.1"}


def test_a_new_run_of_a_job_on_its_node_is_not_asked_for_the_one_before(requests: DrainRequests) -> None:
    requests.choose([view(1, "draining"), view(2, "ready")], {"n1.1"})
    assert requests.chosen == {"n1.1"}
    for state in ("starting", "ready"):  # it has removed the file
        requests.choose([view(1, state), view(2, "ready")], ())
        assert not requests.chosen, state
