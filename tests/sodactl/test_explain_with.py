"""``sodactl explain JOB --with OTHER``: the pair's arithmetic on what a site knows, over a real store."""

from __future__ import annotations

import math
from typing import Any

import pytest

from slurm_soda.daemon.store.tables.kind_profiles import ProfileValueRow, RunTimePrediction
from slurm_soda.daemon.store.tables.scheduling import JobRun
from slurm_soda.policies.sharing.job_kinds import Source
from slurm_soda.slurm_ext.client import SlurmNode
from slurm_soda.slurm_ext.hints.flags import Hints

from .conftest import HOSTILE, NOW_S, SUBMIT_S, Bench, record, stored_job

NEW, OLD, THIRD = 7, 5, 6
KEYS = {
    "now_s", "warnings", "shares_now", "new", "running", "gpu_type", "device_mib", "fits", "fits_source", "jobs", "reasons",
    "decision", "arithmetic", "objections", "regardless", "regardless_arithmetic",
}  # fmt: skip


def known(model: str, quantity: str, value: float, **more: Any) -> ProfileValueRow:
    values: dict[str, Any] = {
        "model": model, "batch": 0, "gpu_type": "", "gpus": 1, "partner": "", "partner_batch": 0, "quantity": quantity,
        "source": Source.MEASURED, "value": value, "error": 0.0, "observations": 3, "origin": "", "at_s": NOW_S,
    }  # fmt: skip
    return ProfileValueRow(**{**values, **more, "source": int(more.get("source", Source.MEASURED))})


def hints(model: str | None = "resnet50", **more: Any) -> Hints:
    return Hints(**{"model": model, "batch_size": 64, "iterations": 1000, "accumulates": True, **more})


def running(**more: Any) -> Any:
    values: dict[str, Any] = {
        "state": "RUNNING", "start_s": NOW_S - 400, "node_names": "n1", "gpus": 1, "user": "bob",
        "hints": Hints(model="lm", batch_size=20, iterations=4800),
    }  # fmt: skip
    return record(OLD, **{**values, **more})


@pytest.fixture
def site(soda: Bench) -> Bench:
    """Job 7 waits with 500 s of work; job 5 has run for 400 s of 2 400."""
    soda.daemon()
    job = stored_job(OLD, state="RUNNING", gpus=1, user="bob")
    soda.add(job, stored_job(NEW, gpus=1))
    soda.add(JobRun(job_pk=job.id, restart=0, start_s=NOW_S - 400, gpus=1, node_names="n1"))
    soda.slurm.queue = [record(NEW, gpus=1, hints=hints()), running()]
    soda.add(
        known("resnet50", "iteration_s", 0.5, batch=64, error=0.05),
        known("lm", "iteration_s", 0.5, batch=20, source=Source.IMPORTED),
        known("resnet50", "memory_mib", 9000.0, batch=64, error=100.0),
        known("lm", "memory_mib", 6000.0, batch=20),
        known("", "device_mib", 16_000.0, source=Source.SET),
        known("resnet50", "xi", 1.5, batch=64, partner="lm", partner_batch=20, source=Source.IMPORTED, error=0.1),
        known("lm", "xi", 1.25, batch=20, partner="resnet50", partner_batch=64, error=None),
    )
    return soda


def ask(soda: Bench, one: int = NEW, other: int = OLD) -> Any:
    return soda("explain", str(one), "--with", str(other), "--json").document


def refused(soda: Bench, one: int = NEW, other: int = OLD, status: int = 1) -> str:
    shown = soda("explain", str(one), "--with", str(other), status=status)
    assert shown.out == ""
    return shown.err


