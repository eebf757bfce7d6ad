"""What preemptions cost jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "observed_preemption",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_pk", sa.Integer(), nullable=False),
        sa.Column("restart", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(64), nullable=False),
        *(sa.Column(name, sa.Double(), nullable=False) for name in ("at_s", "overhead_s", "lost_s")),
        sa.ForeignKeyConstraint(["job_pk"], ["job.id"], name=op.f("fk_observed_preemption_job_pk_job")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_observed_preemption")),
        sa.UniqueConstraint("job_pk", "restart", name=op.f("uq_observed_preemption_job_pk_restart")),
    )
    for name in ("at_s", "model"):
        op.create_index(op.f(f"ix_observed_preemption_{name}"), "observed_preemption", [name], unique=False)


def downgrade() -> None:
    """Take back."""
    op.drop_table("observed_preemption")
