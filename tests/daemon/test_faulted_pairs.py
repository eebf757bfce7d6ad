"""Faults under MPS that agents report: kept, the pair parted, its programs apart until somebody lifts that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from slurm_soda.daemon.store.agent_reports import store_report, without_records
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.faulted_pairs import faulted_pairs, faults_of, lift
from slurm_soda.daemon.store.queries import find_job
from slurm_soda.daemon.store.retention import find_old_rows
from slurm_soda.daemon.store.tables.sharing import FaultedPairRow
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.wire.mps import MpsFault, MpsJob
from slurm_soda.wire.records import NodeReport
from tests.daemon.fake_slurm import FakeSlurm
from tests.daemon.harness import Daemon
from tests.daemon.sharing_daemon import JoinAsTold, shares, sodad, told
from tests.daemon.test_shares import OWN, running
from tests.daemon.test_sharing_snapshot import MODES, busy, know, seen

__all__ = ["seen", "told"]


def tell(store: Store, at_s: float, *jobs: tuple[int, str], node: str = "n1") -> NodeReport:
    """The agent saw a fault of a client under the daemon of these jobs, all on GPU 0."""
    fault = MpsFault(at_s, tuple(MpsJob(job_id, daemon, (0,)) for job_id, daemon in jobs))
    report = NodeReport(node, "agent", 1, at_s, mps_faults=(fault,))
    with store.write() as session:
        store_report(session, report, at_s)
    return report


def kept(store: Store) -> list[tuple[Any, ...]]:
    with store.read() as session:
        return [(row.one, row.other, row.owner, row.model, row.other_model) for row in faulted_pairs(session)]


def test_a_pair_is_parted_and_never_made_again(fresh_store: Path, told: JoinAsTold) -> None:
    slurm, daemon = running(fresh_store, told)
    slurm.all[2].checkpoint = "TERM"
    slurm.advance(2)
    daemon.run()
    assert not daemon.preemptions()
    tell(daemon.store, slurm.clock.now_s(), (1, "1000"), (2, "1000"))
    told.wanted = {}
    daemon.follow(20)
    assert slurm.requests()[2] == OWN
    (row,) = shares(daemon)
    why = "a fatal fault under MPS may have ended it and job 1 together"
    assert (row.phase, row.end, row.why) == ("over", "parted", why)
    assert len(daemon.preemptions()) == 1
    told.wanted = {2: ((1,), (0, 1))}
    again = sodad(slurm, fresh_store)
    again.follow(10)
    assert len(shares(again)) == 1


def test_programs_are_apart_until_an_admin_lifts_it(
    slurm: FakeSlurm, daemon: Callable[..., Daemon], seen: list[ClusterSnapshot]
) -> None:
    busy(slurm)
    sodad = daemon(**MODES["advise"])
    know(sodad.store)
    sodad.run()
    sodad.run()
    assert sodad.job(4).note["shares"]["with"] == [1]
    # Jobs 1 and 3 are of the models of host and waiting job; nobody else is.
    tell(sodad.store, slurm.clock.now_s(), (3, "1000"), (1, "1000"))
    sodad.run()
    snapshot = seen[-1]
    assert isinstance(snapshot, SharingSnapshot)
    assert snapshot.sharing.faulted == ((1, 3),)
    assert snapshot.sharing.program.tolist() == [1, 1, 0, 0, -1, 0, 0]
    assert snapshot.sharing.quarantined == ((0, 1),)
    assert "shares" not in sodad.job(4).note
    with sodad.store.write() as session:
        (row,) = faulted_pairs(session)
        (own,), (like,) = (faults_of(session, find_job(session, job_id)) for job_id in (3, 4))  # type: ignore[arg-type]
        assert (own.job_id, own.other, like.job_id, like.other) == (3, 1, 3, 1)
        lift(session, row, "root", slurm.clock.now_s())
    sodad.run()
    assert sodad.job(4).note["shares"]["with"] == [1]
    with sodad.store.read() as session:
        assert faults_of(session, find_job(session, 3))[0].lifted  # type: ignore[arg-type]
        assert faults_of(session, find_job(session, 4)) == []  # type: ignore[arg-type]
    assert isinstance(seen[-1], SharingSnapshot)
    assert seen[-1].sharing.faulted == ((1, 3),), "the two jobs themselves never share again"
    tell(sodad.store, slurm.clock.now_s() + 1, (3, "1000"), (1, "1000"))
    sodad.run()
    assert "shares" not in sodad.job(4).note, "another fault puts them in quarantine again"


def test_what_is_told_twice_is_kept_once_and_nobody_is_mixed_up(
    slurm: FakeSlurm, daemon: Callable[..., Daemon]
) -> None:
    busy(slurm)
    sodad = daemon()
    sodad.run()
    now_s = slurm.clock.now_s()
    report = tell(sodad.store, now_s, (3, "1000"), (1, "1000"), (2, "7"), (99, "1000"))
    tell(sodad.store, now_s, (3, "1000"), (1, "1000"))
    assert kept(sodad.store) == [
        (1, 3, "alice", "resnet50", "lm"), (1, 99, "alice", "resnet50", ""), (3, 99, "alice", "lm", ""),
    ]  # fmt: skip
    assert without_records(report).mps_faults == ()
    tell(sodad.store, now_s - 1e6, (3, "1000"), (1, "1000"), node="n2")
    assert kept(sodad.store)[0] == (1, 3, "", "", ""), "the jobs of these ids at that time are not known"


def test_a_fault_is_kept_as_long_as_history_and_its_jobs(slurm: FakeSlurm, daemon: Callable[..., Daemon]) -> None:
    busy(slurm)
    sodad = daemon()
    sodad.run()
    tell(sodad.store, 10.0, (3, "1000"), (1, "1000"))
    tell(sodad.store, 11.0, (98, "1000"), (99, "1000"))
    tell(sodad.store, 1000.0, (96, "1000"), (97, "1000"))
    with sodad.store.read() as session:
        found = find_old_rows(session, FaultedPairRow, 0, before_s=500.0, idle_before_s=0.0)
    assert list(found.ids) == [2]
