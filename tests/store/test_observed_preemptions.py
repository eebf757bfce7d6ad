"""What preemptions cost, on any database: the way from and to the version before, and what is read back."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from sqlalchemy import inspect, text

from slurm_soda.daemon.store.engine import MIGRATIONS, Store, version_of
from slurm_soda.daemon.store.kind_profiles import prune_observed
from slurm_soda.daemon.store.observed_preemptions import (
    PastPreemption,
    observed_runs,
    past_preemptions,
    preempted_runs,
)
from slurm_soda.daemon.store.progress import RunId
from slurm_soda.daemon.store.tables.kind_profiles import ObservedPreemption
from slurm_soda.daemon.store.tables.scheduling import AdminSetting, Job, Preemption


def test_the_table_comes_to_a_store_of_the_release_before_and_goes_again(store: Store) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with store.write() as session:
        session.add(AdminSetting(key="mode", value="enforce", changed_s=1.0))
    for move, version in ((command.downgrade, "0005"), (command.upgrade, "0006"), (command.downgrade, "0005")):
        with store.engine.begin() as connection:
            config.attributes["connection"] = connection
            move(config, version)
        assert version_of(store.engine) == version
        assert ("observed_preemption" in inspect(store.engine).get_table_names()) == (version == "0006")
        with store.read() as session:
            assert session.execute(text("SELECT value FROM admin_setting")).all() == [("enforce",)]


def test_the_newest_are_read_oldest_first_and_old_ones_go(store: Store) -> None:
    with store.write() as session:
        job = Job(job_id=3_000_000_000, submit_s=5.0, user="al\udcffice", name="train-7", state="RUNNING")
        session.add(job)
        session.flush()
        for restart in (2, 0, 1):
            times = {"at_s": 100.0 + restart, "overhead_s": 60.0 + restart, "lost_s": 0.5}
            session.add(ObservedPreemption(job_pk=job.id, restart=restart, model="bert", **times))
        key = job.id
    with store.read() as session:
        assert past_preemptions(session, 2) == [
            PastPreemption("al\udcffice", "train-7", "bert", 61.0, 0.5),
            PastPreemption("al\udcffice", "train-7", "bert", 62.0, 0.5),
        ]
        assert observed_runs(session, [key, key + 1]) == {(key, 0), (key, 1), (key, 2)}
    with store.write() as session:
        prune_observed(session, before_s=102.0)
    with store.read() as session:
        assert observed_runs(session, [key]) == {(key, 2)}


def test_runs_that_sodad_stopped_are_told_from_others(store: Store) -> None:
    times = dict.fromkeys(("created_s", "deadline_s", "updated_s"), 50.0)
    with store.write() as session:
        for job_id, submit_s, restart, phase in (
            (1, 5.0, 0, "done"), (2, 5.0, 3, "released"), (3, 5.0, 0, "lost"), (4, 5.0, 0, "signalled"), (5, 9.0, 0, "done"),
        ):  # fmt: skip
            session.add(Preemption(job_id=job_id, submit_s=submit_s, restart=restart, phase=phase, **times))
    runs = [RunId(1, 0), RunId(1, 1), RunId(2, 3), RunId(3, 0), RunId(4, 0), RunId(5, 0)]
    with store.read() as session:
        assert preempted_runs(session, dict.fromkeys(range(1, 6), 5.0), runs) == {RunId(1, 0), RunId(2, 3)}
