"""Measurements and fits in the store: kept once, with their owner, and found again for the owner's next job."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from slurm_soda.daemon.store.agent_reports import store_report
from slurm_soda.daemon.store.cpu_fit import measurements_of, past_fits, proposal_of, save_proposals, search_was_given_up
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.tables.cpu_fit import CpuFitRow, CpuMeasurementRow, CpuProposalRow
from slurm_soda.daemon.store.tables.scheduling import Job, JobRun
from slurm_soda.policies.cpu_fit.start_cores import PastFit
from slurm_soda.wire.core_tuning import CoreFit, CoreMeasurement
from slurm_soda.wire.records import JobOpened, NodeReport

START_S = 1000.0


def fit(job_id: int = 7, **values: Any) -> CoreFit:
    defaults: dict[str, Any] = {
        "restart": 0, "node": "n1", "at_s": START_S + 300, "search": 0, "start_cores": 3, "limit": 8, "cores": 4,
        "gpus": 1, "steps": 3, "start_ratio": 0.5, "utilisation_ratio": 0.9, "reason": "best_fit",
    }  # fmt: skip
    return CoreFit(job_id=job_id, **{**defaults, **values})


def measurement(job_id: int = 7, **values: Any) -> CoreMeasurement:
    defaults: dict[str, Any] = {
        "restart": 0, "node": "n1", "at_s": START_S + 60, "search": 0, "step": 0, "cores": 3, "limit": 8, "gpus": 1,
        "utilisation_ratio": 0.5, "spread_ratio": 0.01, "samples": 60,
    }  # fmt: skip
    return CoreMeasurement(job_id=job_id, **{**defaults, **values})


def opened(job_id: int = 7, **values: Any) -> JobOpened:
    defaults: dict[str, Any] = {"restart": 0, "node": "n1", "uid": 1, "user": "alice", "partition": "gpu",
                                "at_s": START_S, "gpus": (0,), "cpus": 8, "hints": {"category": "cv"}}  # fmt: skip
    return JobOpened(job_id=job_id, **{**defaults, **values})


def take(store: Store, *records: CoreFit | CoreMeasurement | JobOpened, node: str = "n1") -> None:
    report = NodeReport(
        node, "a", 1, START_S,
        opened=tuple(r for r in records if isinstance(r, JobOpened)),
        core_measurements=tuple(r for r in records if isinstance(r, CoreMeasurement)),
        core_fits=tuple(r for r in records if isinstance(r, CoreFit)),
    )  # fmt: skip
    with store.write() as session:
        store_report(session, report, START_S)


def job(store: Store, job_id: int = 7, **values: Any) -> None:
    defaults: dict[str, Any] = {"submit_s": START_S - 100, "user": "alice", "state": "RUNNING", "gpus": 1, "cpus": 8,
                                "hints": {"category": "cv", "model": "vgg16"}}  # fmt: skip
    with store.write() as session:
        session.add(Job(job_id=job_id, **{**defaults, **values}))


def rows(store: Store, table: type[Any]) -> list[Any]:
    with store.read() as session:
        return list(session.scalars(select(table).order_by(table.id)))


def past(store: Store, user: str = "alice") -> list[PastFit]:
    with store.read() as session:
        return past_fits(session, user)


def test_what_comes_twice_is_kept_once(store: Store) -> None:
    job(store)
    for _ in range(2):
        take(store, opened(), measurement(), measurement(step=1, at_s=START_S + 120, cores=1), fit())
    assert [(row.step, row.cores, row.most_cores) for row in rows(store, CpuMeasurementRow)] == [(0, 3, 8), (1, 1, 8)]
    (kept,) = rows(store, CpuFitRow)
    assert (kept.user, kept.category, kept.model, kept.cores, kept.most_cores) == ("alice", "cv", "vgg16", 4, 8)
    assert (kept.submit_s, kept.asked_cores, kept.nodes) == (START_S - 100, 8, 1)


def test_what_the_user_asked_for_is_not_what_we_made_of_it(store: Store) -> None:
    job(store, cpus=3)
    with store.write() as session:
        save_proposals(
            session,
            [
                CpuProposalRow(
                    job_id=7, submit_s=START_S - 100, at_s=1.0, asked_cores=20, cores=3, source="", left_alone=""
                )
            ],
        )
    take(store, opened(), fit())
    assert rows(store, CpuFitRow)[0].asked_cores == 20


def test_a_fit_of_a_job_that_no_cycle_saw_has_its_owner_from_the_prolog(store: Store) -> None:
    take(store, opened(nodes=2), fit())
    (kept,) = rows(store, CpuFitRow)
    assert (kept.user, kept.category, kept.nodes, kept.submit_s, kept.asked_cores) == ("alice", "cv", 2, None, None)


def test_a_fit_belongs_to_the_job_that_had_the_id_then(store: Store) -> None:
    job(store, submit_s=1.0, user="bob", state="COMPLETED")
    job(store)
    job(store, submit_s=START_S + 9000, user="carol", state="PENDING")
    take(store, fit())
    assert rows(store, CpuFitRow)[0].user == "alice"


@pytest.mark.parametrize(
    ("cores", "utilisation_ratio", "all_it_had"), [(8, 0.6, True), (8, 0.99, False), (7, 0.6, False)]
)
def test_a_job_that_used_all_its_cores_may_need_more(
    store: Store, cores: int, utilisation_ratio: float, all_it_had: bool
) -> None:
    job(store)
    take(store, opened(), fit(cores=cores, utilisation_ratio=utilisation_ratio))
    assert past(store) == [PastFit("cv", "vgg16", cores, 1, all_it_had=all_it_had)]


def test_history_has_one_fit_a_job_that_of_its_last_phase(store: Store) -> None:
    for job_id in (1, 2, 3):
        job(store, job_id, user="bob" if job_id == 3 else "alice", nodes=2 if job_id == 2 else 1)
    take(store, fit(1, cores=4), fit(1, cores=6, search=1, at_s=START_S + 900))
    take(store, fit(2, cores=9, at_s=START_S + 1000), fit(2, cores=9, node="n2", at_s=START_S + 1001))
    take(store, fit(3, cores=5))
    assert [one.cores for one in past(store)] == [9, 6]
    assert past(store, "bob") == [PastFit("cv", "vgg16", 5, 1)]
    assert past(store, "nobody") == []


def test_only_ends_that_tell_what_a_job_needs_are_history(store: Store) -> None:
    reasons = ("best_fit", "measured", "kept", "independent", "idle", "cut_short")
    for job_id, reason in enumerate(reasons, 1):
        job(store, job_id)
        take(store, fit(job_id, cores=job_id, reason=reason))
    assert sorted(one.cores for one in past(store)) == [1, 2, 3]


def test_a_run_that_shared_a_gpu_says_nothing_of_cores(store: Store) -> None:
    job(store, 1)
    job(store, 2)
    with store.write() as session:
        for row, shared in zip(session.scalars(select(Job).order_by(Job.job_id)).all(), (True, False), strict=True):
            session.add(JobRun(job_pk=row.id, restart=0, start_s=START_S, gpus=1, shared=shared))
            session.add(JobRun(job_pk=row.id, restart=1, start_s=START_S + 500, gpus=1, shared=not shared))
    take(store, opened(1), opened(2), fit(1, cores=4), fit(2, cores=5))
    assert [one.cores for one in past(store)] == [5]


def test_measurements_of_an_earlier_job_with_the_same_id_are_not_of_this_one(store: Store) -> None:
    take(store, measurement(at_s=10.0), measurement(), measurement(restart=1, at_s=START_S + 500))
    with store.read() as session:
        assert [row.at_s for row in measurements_of(session, 7, START_S)] == [START_S + 60, START_S + 500]
        assert [row.at_s for row in measurements_of(session, 7, START_S, 0)] == [START_S + 60]


def test_a_search_that_was_given_up_is_known_by_run_and_number(store: Store) -> None:
    take(store, fit(reason="cut_short", search=1))
    with store.read() as session:
        found = [
            search_was_given_up(session, run, search, START_S)
            for run, search in (((7, 0), 1), ((7, 0), 0), ((7, 1), 1))
        ]
    assert found == [True, False, False]


def test_the_newest_thought_replaces_the_one_before(store: Store) -> None:
    for cores, why in ((3, ""), (None, "--exclusive")):
        with store.write() as session:
            save_proposals(
                session,
                [
                    CpuProposalRow(
                        job_id=7, submit_s=1.0, at_s=2.0, asked_cores=20, cores=cores, source="x", left_alone=why
                    )
                ],
            )
    with store.read() as session:
        kept = proposal_of(session, 7, 1.0)
        assert kept is not None
        assert (kept.cores, kept.left_alone, kept.asked_cores) == (None, "--exclusive", 20)
    assert len(rows(store, CpuProposalRow)) == 1


def test_text_of_any_bytes_is_kept_readable(store: Store) -> None:
    """A report that the store refused would come again for ever."""
    take(
        store, opened(user="\udcff" * 200, hints={"category": "\0cv", "model": "m\udc80" * 60}), fit(reason="\udcfe\n")
    )
    (kept,) = rows(store, CpuFitRow)
    assert kept.user == "\udcff" * 200
    assert (len(kept.model), kept.category) == (64, "\\x00cv")
