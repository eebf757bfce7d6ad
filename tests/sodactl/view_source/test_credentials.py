"""Whom sodad believes and what it shows him: one line that says why not."""

from __future__ import annotations

import pytest

from slurm_soda.daemon.api import viewers
from tests.daemon.api_server import FakeRights
from tests.sodactl.conftest import Bench, stored_job
from tests.sodactl.view_source.conftest import fill, leave


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (14, "made with another key, or altered; give all hosts the same munge.key"),
        (15, "has expired; check the clocks"),
        (16, "comes from the future; check the clocks"),
        (17, "was used before"),
        (6, "sodad cannot check credentials: unmunge exited with status 6"),
    ],
)
def test_why_sodad_does_not_believe_a_credential_is_one_line(soda: Bench, sodad: str, refusal: int, said: str) -> None:
    fill(soda)
    leave(soda, sodad)
    soda.munged.refusal = refusal
    shown = soda("status", status=1)
    assert shown.err.count("\n") == 1
    assert said in shown.err
    (warning,) = soda("jobs", "--json").document["warnings"]
    assert said in warning


def test_without_munged_on_this_host_sodad_is_not_asked(soda: Bench, sodad: str) -> None:
    fill(soda)
    leave(soda, sodad)
    soda.munged.is_silent = True
    shown = soda("status", status=1)
    assert shown.err.count("\n") == 1
    assert "check that munged runs on this host" in shown.err


def test_a_host_with_too_many_false_credentials_is_told_when_to_come_again(soda: Bench, sodad: str) -> None:
    fill(soda)
    leave(soda, sodad)
    soda.munged.refusal = 14
    for _ in range(20):
        soda("status", status=1)
    soda.munged.refusal = 0
    assert "too many false credentials came from 127.0.0.1; ask again in" in soda("status", status=1).err


def test_jobs_that_slurm_keeps_private(
    soda: Bench, sodad: str, rights: FakeRights, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(soda)
    soda.add(stored_job(9, user="bob"))
    leave(soda, sodad)
    rights.private, soda.munged.uid, soda.slurm.down = "jobs,nodes", 1000, True
    monkeypatch.setattr(viewers, "user_name", lambda uid: "alice")
    assert soda("explain", "7", "--json").document["job"]["user"] == "alice"
    assert {job["user"] for job in soda("jobs", "--json").document["jobs"]} == {"alice"}
    refused = soda("explain", "9", status=1)
    assert "sodad knows no job 9 of alice; Slurm's PrivateData keeps those of others private" in refused.err
    assert soda("status", "--json").document["private"] == ["jobs", "nodes"]
    assert "jobs, nodes of others are not shown (PrivateData of slurm.conf)" in soda("status").out
    assert soda("fit", "--user", "bob", status=1).err.count("PrivateData") == 1