def test_a_pair_by_hand(site: Bench) -> None:
    """Together the new job ends after 500 x 1.5 = 750 s; the other one has done 750 / 1.25 = 600 of its 2 000 s by then and
    ends 1 400 s later. One after the other they end after 2 000 and 2 500 s.
    """
    told = ask(site)
    assert set(told) == KEYS
    assert (told["new"], told["running"], told["shares_now"], told["warnings"]) == (NEW, OLD, False, [])
    new, old = told["jobs"]
    assert new["iteration_s"] == {"value": 0.5, "error": 0.05, "source": "measured"}
    assert new["left_s"] == {"value": 500.0, "error": 50.0, "source": "measured"}
    assert old["left_s"] == {"value": 2000.0, "error": 0.0, "source": "imported"}
    assert (new["left_by"], old["left_by"], old["left_basis"]) == ("iterations", "iterations", None)
    assert new["memory_mib"] == {"value": 9000.0, "error": 100.0, "source": "measured"}
    assert new["xi"] == {"value": 1.5, "error": 0.1, "source": "imported"}
    assert old["xi"] == {"value": 1.25, "error": None, "source": "measured"}
    assert told["device_mib"]["value"] == 16_000.0
    assert (told["fits"], told["fits_source"]) == (True, "measured")
    decision = told["decision"]
    assert (decision["share"], decision["start_s"], decision["chosen_sub_batch"]) == (True, 0.0, 64)
    assert decision["alone_s"] == [500.0, 2000.0]
    chosen = decision["trials"][0]["together"]
    assert (chosen["new_end_s"], chosen["ends_s"], chosen["mean_s"]) == (750.0, [2150.0], 1450.0)
    after = decision["sequential"]
    assert (after["new_end_s"], after["ends_s"], after["mean_s"]) == (2500.0, [2000.0], 2250.0)
    assert (told["objections"], told["regardless"]) == ([], None)
    assert told["arithmetic"][-1] == "So: start now: ends on average 800 s earlier than one after the other."


def test_the_text_says_it_all(site: Bench) -> None:
    out = site("explain", str(NEW), "--with", str(OLD)).out
    for part in (
        "Job 7 with job 5 on one GPU\n", "resnet50, batch 64", "lm, batch 20", "500 ms ± 50 ms (measured)",
        "8 min 20 s ± 50.0 s (measured, by iterations)", "9,000 MiB ± 100 MiB (measured)", "1.50 ± 0.10 (imported)",
        "1.25, error unknown (measured)", "by the configuration here no partition shares GPUs, and nothing is changed.",
        "Job 7 waits, and would join job 5, which runs.", "  Together now, with its whole batch of 64, 9,000 MiB: it ends",
        "With whole batches both fit into one GPU of 16,000 MiB (measured).",
        'The arithmetic ("it" is job 7):\n', "  So: start now: ends on average 800 s earlier than one after the other.",
    ):  # fmt: skip
        assert part in out, part


def test_nothing_is_changed(site: Bench) -> None:
    ask(site)
    assert site.slurm.sent == []


def test_whoever_waits_joins_the_one_who_runs_however_it_is_asked(site: Bench) -> None:
    one, other = ask(site), ask(site, OLD, NEW)
    assert other["decision"] == one["decision"]
    assert (other["new"], other["running"]) == (NEW, OLD)
    assert [job["job_id"] for job in other["jobs"]] == [OLD, NEW]
    assert other["jobs"] == one["jobs"][::-1]


@pytest.mark.parametrize(
    ("state", "said"), [("PENDING", "Both wait: as if job 5"), ("RUNNING", "Both run: as if job 7")]
)
def test_where_both_wait_or_run_the_first_one_joins(site: Bench, state: str, said: str) -> None:
    runs = {"state": state, "node_names": "" if state == "PENDING" else "n1", "start_s": NOW_S}
    site.slurm.queue = [record(NEW, gpus=1, hints=hints(), **runs), running(**runs)]
    told = ask(site)
    assert (told["new"], told["running"]) == (NEW, OLD)
    assert any(line.startswith(said) for line in told["reasons"])


