"""What alembic runs around the revisions: over the connection of ``open_store``, or over ``-x url=…`` for developers."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, create_engine

from slurm_soda.daemon.store.tables import (  # noqa: F401 - their tables belong to the metadata
    cpu_fit,
    job_reports,
    kind_profiles,
    pools,
    progress,
    services,
    sharing,
    start_forecasts,
)
from slurm_soda.daemon.store.tables.scheduling import Base


def _run(connection: Connection) -> None:
    # SQLite does transactional DDL once BEGIN is said explicitly, which open_store does: a killed upgrade leaves nothing.
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=True,
        transactional_ddl=connection.dialect.name not in {"mysql", "mariadb"},
        compare_type=True,
    )
    with context.begin_transaction():
        context.run_migrations()


_given = context.config.attributes.get("connection")
if isinstance(_given, Connection):
    _run(_given)
else:
    with create_engine(context.get_x_argument(as_dictionary=True)["url"]).begin() as _connection:
        _run(_connection)
