"""What is known about kinds of jobs, and what is expected of run times."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from slurm_soda.daemon.store.tables.scheduling import RawText

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "known_value",
        sa.Column("id", sa.Integer(), nullable=False),
        *_kind(),
        sa.Column("partner", sa.String(length=64), nullable=False),
        sa.Column("partner_batch", sa.Integer(), nullable=False),
        sa.Column("quantity", sa.String(length=24), nullable=False),
        sa.Column("source", sa.Integer(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("error", sa.Double(), nullable=True),
        sa.Column("observations", sa.Integer(), nullable=False),
        sa.Column("origin", RawText(), nullable=False),
        sa.Column("edit_id", sa.Integer(), nullable=True),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_known_value")),
        sa.UniqueConstraint(
            "model",
            "batch",
            "gpu_type",
            "gpus",
            "partner",
            "partner_batch",
            "quantity",
            "source",
            name="uq_known_value",
        ),
    )
    op.create_table(
        "observed_job",
        sa.Column("job_pk", sa.Integer(), autoincrement=False, nullable=False),
        *_kind(),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("run_s", sa.Double(), nullable=False),
        sa.Column("iteration_s", sa.Double(), nullable=True),
        sa.Column("utilisation_ratio", sa.Double(), nullable=True),
        sa.Column("memory_mib", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["job_pk"], ["job.id"], name=op.f("fk_observed_job_job_pk_job")),
        sa.PrimaryKeyConstraint("job_pk", name=op.f("pk_observed_job")),
    )
    op.create_index("ix_observed_job_kind", "observed_job", ["model", "gpu_type", "gpus", "batch"], unique=False)
    op.create_index(op.f("ix_observed_job_at_s"), "observed_job", ["at_s"], unique=False)
    op.create_table(
        "knowledge_edit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("who", sa.String(length=255), nullable=False),
        sa.Column("action", sa.String(length=12), nullable=False),
        sa.Column("summary", RawText(), nullable=False),
        sa.Column("before", sa.JSON(), nullable=False),
        sa.Column("undone_s", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_knowledge_edit")),
    )
    op.create_table(
        "known_model",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("summary", RawText(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("edit_id", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_known_model")),
    )
    op.create_table(
        "run_time_told",
        sa.Column("job_pk", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("told_by", sa.String(length=16), nullable=False),
        sa.Column("run_s", sa.Double(), nullable=False),
        sa.Column("error_s", sa.Double(), nullable=True),
        sa.Column("jobs", sa.Integer(), nullable=False),
        sa.Column("basis", RawText(), nullable=False),
        sa.Column("curve", sa.JSON(), nullable=False),
        sa.Column("actual_s", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["job_pk"], ["job.id"], name=op.f("fk_run_time_told_job_pk_job")),
        sa.PrimaryKeyConstraint("job_pk", name=op.f("pk_run_time_told")),
    )


def downgrade() -> None:
    """Take back."""
    for table in ("run_time_told", "known_model", "knowledge_edit", "observed_job", "known_value"):
        op.drop_table(table)


def _kind() -> list[sa.Column[object]]:
    return [
        sa.Column("model", sa.String(length=64), nullable=False),
        sa.Column("batch", sa.Integer(), nullable=False),
        sa.Column("gpu_type", sa.String(length=64), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
    ]