@pytest.mark.parametrize(
    ("mine", "its", "objection"),
    [
        ({"share": False}, {}, {"job_id": NEW, "flag": "--soda-share", "allowed": "no", "slowdown": None}),
        ({}, {"share": False}, {"job_id": OLD, "flag": "--soda-share", "allowed": "no", "slowdown": None}),
        ({"max_slowdown": 1.2}, {}, {"job_id": NEW, "flag": "--soda-max-slowdown", "allowed": "1.2", "slowdown": 1.5}),
        ({}, {"max_slowdown": 1.2}, {"job_id": OLD, "flag": "--soda-max-slowdown", "allowed": "1.2", "slowdown": 1.25}),
    ],
)
def test_a_users_bound_forbids_it_and_the_rest_is_told_all_the_same(
    site: Bench, mine: dict[str, Any], its: dict[str, Any], objection: dict[str, Any]
) -> None:
    site.slurm.queue = [
        record(NEW, gpus=1, hints=hints(**mine)),
        running(hints=Hints(**{"model": "lm", "batch_size": 20, "iterations": 4800, **its})),
    ]
    told = ask(site)
    assert told["objections"] == [objection]
    assert told["decision"]["share"] is False
    assert told["regardless"]["share"] is True
    assert told["regardless"]["trials"][0]["together"]["mean_s"] == 1450.0
    (line,) = [line for line in told["reasons"] if line.startswith("The owner of")]
    assert f"of job {objection['job_id']} forbids that ({objection['flag']}={objection['allowed']})" in line
    out = site("explain", str(NEW), "--with", str(OLD)).out
    assert out.index("If both owners allowed it") < out.index("As they allow it: one after the other.")


def test_the_sites_bound_holds_for_those_who_named_none(site: Bench) -> None:
    with site.config.open("a") as stream:
        stream.write("\n[sharing]\nmax_slowdown = 1.3\n")
    site.slurm.queue[1] = running(hints=Hints(model="lm", batch_size=20, iterations=4800, max_slowdown=2.0))
    told = ask(site)
    assert told["objections"] == [{"job_id": NEW, "flag": "sharing.max_slowdown", "allowed": "1.3", "slowdown": 1.5}]
    assert any(
        line.startswith("The site, for job 7, forbids that (sharing.max_slowdown=1.3)") for line in told["reasons"]
    )


def test_a_bound_that_leaves_another_sub_batch(site: Bench) -> None:
    site.slurm.queue[1] = running(hints=Hints(model="lm", batch_size=20, iterations=4800, max_slowdown=1.2))
    site.add(
        known("resnet50", "iteration_s", 0.45, batch=32),
        known("resnet50", "xi", 1.1, batch=32, partner="lm", partner_batch=20),
        known("lm", "xi", 1.3, batch=20, partner="resnet50", partner_batch=64, source=Source.SET),
        known("lm", "xi", 1.15, batch=20, partner="resnet50", partner_batch=32),
    )
    told = ask(site)
    assert (told["regardless"]["chosen_sub_batch"], told["decision"]["chosen_sub_batch"]) == (64, 32)
    assert [(one["job_id"], one["slowdown"]) for one in told["objections"]] == [(OLD, 1.3)]
    assert 'As they allow it ("it" is job 7):\n' in site("explain", str(NEW), "--with", str(OLD)).out


def test_bounds_that_are_kept_forbid_nothing(site: Bench) -> None:
    site.slurm.queue = [record(NEW, gpus=1, hints=hints(share=True, max_slowdown=1.5)), running()]
    told = ask(site)
    assert (told["objections"], told["decision"]["share"]) == ([], True)
    assert (told["jobs"][0]["share"], told["jobs"][0]["max_slowdown"]) == (True, 1.5)


def test_a_pair_that_loses_by_sharing(site: Bench) -> None:
    site.add(
        known("resnet50", "xi", 4.0, batch=64, partner="lm", partner_batch=20, source=Source.SET),
        known("lm", "xi", 4.0, batch=20, partner="resnet50", partner_batch=64, source=Source.SET),
    )
    told = ask(site)
    assert told["decision"]["share"] is False
    assert told["decision"]["reason"] == "one after the other: sharing would not end earlier on average"
    assert told["regardless"] is None


