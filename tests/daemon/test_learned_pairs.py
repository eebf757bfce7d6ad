"""What is learned from pairs that ended: by owner, common to all, safe from lies."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, select

from slurm_soda.daemon.learning.pair_observations import record_pair_observations
from slurm_soda.daemon.learning.profile_rows import value_from_row
from slurm_soda.daemon.learning.stored_profiles import read_kind_profiles
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.tables.kind_profiles import ProfileValueRow
from slurm_soda.daemon.store.tables.progress import JobPaceRow, ObservedPair
from slurm_soda.daemon.store.tables.scheduling import Job, JobRun
from slurm_soda.policies.sharing.job_kinds import JobKind, Source
from tests.sampling import examples

R50, VGG = (JobKind(*told, "v100") for told in (("resnet50", 64), ("vgg16", 32)))


class History:
    """Ended jobs of a store that told their progress beside others, learned from as sodad learns."""

    def __init__(self, store: Store) -> None:
        self._store, self._ids = store, iter(range(1, 1_000_000))

    def pair(self, owner: str, slowdown: float, *, jobs: int = 1, together_s: float = 100.0, mps: bool = True) -> None:
        """Jobs of R50 ran beside jobs of VGG."""
        with self._store.write() as session:
            ended = []
            for _ in range(jobs):
                job, other = (self._job(session, user, kind) for user, kind in ((owner, R50), ("other", VGG)))
                key = {"job_id": job.job_id, "restart": 0, "first_s": 5.0, "began_s": 6.0, "at_s": 200.0}
                alone = JobPaceRow(**key, co_runners="", mps=False, iterations=200.0, clock_s=20.0)
                beside = JobPaceRow(**key, co_runners=f"{other.job_id}.0", mps=mps, iterations=together_s / 0.1 / slowdown,
                                    clock_s=together_s)  # fmt: skip
                session.add_all([alone, beside])
                ended.append(job)
            session.flush()
            for _ in range(2):  # the second time nothing is new
                record_pair_observations(session, ended, {"n1": "V100"}, 20_000.0)

    def _job(self, session: object, user: str, kind: JobKind) -> Job:
        hints = {"model": kind.model, "batch_size": str(kind.batch)}
        job = Job(job_id=next(self._ids), submit_s=1.0, user=user, state="COMPLETED", gpus=1, end_s=300.0, hints=hints)
        session.add(job)  # type: ignore[attr-defined]
        session.flush()  # type: ignore[attr-defined]
        session.add(JobRun(job_pk=job.id, restart=0, start_s=2.0, end_s=300.0, node_names="n1"))  # type: ignore[attr-defined]
        return job

    def told(self, owner: str, *, mps: bool = True) -> float | None:
        """What an owner is told of R50 beside VGG, where it was measured."""
        with self._store.read() as session:
            found = read_kind_profiles(session, mps=mps).of_owner(owner).xi(R50, [VGG])
        return found.value if found.source == Source.MEASURED else None

    def forget(self) -> None:
        with self._store.write() as session:
            for table in (ObservedPair, JobPaceRow, JobRun, ProfileValueRow, Job):
                session.execute(delete(table))


def test_a_pair_is_known_to_its_owner_and_after_three_owners_to_all(store: Store) -> None:
    history = History(store)
    history.pair("alice", 1.5)
    assert (history.told("alice"), history.told("bob")) == (pytest.approx(1.5), None)
    history.pair("bob", 1.2)
    history.pair("carol", 1.3, jobs=3)
    assert history.told("newcomer") == pytest.approx(1.3)
    assert history.told("bob") == pytest.approx(1.2)
    with store.read() as session:
        rows = session.scalars(select(ProfileValueRow).where(ProfileValueRow.quantity == "xi")).all()
    common = next(value_from_row(row) for row in rows if not row.owner)
    assert (common.origin, common.observations, common.subject.kind.gpu_type) == ("median of 3 owners", 5, "v100")
    assert common.estimate.error > 0


def test_half_a_minute_is_too_short_and_two_of_them_are_enough(store: Store) -> None:
    history = History(store)
    history.pair("alice", 1.5, together_s=30.0)
    assert history.told("alice") is None
    history.pair("alice", 1.5, together_s=30.0)
    assert history.told("alice") == pytest.approx(1.5)


def test_what_was_measured_without_mps_is_kept_apart(store: Store) -> None:
    history = History(store)
    history.pair("alice", 1.9, mps=False)
    assert (history.told("alice", mps=False), history.told("alice")) == (pytest.approx(1.9), None)
    history.pair("alice", 1.2)
    assert (history.told("alice", mps=False), history.told("alice")) == (pytest.approx(1.9), pytest.approx(1.2))


def test_nobody_is_faster_beside_another_than_alone(store: Store) -> None:
    history = History(store)
    history.pair("alice", 0.5)
    assert history.told("alice") == 1.0


@given(
    honest=st.lists(st.floats(1.0, 5.0), min_size=2, max_size=5), lie=st.floats(0.001, 1e6), jobs=st.integers(1, 3),
)  # fmt: skip
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples(30))
def test_a_lie_never_leaves_the_range_of_honest_owners(
    store: Store, honest: list[float], lie: float, jobs: int
) -> None:
    history = History(store)
    history.forget()
    history.pair("liar", lie, jobs=jobs)
    for at, slowdown in enumerate(honest):
        history.pair(f"owner{at}", slowdown)
    told = history.told("newcomer")
    assert told is not None
    assert min(honest) * 0.999 <= told <= max(honest) * 1.001
    for at, slowdown in enumerate(honest):
        assert history.told(f"owner{at}") == pytest.approx(slowdown), "own reports count for own jobs"
