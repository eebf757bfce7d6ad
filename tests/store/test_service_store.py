"""The tables of services on any database: the way from and to the version before."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from sqlalchemy import inspect, text

from slurm_soda.daemon.store.engine import MIGRATIONS, Store, version_of
from slurm_soda.daemon.store.tables.scheduling import AdminSetting

TABLES = {"service", "service_minute", "service_drain"}


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
