"""Inference services: newest reports, load by minute, and instances that leave."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from slurm_soda.daemon.store.tables.column_types import RawText, SlurmName

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def _service() -> tuple[sa.Column[str], sa.Column[str]]:
    return sa.Column("owner", SlurmName(length=255), nullable=False), sa.Column("name", sa.String(40), nullable=False)


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "service",
        sa.Column("id", sa.Integer(), nullable=False),
        *_service(),
        sa.Column("report", RawText(), nullable=False),
        sa.Column("reported_at_s", sa.Double(), nullable=False),
        *(sa.Column(name, sa.Integer(), nullable=True) for name in ("least", "most", "file_least", "file_most")),
        sa.Column("low_since_s", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_service")),
        sa.UniqueConstraint("owner", "name", name=op.f("uq_service_owner_name")),
    )
    op.create_table(
        "service_minute",
        sa.Column("id", sa.Integer(), nullable=False),
        *_service(),
        *(sa.Column(name, sa.Double(), nullable=False) for name in ("at_s", "load_qps", "most_qps", "p99_ms")),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("queries", "errors", "violations")),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in ("cpu", "gpu")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_service_minute")),
        sa.UniqueConstraint("owner", "name", "at_s", name=op.f("uq_service_minute_owner_name_at_s")),
    )
    op.create_table(
        "service_drain",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("submit_s", sa.Double(), nullable=False),
        sa.Column("restart", sa.Integer(), nullable=False),
        *_service(),
        sa.Column("by_owner", sa.Boolean(), nullable=False),
        sa.Column("why", RawText(), nullable=False),
        sa.Column("phase", sa.String(12), nullable=False),
        *(sa.Column(name, sa.Double(), nullable=False) for name in ("asked_s", "deadline_s")),
        sa.Column("ended_s", sa.Double(), nullable=True),
        sa.Column("end", RawText(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_service_drain")),
    )
    op.create_index(op.f("ix_service_drain_job_id"), "service_drain", ["job_id"], unique=False)
    op.create_index(op.f("ix_service_drain_phase"), "service_drain", ["phase"], unique=False)


def downgrade() -> None:
    """Take back."""
    op.drop_table("service_drain")
    op.drop_table("service_minute")
    op.drop_table("service")
