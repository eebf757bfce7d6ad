"""The section on services: what it writes comes from the runs beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.reproduce import services, services_pictures
from benchmarks.reproduce.simulation import Results, run_command
from slurm_soda.policies.services.service import Device

WANTED = (("kelp-fifo", ""), ("coda", ""), ("coda", "packed"), ("soda", ""))


@pytest.fixture(scope="module")
def results() -> Results:
    """A few hours of the first seed."""
    lines = [services.line(system, 1, serve) for system, serve in WANTED]
    return {text: run_command(text.replace("soda-month", "soda-month --jobs 300"), None) for text in lines}


def test_systems_serve_as_the_paper_says(results: Results) -> None:
    """The baselines hold 32 GPUs, packing and placement fewer, and only SODA uses cores; no query is late or lost."""
    held = {
        wanted: services.record_of(results[services.line(wanted[0], 1, wanted[1])]).instances.sum(axis=0)
        for wanted in WANTED
    }
    assert held["kelp-fifo", ""][Device.GPU] == held["coda", ""][Device.GPU] == 32.0
    assert max(held["coda", "packed"][Device.GPU], held["soda", ""][Device.GPU]) < 32.0
    assert [bool(one[Device.CPU]) for one in held.values()] == [False, False, False, True]
    assert all(
        services.record_of(one).over.sum() + services.record_of(one).lost.sum() == 0.0 for one in results.values()
    )


def test_the_section_is_written(results: Results) -> None:
    """With the runs that there are, and with none."""
    text = "\n".join(services.section().write(results).lines)
    utilisation = results[services.line("soda", 1)].run.summary.gpu_busy_ratio
    assert f"| SODA | 65.4 | {100 * utilisation:.1f} |" in text
    assert "wavenet-1" in text
    assert services.section().write({}).claims == []


def test_pictures_are_drawn(results: Results, tmp_path: Path) -> None:
    services_pictures.draw(results, 80 * 28, tmp_path, "soda-services")
    assert {path.name for path in tmp_path.iterdir()} == {"soda-services-hours.png", "soda-services-latency.png"}
