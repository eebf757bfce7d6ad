"""What is known of cores: measurements, fits, and starts of waiting jobs."""

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
        "core_measurement",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("restart", sa.Integer(), nullable=False),
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("search", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("cores", sa.Integer(), nullable=False),
        sa.Column("most_cores", sa.Integer(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("utilisation_ratio", sa.Double(), nullable=False),
        sa.Column("spread_ratio", sa.Double(), nullable=False),
        sa.Column("samples", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_core_measurement")),
        sa.UniqueConstraint("job_id", "restart", "node", "search", "step", "at_s", name="uq_core_measurement"),
    )
    op.create_index(op.f("ix_core_measurement_job_id"), "core_measurement", ["job_id"], unique=False)
    op.create_table(
        "core_fit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("submit_s", sa.Double(), nullable=True),
        sa.Column("restart", sa.Integer(), nullable=False),
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("search", sa.Integer(), nullable=False),
        sa.Column("user", sa.String(length=255), nullable=False),
        sa.Column("category", sa.String(length=16), nullable=False),
        sa.Column("model", sa.String(length=64), nullable=False),
        sa.Column("hints", sa.JSON(), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("asked_cores", sa.Integer(), nullable=True),
        sa.Column("start_cores", sa.Integer(), nullable=False),
        sa.Column("most_cores", sa.Integer(), nullable=False),
        sa.Column("cores", sa.Integer(), nullable=False),
        sa.Column("steps", sa.Integer(), nullable=False),
        sa.Column("start_ratio", sa.Double(), nullable=False),
        sa.Column("utilisation_ratio", sa.Double(), nullable=False),
        sa.Column("reason", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_core_fit")),
        sa.UniqueConstraint("job_id", "restart", "node", "search", "at_s", name="uq_core_fit"),
    )
    op.create_index(op.f("ix_core_fit_job_id"), "core_fit", ["job_id"], unique=False)
    op.create_index(op.f("ix_core_fit_at_s"), "core_fit", ["at_s"], unique=False)
    op.create_index("ix_core_fit_user_category", "core_fit", ["user", "category"], unique=False)
    op.create_table(
        "core_start",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("submit_s", sa.Double(), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("asked_cores", sa.Integer(), nullable=False),
        sa.Column("cores", sa.Integer(), nullable=True),
        sa.Column("source", sa.String(length=16), nullable=False),
        sa.Column("left_alone", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_core_start")),
        sa.UniqueConstraint("job_id", "submit_s", name=op.f("uq_core_start_job_id_submit_s")),
    )


def downgrade() -> None:
    """Take back."""
    op.drop_table("core_start")
    op.drop_index("ix_core_fit_user_category", table_name="core_fit")
    op.drop_index(op.f("ix_core_fit_at_s"), table_name="core_fit")
    op.drop_index(op.f("ix_core_fit_job_id"), table_name="core_fit")
    op.drop_table("core_fit")
    op.drop_index(op.f("ix_core_measurement_job_id"), table_name="core_measurement")
    op.drop_table("core_measurement")
