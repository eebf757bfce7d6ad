"""The tables of services on any database: large counts, and the way from and to the version before."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from sqlalchemy import inspect, text

from slurm_soda.daemon.services.known_service import ServiceKey
from slurm_soda.daemon.services.service_load import LoadMinute
from slurm_soda.daemon.store.engine import MIGRATIONS, Store, version_of
from slurm_soda.daemon.store.services import add_minutes, minutes_of
from slurm_soda.daemon.store.tables.scheduling import AdminSetting

MOST = 10**12
"""Queries that one report may count."""
TABLES = {"service", "service_minute", "service_drain"}


def test_a_minute_has_room_for_all_that_its_reports_may_count(store: Store) -> None:
    for _ in range(2):
        with store.write() as session:
            add_minutes(
                session, [LoadMinute("alice", "answers", 60.0, 1, queries=60 * MOST, errors=MOST, violations=MOST)]
            )
    with store.read() as session:
        (row,) = minutes_of(session, ServiceKey("alice", "answers"), 0.0)
        assert (row.queries, row.errors, row.violations) == (120 * MOST, 2 * MOST, 2 * MOST)


def test_the_tables_come_to_a_store_of_the_release_before_and_go_again(store: Store) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with store.write() as session:
        session.add(AdminSetting(key="mode", value="enforce", changed_s=1.0))
    for move, version in ((command.downgrade, "0003"), (command.upgrade, "0004"), (command.downgrade, "0003")):
        with store.engine.begin() as connection:
            config.attributes["connection"] = connection
            move(config, version)
        assert version_of(store.engine) == version
        assert bool(TABLES & {*inspect(store.engine).get_table_names()}) == (version == "0004")
        with store.read() as session:
            assert session.execute(text("SELECT value FROM admin_setting")).all() == [("enforce",)]
