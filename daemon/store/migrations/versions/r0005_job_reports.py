"""Reports of jobs: what runs did with each GPU, memory that jobs asked for, and why they waited."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("job", sa.Column("memory_mib", sa.BigInteger(), nullable=True))
    op.add_column("job", sa.Column("waits", sa.JSON(), nullable=True))
    op.create_table(
        "job_gpu_use",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("restart", sa.Integer(), nullable=False),
        sa.Column("node", sa.String(255), nullable=False),
        *(sa.Column(name, sa.Double(), nullable=False) for name in ("first_s", "last_s")),
        sa.Column("gpus", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_gpu_use")),
        sa.UniqueConstraint(
            "job_id", "restart", "node", "first_s", name=op.f("uq_job_gpu_use_job_id_restart_node_first_s")
        ),
    )
    op.create_index(op.f("ix_job_gpu_use_job_id"), "job_gpu_use", ["job_id"], unique=False)


def downgrade() -> None:
    """Take back."""
    op.drop_table("job_gpu_use")
    op.drop_column("job", "waits")
    op.drop_column("job", "memory_mib")
