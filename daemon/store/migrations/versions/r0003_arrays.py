"""What jobs did in arrays."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from slurm_soda.daemon.store.tables.scheduling import RawText

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "array_run",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("submit_s", sa.Double(), nullable=False),
        sa.Column("restart", sa.Integer(), nullable=False),
        sa.Column("user", sa.String(length=255), nullable=False),
        sa.Column("base", RawText(), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("partition", RawText(), nullable=False),
        sa.Column("borrowing", sa.Boolean(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("cpus", sa.Integer(), nullable=False),
        sa.Column("queued_s", sa.Double(), nullable=True),
        sa.Column("start_s", sa.Double(), nullable=True),
        sa.Column("end_s", sa.Double(), nullable=True),
        sa.Column("aborted", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_array_run")),
        sa.UniqueConstraint("job_id", "submit_s", "restart", name=op.f("uq_array_run_job_id_submit_s_restart")),
    )
    op.create_index(op.f("ix_array_run_end_s"), "array_run", ["end_s"], unique=False)


def downgrade() -> None:
    """Take back."""
    op.drop_table("array_run")
