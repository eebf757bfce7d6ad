"""Jobs and runs found by their times: lists of the newest, and what ran lately, without reading years of them."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_index(op.f("ix_job_submit_s"), "job", ["submit_s"], unique=False)
    op.create_index(op.f("ix_job_end_s"), "job", ["end_s"], unique=False)
    op.create_index(op.f("ix_run_end_s"), "run", ["end_s"], unique=False)


def downgrade() -> None:
    """Take back."""
    op.drop_index(op.f("ix_run_end_s"), table_name="run")
    op.drop_index(op.f("ix_job_end_s"), table_name="job")
    op.drop_index(op.f("ix_job_submit_s"), table_name="job")