def test_a_smaller_sub_batch_where_memory_asks_for_it(site: Bench) -> None:
    site.add(
        known("resnet50", "iteration_s", 0.26, batch=32),
        known("resnet50", "memory_mib", 5000.0, batch=32),
        known("lm", "memory_mib", 9000.0, batch=20, source=Source.SET),
        *(known("resnet50", "xi", 1.1, batch=size, partner="lm", partner_batch=20) for size in (32, 16)),
        *(known("lm", "xi", 1.1, batch=20, partner="resnet50", partner_batch=size) for size in (32, 16)),
    )
    told = ask(site)
    assert (told["fits"], told["decision"]["share"]) == (False, True)
    assert told["decision"]["chosen_sub_batch"] == 32
    assert any("both do not fit" in line for line in told["reasons"])


def test_where_nobody_knows_anything_the_prior_says_it_all(soda: Bench) -> None:
    soda.slurm.queue = [record(NEW, hints=Hints(model="a")), record(THIRD, hints=Hints(model="b"))]
    told = ask(soda, NEW, THIRD)
    for job in told["jobs"]:
        assert job["xi"] == {"value": 2.0, "error": 4.0, "source": "prior"}
        assert (job["iteration_s"], job["memory_mib"], job["batch"]) == (None, None, None)
        assert job["left_by"] == "limit"
        assert job["left_s"] == {"value": 3600.0, "error": 3600.0, "source": "prior"}
    assert (told["fits"], told["fits_source"], told["device_mib"]) == (None, None, None)
    assert told["decision"]["share"] is False
    text = "\n".join(told["reasons"])
    assert "Job 7 names no --soda-batch-size" in text
    assert "Job 6 has 2 GPUs, and is slowed as a whole" in text
    assert "Nobody knows whether both fit" in text
    assert told["arithmetic"][2].startswith("Together now, with its whole batch: it ends after")


def test_who_has_no_time_limit_is_not_compared(soda: Bench) -> None:
    soda.slurm.queue = [record(NEW, hints=hints(), time_limit_s=math.inf), record(THIRD, hints=hints())]
    told = ask(soda, NEW, THIRD)
    assert (told["jobs"][0]["left_s"], told["decision"], told["arithmetic"]) == (None, None, [])
    assert any("It is not known how long job 7 will run" in line for line in told["reasons"])
    assert "unknown" in soda("explain", "7", "--with", "6").out


def test_work_left_by_like_jobs(site: Bench) -> None:
    with site.store.write() as session:
        session.add(
            RunTimePrediction(
                job_pk=1,
                at_s=SUBMIT_S,
                predicted_by="history",
                run_s=1000.0,
                error_s=100.0,
                jobs=12,
                basis="of bob",
                curve=[[0.0, 1000.0, 100.0], [800.0, 1200.0, 50.0]],
                actual_s=None,
            )
        )
    site.slurm.queue = [record(NEW, gpus=1, hints=hints()), running(hints=Hints(model="lm", batch_size=20))]
    old = ask(site)["jobs"][1]
    assert old["left_by"] == "history"
    assert old["left_basis"] == {"jobs": 12, "basis": "of bob"}
    # Half of the way from one point to the other: 1 100 s in all, 400 of them gone.
    assert old["left_s"] == {"value": 700.0, "error": 75.0, "source": "predicted"}
    assert "by like jobs: 12 of bob" in site("explain", "7", "--with", "5").out


def test_a_run_that_sodad_has_not_seen_counts(site: Bench) -> None:
    site.slurm.queue.append(record(THIRD, state="RUNNING", start_s=NOW_S - 100, node_names="n1", hints=hints()))
    assert (
        ask(site, THIRD, OLD)["jobs"][0]["left_s"]["value"] == 3500.0
    )  # two GPUs: nobody knows that kind's iterations


