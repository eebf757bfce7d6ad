"""The tables of the first schema that hold what sodad learns from: searches for cores, kinds of jobs, run times, pools,
shares.

A part of ``versions/r0001_first.py``, in whose folder alembic allows only revisions; never edited once it is released.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from slurm_soda.daemon.store.tables.column_types import RawText, SlurmName

HISTORY_TABLES = (
    "cpu_measurement",
    "cpu_fit",
    "cpu_proposal",
    "profile_edit",
    "profile_value",
    "slowdown_model",
    "observed_job",
    "run_time_prediction",
    "pool_run",
    "share",
    "manual_share",
    "faulted_pair",
    "job_progress",
    "job_pace",
    "observed_pair",
)
"""In the order of their making."""


def create_history_tables() -> None:
    """Make them, after the table of jobs, to which some refer."""
    _create_cpu_fit_tables()
    _create_kind_profile_tables()
    _create_run_time_tables()
    _create_pool_tables()
    _create_sharing_tables()
    _create_progress_tables()


def _create_cpu_fit_tables() -> None:
    """Searches for the best number of cores, and what was proposed."""
    op.create_table(
        "cpu_measurement",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
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
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cpu_measurement")),
        sa.UniqueConstraint("job_id", "restart", "node", "search", "step", "at_s", name="uq_cpu_measurement"),
    )
    op.create_index(op.f("ix_cpu_measurement_job_id"), "cpu_measurement", ["job_id"], unique=False)
    op.create_table(
        "cpu_fit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
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
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cpu_fit")),
        sa.UniqueConstraint("job_id", "restart", "node", "search", "at_s", name="uq_cpu_fit"),
    )
    op.create_index(op.f("ix_cpu_fit_at_s"), "cpu_fit", ["at_s"], unique=False)
    op.create_index(op.f("ix_cpu_fit_job_id"), "cpu_fit", ["job_id"], unique=False)
    op.create_index("ix_cpu_fit_user_category", "cpu_fit", ["user", "category"], unique=False)
    op.create_table(
        "cpu_proposal",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("submit_s", sa.Double(), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("asked_cores", sa.Integer(), nullable=False),
        sa.Column("cores", sa.Integer(), nullable=True),
        sa.Column("source", sa.String(length=16), nullable=False),
        sa.Column("left_alone", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cpu_proposal")),
        sa.UniqueConstraint("job_id", "submit_s", name=op.f("uq_cpu_proposal_job_id_submit_s")),
    )


def _create_kind_profile_tables() -> None:
    """What is known of kinds of jobs, and who changed it."""
    op.create_table(
        "profile_edit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("who", sa.String(length=255), nullable=False),
        sa.Column("action", sa.String(length=12), nullable=False),
        sa.Column("summary", RawText(), nullable=False),
        sa.Column("before", sa.JSON(), nullable=False),
        sa.Column("undone_s", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_profile_edit")),
    )
    op.create_table(
        "profile_value",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(length=64), nullable=False),
        sa.Column("batch", sa.Integer(), nullable=False),
        sa.Column("gpu_type", sa.String(length=64), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("partner", sa.String(length=64), nullable=False),
        sa.Column("partner_batch", sa.Integer(), nullable=False),
        sa.Column("quantity", sa.String(length=24), nullable=False),
        sa.Column("source", sa.Integer(), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("error", sa.Double(), nullable=True),
        sa.Column("observations", sa.Integer(), nullable=False),
        sa.Column("origin", RawText(), nullable=False),
        sa.Column("edit_id", sa.Integer(), nullable=True),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_profile_value")),
        sa.UniqueConstraint(
            "model",
            "batch",
            "gpu_type",
            "gpus",
            "partner",
            "partner_batch",
            "quantity",
            "source",
            "owner",
            name="uq_profile_value",
        ),
    )
    op.create_table(
        "slowdown_model",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("summary", RawText(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("edit_id", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_slowdown_model")),
    )


def _create_run_time_tables() -> None:
    """Jobs that were observed, and predictions of run times."""
    op.create_table(
        "observed_job",
        sa.Column("job_pk", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("model", sa.String(length=64), nullable=False),
        sa.Column("batch", sa.Integer(), nullable=False),
        sa.Column("gpu_type", sa.String(length=64), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("run_s", sa.Double(), nullable=False),
        sa.Column("iteration_s", sa.Double(), nullable=True),
        sa.Column("utilisation_ratio", sa.Double(), nullable=True),
        sa.Column("memory_mib", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["job_pk"], ["job.id"], name=op.f("fk_observed_job_job_pk_job")),
        sa.PrimaryKeyConstraint("job_pk", name=op.f("pk_observed_job")),
    )
    op.create_index(op.f("ix_observed_job_at_s"), "observed_job", ["at_s"], unique=False)
    op.create_index("ix_observed_job_kind", "observed_job", ["model", "gpu_type", "gpus", "batch"], unique=False)
    op.create_table(
        "run_time_prediction",
        sa.Column("job_pk", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("predicted_by", sa.String(length=16), nullable=False),
        sa.Column("run_s", sa.Double(), nullable=False),
        sa.Column("error_s", sa.Double(), nullable=True),
        sa.Column("jobs", sa.Integer(), nullable=False),
        sa.Column("basis", RawText(), nullable=False),
        sa.Column("curve", sa.JSON(), nullable=False),
        sa.Column("actual_s", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["job_pk"], ["job.id"], name=op.f("fk_run_time_prediction_job_pk_job")),
        sa.PrimaryKeyConstraint("job_pk", name=op.f("pk_run_time_prediction")),
    )


def _create_pool_tables() -> None:
    """Runs in pools."""
    op.create_table(
        "pool_run",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
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
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pool_run")),
        sa.UniqueConstraint("job_id", "submit_s", "restart", name=op.f("uq_pool_run_job_id_submit_s_restart")),
    )
    op.create_index(op.f("ix_pool_run_end_s"), "pool_run", ["end_s"], unique=False)


def _create_sharing_tables() -> None:
    """Who was whose guest, and whom a fault concerned."""
    op.create_table(
        "share",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("guest", sa.BigInteger(), nullable=False),
        sa.Column("submit_s", sa.Double(), nullable=False),
        sa.Column("restart", sa.Integer(), nullable=False),
        sa.Column("hosts", sa.JSON(), nullable=False),
        sa.Column("host_restarts", sa.JSON(), nullable=False),
        sa.Column("nodes", sa.JSON(), nullable=False),
        sa.Column("gpus", sa.JSON(), nullable=False),
        sa.Column("record", RawText(), nullable=False),
        sa.Column("wrote", sa.JSON(), nullable=False),
        sa.Column("phase", sa.String(length=12), nullable=False),
        sa.Column("end", sa.String(length=12), nullable=False),
        sa.Column("why", RawText(), nullable=False),
        sa.Column("cycle_id", sa.Integer(), nullable=True),
        sa.Column("created_s", sa.Double(), nullable=False),
        sa.Column("deadline_s", sa.Double(), nullable=False),
        sa.Column("started_s", sa.Double(), nullable=True),
        sa.Column("ended_s", sa.Double(), nullable=True),
        sa.Column("updated_s", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["cycle_id"], ["cycle.id"], name=op.f("fk_share_cycle_id_cycle")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_share")),
    )
    op.create_index(op.f("ix_share_guest"), "share", ["guest"], unique=False)
    op.create_index(op.f("ix_share_phase"), "share", ["phase"], unique=False)
    op.create_index(op.f("ix_share_cycle_id"), "share", ["cycle_id"], unique=False)
    op.create_table(
        "manual_share",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("guest", sa.BigInteger(), nullable=False),
        sa.Column("submit_s", sa.Double(), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("hosts", sa.JSON(), nullable=False),
        sa.Column("phase", sa.String(length=12), nullable=False),
        sa.Column("why", RawText(), nullable=False),
        sa.Column("asked_s", sa.Double(), nullable=False),
        sa.Column("asked_by", sa.String(length=255), nullable=False),
        sa.Column("updated_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_manual_share")),
    )
    op.create_index(op.f("ix_manual_share_guest"), "manual_share", ["guest"], unique=False)
    op.create_index(op.f("ix_manual_share_phase"), "manual_share", ["phase"], unique=False)
    op.create_table(
        "faulted_pair",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("one", sa.BigInteger(), nullable=False),
        sa.Column("other", sa.BigInteger(), nullable=False),
        sa.Column("owner", SlurmName(length=255), nullable=False),
        sa.Column("model", sa.String(length=64), nullable=False),
        sa.Column("other_owner", SlurmName(length=255), nullable=False),
        sa.Column("other_model", sa.String(length=64), nullable=False),
        sa.Column("lifted_s", sa.Double(), nullable=True),
        sa.Column("lifted_by", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_faulted_pair")),
        sa.UniqueConstraint("one", "other", "owner", "model", "other_owner", "other_model", name="uq_faulted_pair"),
    )


def _create_progress_tables() -> None:
    """What jobs tell of their progress, and what that says of pairs."""
    op.create_table(
        "job_progress",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("restart", sa.Integer(), nullable=False),
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("first_s", sa.Double(), nullable=False),
        sa.Column("began_s", sa.Double(), nullable=False),
        sa.Column("began_iterations", sa.Double(), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("clock_s", sa.Double(), nullable=False),
        sa.Column("idle_s", sa.Double(), nullable=False),
        sa.Column("iterations", sa.Double(), nullable=False),
        sa.Column("total", sa.Double(), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("saved", sa.Double(), nullable=False),
        sa.Column("saves", sa.Integer(), nullable=False),
        sa.Column("saved_s", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_progress")),
        sa.UniqueConstraint(
            "job_id", "restart", "node", "first_s", name=op.f("uq_job_progress_job_id_restart_node_first_s")
        ),
    )
    op.create_index(op.f("ix_job_progress_job_id"), "job_progress", ["job_id"], unique=False)
    op.create_table(
        "job_pace",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("restart", sa.Integer(), nullable=False),
        sa.Column("first_s", sa.Double(), nullable=False),
        sa.Column("co_runners", sa.String(length=255), nullable=False),
        sa.Column("mps", sa.Boolean(), nullable=False),
        sa.Column("began_s", sa.Double(), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("iterations", sa.Double(), nullable=False),
        sa.Column("clock_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_pace")),
        sa.UniqueConstraint(
            "job_id", "restart", "first_s", "co_runners", name=op.f("uq_job_pace_job_id_restart_first_s_co_runners")
        ),
    )
    op.create_index(op.f("ix_job_pace_job_id"), "job_pace", ["job_id"], unique=False)
    op.create_table(
        "observed_pair",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_pk", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(length=64), nullable=False),
        sa.Column("batch", sa.Integer(), nullable=False),
        sa.Column("gpu_type", sa.String(length=64), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("partner", sa.String(length=64), nullable=False),
        sa.Column("partner_batch", sa.Integer(), nullable=False),
        sa.Column("quantity", sa.String(length=24), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("together_s", sa.Double(), nullable=False),
        sa.Column("slowdown", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["job_pk"], ["job.id"], name=op.f("fk_observed_pair_job_pk_job")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_observed_pair")),
        sa.UniqueConstraint(
            "job_pk",
            "partner",
            "partner_batch",
            "quantity",
            name=op.f("uq_observed_pair_job_pk_partner_partner_batch_quantity"),
        ),
    )
    op.create_index(op.f("ix_observed_pair_at_s"), "observed_pair", ["at_s"], unique=False)
    op.create_index("ix_observed_pair_kind", "observed_pair", ["model", "gpu_type", "gpus", "batch"], unique=False)
