"""The first schema: all tables of :mod:`slurm_soda.daemon.store.tables`."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from slurm_soda.daemon.store.migrations.r0001_history_tables import HISTORY_TABLES, create_history_tables
from slurm_soda.daemon.store.tables.column_types import RawText

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


_TABLES = (
    "job",
    "job_run",
    "admin_setting",
    "epoch",
    "standby",
    "cycle",
    "preemption",
    "vain_preemption",
    "action",
    "agent_heartbeat",
    "node_event",
    "job_node_usage",
    *HISTORY_TABLES,
)
"""In the order of their making: none refers to a later one."""


def upgrade() -> None:
    """Apply."""
    _create_job_tables()
    _create_cycle_tables()
    _create_action_tables()
    _create_node_tables()
    create_history_tables()


def downgrade() -> None:
    """Take back: a table's indexes go with it."""
    for table in reversed(_TABLES):
        op.drop_table(table)


def _create_job_tables() -> None:
    """Jobs and their runs, as Slurm shows them."""
    op.create_table(
        "job",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("submit_s", sa.Double(), nullable=False),
        sa.Column("user", sa.String(length=255), nullable=False),
        sa.Column("account", sa.String(length=255), nullable=False),
        sa.Column("partition", RawText(), nullable=False),
        sa.Column("name", RawText(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("reason", RawText(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("cpus", sa.Integer(), nullable=False),
        sa.Column("time_limit_s", sa.Double(), nullable=True),
        sa.Column("hints", sa.JSON(), nullable=False),
        sa.Column("first_start_s", sa.Double(), nullable=True),
        sa.Column("end_s", sa.Double(), nullable=True),
        sa.Column("exit_code", sa.String(length=16), nullable=False),
        sa.Column("executed_s", sa.Double(), nullable=False),
        sa.Column("waited_since_s", sa.Double(), nullable=True),
        sa.Column("preemptions", sa.Integer(), nullable=False),
        sa.Column("promotions", sa.Integer(), nullable=False),
        sa.Column("promoted_s", sa.Double(), nullable=True),
        sa.Column("inherited_s", sa.Double(), nullable=False),
        sa.Column("inherited_from", sa.Integer(), nullable=True),
        sa.Column("last_seen_s", sa.Double(), nullable=False),
        sa.Column("cpu_s", sa.Double(), nullable=True),
        sa.Column("memory_peak_mib", sa.Double(), nullable=True),
        sa.Column("accounted", sa.Boolean(), nullable=False),
        sa.Column("note", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job")),
        sa.UniqueConstraint("job_id", "submit_s", name=op.f("uq_job_job_id_submit_s")),
    )
    op.create_index(op.f("ix_job_end_s"), "job", ["end_s"], unique=False)
    op.create_index(op.f("ix_job_job_id"), "job", ["job_id"], unique=False)
    op.create_index(op.f("ix_job_state"), "job", ["state"], unique=False)
    op.create_index(op.f("ix_job_inherited_from"), "job", ["inherited_from"], unique=False)
    op.create_index(op.f("ix_job_submit_s"), "job", ["submit_s"], unique=False)
    op.create_table(
        "job_run",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_pk", sa.Integer(), nullable=False),
        sa.Column("restart", sa.Integer(), nullable=False),
        sa.Column("start_s", sa.Double(), nullable=False),
        sa.Column("end_s", sa.Double(), nullable=True),
        sa.Column("node_names", RawText(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("promoted_s", sa.Double(), nullable=True),
        sa.Column("shared", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["job_pk"], ["job.id"], name=op.f("fk_job_run_job_pk_job")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_run")),
        sa.UniqueConstraint("job_pk", "restart", name=op.f("uq_job_run_job_pk_restart")),
    )
    op.create_index(op.f("ix_job_run_end_s"), "job_run", ["end_s"], unique=False)
    op.create_index(op.f("ix_job_run_job_pk"), "job_run", ["job_pk"], unique=False)


def _create_cycle_tables() -> None:
    """What admins set, and what sodad decided."""
    op.create_table(
        "admin_setting",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("value", sa.String(length=255), nullable=False),
        sa.Column("changed_s", sa.Double(), nullable=False),
        sa.Column("changed_by", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_admin_setting")),
    )
    op.create_table(
        "epoch",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("version", sa.String(length=64), nullable=False),
        sa.Column("started_s", sa.Double(), nullable=False),
        sa.Column("heartbeat_s", sa.Double(), nullable=False),
        sa.Column("ended_s", sa.Double(), nullable=True),
        sa.Column("state_dir", RawText(), nullable=False),
        sa.Column("take_over_after_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_epoch")),
    )
    op.create_table(
        "standby",
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("state_dir", RawText(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("version", sa.String(length=64), nullable=False),
        sa.Column("seen_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("host", "state_dir", name=op.f("pk_standby")),
    )
    op.create_table(
        "cycle",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("epoch_id", sa.Integer(), nullable=False),
        sa.Column("started_s", sa.Double(), nullable=False),
        sa.Column("mode", sa.String(length=16), nullable=False),
        sa.Column("policy", sa.String(length=64), nullable=False),
        sa.Column("pending", sa.Integer(), nullable=False),
        sa.Column("running", sa.Integer(), nullable=False),
        sa.Column("planned", sa.Integer(), nullable=False),
        sa.Column("sent", sa.Integer(), nullable=False),
        sa.Column("timings_s", sa.JSON(), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("error", RawText(), nullable=False),
        sa.ForeignKeyConstraint(["epoch_id"], ["epoch.id"], name=op.f("fk_cycle_epoch_id_epoch")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cycle")),
    )
    op.create_index(op.f("ix_cycle_started_s"), "cycle", ["started_s"], unique=False)


def _create_action_tables() -> None:
    """What sodad changed."""
    op.create_table(
        "preemption",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("submit_s", sa.Double(), nullable=False),
        sa.Column("restart", sa.Integer(), nullable=False),
        sa.Column("phase", sa.String(length=12), nullable=False),
        sa.Column("created_s", sa.Double(), nullable=False),
        sa.Column("deadline_s", sa.Double(), nullable=False),
        sa.Column("updated_s", sa.Double(), nullable=False),
        sa.Column("for_jobs", sa.JSON(), nullable=False),
        sa.Column("reason", RawText(), nullable=False),
        sa.Column("vain_for", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_preemption")),
    )
    op.create_index(op.f("ix_preemption_job_id"), "preemption", ["job_id"], unique=False)
    op.create_index(op.f("ix_preemption_phase"), "preemption", ["phase"], unique=False)
    op.create_table(
        "vain_preemption",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("user", sa.String(length=255), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("gpus_per_node", sa.Integer(), nullable=False),
        sa.Column("gpu_type", RawText(), nullable=False),
        sa.Column("times", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("noted_s", sa.Double(), nullable=False),
        sa.Column("until_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_vain_preemption")),
    )
    op.create_index(op.f("ix_vain_preemption_user"), "vain_preemption", ["user"], unique=False)
    op.create_table(
        "action",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("epoch_id", sa.Integer(), nullable=True),
        sa.Column("cycle_id", sa.Integer(), nullable=True),
        sa.Column("preemption_id", sa.Integer(), nullable=True),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("submit_s", sa.Double(), nullable=False),
        sa.Column("kind", sa.String(length=24), nullable=False),
        sa.Column("new", sa.JSON(), nullable=False),
        sa.Column("old", sa.JSON(), nullable=False),
        sa.Column("reason", RawText(), nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("created_s", sa.Double(), nullable=False),
        sa.Column("finished_s", sa.Double(), nullable=True),
        sa.Column("error", RawText(), nullable=False),
        sa.ForeignKeyConstraint(["cycle_id"], ["cycle.id"], name=op.f("fk_action_cycle_id_cycle")),
        sa.ForeignKeyConstraint(["epoch_id"], ["epoch.id"], name=op.f("fk_action_epoch_id_epoch")),
        sa.ForeignKeyConstraint(["preemption_id"], ["preemption.id"], name=op.f("fk_action_preemption_id_preemption")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_action")),
    )
    op.create_index(op.f("ix_action_cycle_id"), "action", ["cycle_id"], unique=False)
    op.create_index("ix_action_job_kind", "action", ["job_id", "kind"], unique=False)
    op.create_index(op.f("ix_action_preemption_id"), "action", ["preemption_id"], unique=False)
    op.create_index(op.f("ix_action_state"), "action", ["state"], unique=False)


def _create_node_tables() -> None:
    """What agents told of nodes and of the runs on them."""
    op.create_table(
        "agent_heartbeat",
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("agent_id", sa.String(length=64), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("seen_s", sa.Double(), nullable=False),
        sa.Column("gpu_count", sa.Integer(), nullable=False),
        sa.Column("faults", sa.JSON(), nullable=False),
        sa.Column("walls", sa.JSON(), nullable=False),
        sa.Column("hooks", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("node", name=op.f("pk_agent_heartbeat")),
    )
    op.create_table(
        "node_event",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("restart", sa.Integer(), nullable=False),
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("record", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_node_event")),
        sa.UniqueConstraint(
            "kind", "job_id", "restart", "node", "at_s", name=op.f("uq_node_event_kind_job_id_restart_node_at_s")
        ),
    )
    op.create_index(op.f("ix_node_event_job_id"), "node_event", ["job_id"], unique=False)
    op.create_table(
        "job_node_usage",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("restart", sa.Integer(), nullable=False),
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("first_s", sa.Double(), nullable=False),
        sa.Column("last_s", sa.Double(), nullable=False),
        sa.Column("samples", sa.Integer(), nullable=False),
        sa.Column("gpu_count", sa.Integer(), nullable=False),
        sa.Column("gpu_util_ratio", sa.Double(), nullable=False),
        sa.Column("gpu_util_last_ratio", sa.Double(), nullable=False),
        sa.Column("gpu_memory_peak_mib", sa.Double(), nullable=False),
        sa.Column("cpu_s", sa.Double(), nullable=False),
        sa.Column("memory_peak_mib", sa.Double(), nullable=False),
        sa.Column("cpu_source", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_node_usage")),
        sa.UniqueConstraint(
            "job_id", "restart", "node", "first_s", name=op.f("uq_job_node_usage_job_id_restart_node_first_s")
        ),
    )
    op.create_index(op.f("ix_job_node_usage_job_id"), "job_node_usage", ["job_id"], unique=False)