def test_memory_that_only_the_owners_know(soda: Bench) -> None:
    soda.add(known("", "device_mib", 16_000.0, source=Source.SET))
    asks = [Hints(model="a", gpu_memory_mib=9000), Hints(model="b", gpu_memory_mib=8000)]
    soda.slurm.queue = [record(NEW, gpus=1, hints=asks[0]), record(THIRD, gpus=1, hints=asks[1])]
    told = ask(soda, NEW, THIRD)
    assert told["jobs"][0]["memory_mib"] == {"value": 9000, "error": None, "source": "hint"}
    assert (told["fits"], told["fits_source"]) == (False, "hint")
    assert told["decision"]["trials"][0]["refused"] == "needs 9000 MiB where 8000 are free"


def node(name: str, gpu_type: str) -> SlurmNode:
    return SlurmNode(name, "IDLE", usable=True, cpus=8, cpus_allocated=0, memory_mib=1000, memory_allocated_mib=0, gpus=4,
                      gpus_allocated=0, gpu_type=gpu_type, partitions=("main",))  # fmt: skip


def test_the_gpu_is_the_one_that_either_of_them_is_for(site: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site.slurm, "nodes", lambda: [node("n1", "v100"), node("n2", "a100")])
    site.add(known("resnet50", "iteration_s", 0.25, batch=64, gpu_type="v100"))
    told = ask(site)
    assert told["gpu_type"] == "v100"
    assert told["jobs"][0]["iteration_s"]["value"] == 0.25
    site.slurm.queue[0] = record(NEW, gpus=1, gpu_type="a100", hints=hints())
    assert "job 7 is for GPUs of type a100, job 5 for v100" in refused(site)


def test_gpus_of_nobody_knows_which_type(site: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site.slurm, "nodes", lambda: [node("n1", "v100"), node("n2", "a100")])
    site.slurm.queue = [record(NEW, gpus=1, hints=hints()), record(OLD, gpus=1, hints=hints())]
    told = ask(site)
    assert told["gpu_type"] == ""
    assert "--gres=gpu:TYPE:N" in told["warnings"][0]


@pytest.mark.parametrize(
    ("queue", "said"),
    [
        ([running()], "neither Slurm nor the store knows job 7; `sodactl jobs` lists jobs"),
        ([record(NEW, gpus=0, hints=hints()), running()], "job 7 asks for no GPUs"),
        ([record(NEW, hints=Hints()), running()], "--soda-model=NAME, better also with --soda-batch-size=N"),
        ([record(NEW, hints=hints(), state="FAILED"), running()], "job 7 has ended (FAILED)"),
        ([record(NEW, hints=hints(), state="COMPLETING"), running()], "job 7 is about to end"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(soda: Bench, queue: list[Any], said: str) -> None:
    soda.slurm.queue = queue
    for ids in ((NEW, OLD), (OLD, NEW)):
        err = refused(soda, *ids)
        assert said in err
        assert err.count("\n") == 1


def test_a_job_that_ended_long_ago(soda: Bench) -> None:
    soda.add(stored_job(NEW, state="COMPLETED", end_s=NOW_S - 9, hints={"model": "resnet50"}))
    soda.slurm.queue = [running()]
    assert "job 7 has ended (COMPLETED)" in refused(soda)


def test_a_job_beside_itself(site: Bench) -> None:
    assert "--with: 7 is the same job; name another one" in refused(site, NEW, NEW, status=2)


def test_without_slurm_the_store_tells(site: Bench) -> None:
    site.add(*(stored_job(job_id, gpus=1, hints={"model": "lm", "batch_size": "20"}) for job_id in (21, 22)))
    site.slurm.down = True
    told = ask(site, 21, 22)
    assert len(told["warnings"]) == 1
    assert (told["jobs"][0]["iteration_s"]["value"], told["jobs"][0]["left_s"]) == (0.5, None)
    assert "the store does not know job 99, and Slurm does not answer" in refused(site, 99, 21)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_does_nothing_to_a_terminal(site: Bench, name: str) -> None:
    site.slurm.queue = [record(NEW, gpus=1, name=name, hints=hints()), running()]
    assert ask(site)["jobs"][0]["name"] == name
    out = site("explain", "7", "--with", "5").out
    assert all(char.isprintable() or char == "\n" for char in out)
