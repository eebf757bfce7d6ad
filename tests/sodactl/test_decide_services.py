"""``sodactl decide`` with services in the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurm_soda.policies.snapshot_file.document import write_dump
from slurm_soda.sodactl.main import run
from tests.policies.services.test_service_file import dump


def test_what_services_get_is_told_with_the_figures(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "dump.json"
    file.write_bytes(write_dump(dump()))
    assert run(["decide", str(file)]) == 0
    text = " ".join(capfd.readouterr().out.split())
    assert "scale:secret-ann/secret-chat:cpu 0 on CPU cores load 600 q/s;" in text
    assert "scale:secret-ann/secret-chat:gpu 4 on secret-gpu GPUs, first load 600 q/s;" in text
    assert "the same as sodad decided" in text
    assert run(["decide", str(file), "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert [one["id"] for one in document["actions"]][-1] == "preempt:8002"
    assert document["same_as_recorded"] is True
