"""``sodactl jobs``: Slurm's view with the policy's, and whatever text users put into it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from slurm_soda.daemon.store.tables.scheduling import AdminSetting
from slurm_soda.slurm_ext.hints.flags import Hints

from .conftest import HOSTILE, NOW_S, SUBMIT_S, Bench, record, stored_job

KEYS = {
    "job_id", "array_job_id", "array_task", "user", "account", "partition", "name", "state", "reason", "gpus", "shared_gpus",
    "nodes", "cpus", "node_names", "submit_s", "start_s", "priority", "restarts", "preemptions", "hints", "verdict", "queue",
    "position", "score", "score_name", "source",
}  # fmt: skip
pytestmark = pytest.mark.usefixtures("advising")
NOTE: dict[str, Any] = {"verdict": "wait", "queue": 1, "position": 4, "score": 1200.5, "score_name": "attained service"}


@pytest.fixture
def advising(soda: Bench) -> None:
    soda.add(AdminSetting(key="mode", value="advise", changed_s=NOW_S))


def test_while_sodad_observes_old_verdicts_are_not_shown(soda: Bench) -> None:
    soda.daemon()
    soda("mode", "observe")
    soda.add(stored_job(7, note=NOTE, preemptions=2))
    soda.slurm.queue = [record(7)]
    (job,) = soda("jobs", "--json").document["jobs"]
    assert (job["verdict"], job["position"], job["preemptions"]) == (None, None, 2)


def test_a_hint_given_to_sbatch_is_shown(soda: Bench) -> None:
    soda.daemon()
    soda.slurm.queue = [record(hints=Hints(model="resnet50", batch_size=64))]
    (job,) = soda("jobs", "--json").document["jobs"]
    assert set(job) == KEYS
    assert job["hints"] == {"model": "resnet50", "batch_size": "64"}
    assert "model=resnet50 batch_size=64" in soda("jobs").out


def test_slurm_and_store_are_joined_by_id_and_submit_time(soda: Bench) -> None:
    soda.daemon()
    soda.slurm.queue = [record(7), record(8), record(9, state="COMPLETED")]
    soda.add(stored_job(7, note=NOTE, preemptions=2), stored_job(8, submit_s=SUBMIT_S - 9, note=NOTE))
    shown = soda("jobs", "--json").document
    assert (shown["daemon_alive"], shown["warnings"]) == (True, [])
    assert [(j["job_id"], j["verdict"], j["position"], j["preemptions"]) for j in shown["jobs"]] == [
        (7, "wait", 5, 2), (8, None, None, 0)]  # fmt: skip


@pytest.mark.parametrize(
    ("restarts", "submit_s", "verdict"),
    [(1, SUBMIT_S + 50, "wait"), (0, SUBMIT_S + 50, None), (1, SUBMIT_S - 50, None), (0, SUBMIT_S, "wait")],
    ids=["requeued: Slurm moved its submit time", "the id is used again", "the store's is of a later job", "the same"],
)
def test_which_job_of_the_store_is_meant(soda: Bench, restarts: int, submit_s: float, verdict: str | None) -> None:
    soda.daemon()
    soda.add(stored_job(7, note=NOTE))
    soda.slurm.queue = [record(7, restarts=restarts, submit_s=submit_s)]
    (job,) = soda("jobs", "--json").document["jobs"]
    assert job["verdict"] == verdict
    assert job["submit_s"] == (SUBMIT_S if verdict else submit_s)


def test_the_policys_order(soda: Bench) -> None:
    soda.slurm.queue = [record(1), record(2), record(3), record(4)]
    soda.add(stored_job(2, note={**NOTE, "position": 1}), stored_job(4, note={**NOTE, "position": 0}),
             stored_job(1, note={**NOTE, "position": -1}))  # fmt: skip
    assert [j["job_id"] for j in soda("jobs", "--json").document["jobs"]] == [4, 2, 1, 3]


@pytest.mark.parametrize(
    ("argv", "ids"),
    [
        (["--user", "bob"], [2]),
        (["--state", "running"], [3]),
        (["--user", "alice", "--state", "PENDING"], [1]),
        (["--user", "nobody"], []),
    ],
)
def test_filters(soda: Bench, argv: list[str], ids: list[int]) -> None:
    soda.slurm.queue = [record(1), record(2, user="bob"), record(3, state="RUNNING", start_s=NOW_S - 5)]
    assert [j["job_id"] for j in soda("jobs", "--json", *argv).document["jobs"]] == ids


def test_without_a_daemon_slurms_word_and_a_warning(soda: Bench) -> None:
    soda.slurm.queue = [record()]
    shown = soda("jobs")
    assert "pending (Priority)" in shown.out
    assert "sodad is not running" in shown.err


def test_without_a_store_slurms_word_and_a_warning(soda: Bench) -> None:
    soda.config.write_text('[store]\nurl = "sqlite:////nonexistent/soda.db"\n')
    soda.slurm.queue = [record()]
    document = soda("jobs", "--json").document
    assert document["jobs"][0]["source"] == "slurm"
    assert document["daemon_alive"] is None
    assert "does not exist" in document["warnings"][0]


def test_without_slurm_the_stores_word_and_a_warning(soda: Bench) -> None:
    soda.daemon()
    soda.slurm.down = True
    soda.add(stored_job(7, note=NOTE, hints={"model": "vgg16"}))
    document = soda("jobs", "--json").document
    assert set(document["jobs"][0]) == KEYS
    assert (document["jobs"][0]["source"], document["jobs"][0]["hints"]) == ("store", {"model": "vgg16"})
    assert "Slurm does not answer" in document["warnings"][0]


def test_without_either_one_error(soda: Bench) -> None:
    soda.config.write_text('[store]\nurl = "sqlite:////nonexistent/soda.db"\n')
    soda.slurm.down = True
    shown = soda("jobs", "--json", status=1)
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert "Unable to contact slurm controller" in shown.err


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_users_does_no_harm(soda: Bench, text: str) -> None:
    soda.daemon()
    soda.slurm.queue = [record(name=text, reason=text, account=text)]
    soda.add(stored_job(name=text, reason=text))
    (job,) = soda("jobs", "--json").document["jobs"]
    assert job["name"] == text
    assert job["name"].encode("utf-8", "surrogateescape") == text.encode("utf-8", "surrogateescape")
    shown = soda("jobs")
    assert len(shown.out.splitlines()) == 2
    assert all(char.isprintable() or char == "\n" for char in shown.out)
    for visible in re.findall(r"[a-zA-Z'|]+", text):
        assert visible in shown.out


def test_arrays_show_as_slurm_shows_them(soda: Bench) -> None:
    soda.slurm.queue = [record(12, array_job_id=12, array_task="3-9"), record(13, array_job_id=12, array_task="2")]
    out = soda("jobs").out
    assert "12_[3-9]" in out
    assert "12_2" in out


def test_nothing_to_show(soda: Bench) -> None:
    assert soda("jobs").out == "no job waits or runs\n"
    assert soda("jobs", "--user", "nosuchuser").out == "no job of nosuchuser waits or runs\n"
    assert soda("jobs", "--json").document["jobs"] == []


def test_one_users_long_name_leaves_the_table_readable(soda: Bench) -> None:
    soda.daemon()
    soda.slurm.queue = [record(7, name="n" * 200), record(8, name="mine")]
    assert max(map(len, soda("jobs").out.splitlines())) < 200
    assert soda("jobs", "--json").document["jobs"][0]["name"] == "n" * 200


def test_a_task_of_an_array_is_named_as_slurm_names_it(soda: Bench) -> None:
    soda.slurm.queue = [
        record(14, array_job_id=14, array_task="3-9"),
        record(15, array_job_id=14, array_task="2"),
        record(16, array_job_id=16, array_task="2"),
    ]
    assert soda("explain", "14_2", "--json").document["job"]["job_id"] == 15
    assert soda("explain", "16_2", "--json").document["job"]["job_id"] == 16
    for task, said in (("14_4", "tasks 3-9 of it wait as one job; 14 means whichever"), ("13_1", "give the number")):
        assert said in soda("explain", task, status=2).err
