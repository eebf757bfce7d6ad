"""Forecasts of starts, and what came of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "expected_start",
        sa.Column("job_pk", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        *(sa.Column(name, sa.Double(), nullable=True) for name in ("low_s", "median_s", "high_s")),
        sa.ForeignKeyConstraint(["job_pk"], ["job.id"], name=op.f("fk_expected_start_job_pk_job")),
        sa.PrimaryKeyConstraint("job_pk", name=op.f("pk_expected_start")),
    )
    op.create_table(
        "start_forecast",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_pk", sa.Integer(), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        *(sa.Column(name, sa.Double(), nullable=True) for name in ("drawn_low_s", "drawn_median_s", "drawn_high_s")),
        *(sa.Column(name, sa.Double(), nullable=True) for name in ("low_s", "median_s", "high_s", "started_s")),
        sa.ForeignKeyConstraint(["job_pk"], ["job.id"], name=op.f("fk_start_forecast_job_pk_job")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_start_forecast")),
    )
    op.create_index(op.f("ix_start_forecast_job_pk"), "start_forecast", ["job_pk"], unique=False)
    op.create_index(op.f("ix_start_forecast_started_s"), "start_forecast", ["started_s"], unique=False)


def downgrade() -> None:
    """Take back."""
    op.drop_table("start_forecast")
    op.drop_table("expected_start")
