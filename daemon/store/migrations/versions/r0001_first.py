"""The first schema: all tables of :mod:`slurm_soda.daemon.store.tables`."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from slurm_soda.daemon.store.tables.scheduling import RawText

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "admin_setting",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("value", sa.String(length=255), nullable=False),
        sa.Column("changed_s", sa.Double(), nullable=False),
        sa.Column("changed_by", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_admin_setting")),
    )
    op.create_table(
        "agent_heartbeat",
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("agent_id", sa.String(length=64), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("seen_s", sa.Double(), nullable=False),
        sa.Column("gpu_count", sa.Integer(), nullable=False),
        sa.Column("faults", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("node", name=op.f("pk_agent_heartbeat")),
    )
    op.create_table(
        "cpu_fit",
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
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cpu_fit")),
        sa.UniqueConstraint("job_id", "restart", "node", "search", "at_s", name="uq_cpu_fit"),
    )
    op.create_index(op.f("ix_cpu_fit_at_s"), "cpu_fit", ["at_s"], unique=False)
    op.create_index(op.f("ix_cpu_fit_job_id"), "cpu_fit", ["job_id"], unique=False)
    op.create_index("ix_cpu_fit_user_category", "cpu_fit", ["user", "category"], unique=False)
    op.create_table(
        "cpu_measurement",
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
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cpu_measurement")),
        sa.UniqueConstraint("job_id", "restart", "node", "search", "step", "at_s", name="uq_cpu_measurement"),
    )
    op.create_index(op.f("ix_cpu_measurement_job_id"), "cpu_measurement", ["job_id"], unique=False)
    op.create_table(
        "cpu_proposal",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("submit_s", sa.Double(), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("asked_cores", sa.Integer(), nullable=False),
        sa.Column("cores", sa.Integer(), nullable=True),
        sa.Column("source", sa.String(length=16), nullable=False),
        sa.Column("left_alone", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cpu_proposal")),
        sa.UniqueConstraint("job_id", "submit_s", name=op.f("uq_cpu_proposal_job_id_submit_s")),
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
        sa.PrimaryKeyConstraint("id", name=op.f("pk_epoch")),
    )
    op.create_table(
        "job",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
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
    op.create_index(op.f("ix_job_submit_s"), "job", ["submit_s"], unique=False)
    op.create_table(
        "job_node_usage",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
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
    op.create_table(
        "node_event",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
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
        "pool_run",
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
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pool_run")),
        sa.UniqueConstraint("job_id", "submit_s", "restart", name=op.f("uq_pool_run_job_id_submit_s_restart")),
    )
    op.create_index(op.f("ix_pool_run_end_s"), "pool_run", ["end_s"], unique=False)
    op.create_table(
        "preemption",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("submit_s", sa.Double(), nullable=False),
        sa.Column("restart", sa.Integer(), nullable=False),
        sa.Column("phase", sa.String(length=12), nullable=False),
        sa.Column("created_s", sa.Double(), nullable=False),
        sa.Column("deadline_s", sa.Double(), nullable=False),
        sa.Column("updated_s", sa.Double(), nullable=False),
        sa.Column("for_jobs", sa.JSON(), nullable=False),
        sa.Column("reason", RawText(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_preemption")),
    )
    op.create_index(op.f("ix_preemption_job_id"), "preemption", ["job_id"], unique=False)
    op.create_index(op.f("ix_preemption_phase"), "preemption", ["phase"], unique=False)
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
        sa.ForeignKeyConstraint(["job_pk"], ["job.id"], name=op.f("fk_job_run_job_pk_job")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_run")),
        sa.UniqueConstraint("job_pk", "restart", name=op.f("uq_job_run_job_pk_restart")),
    )
    op.create_index(op.f("ix_job_run_end_s"), "job_run", ["end_s"], unique=False)
    op.create_index(op.f("ix_job_run_job_pk"), "job_run", ["job_pk"], unique=False)
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
    op.create_table(
        "action",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("epoch_id", sa.Integer(), nullable=True),
        sa.Column("cycle_id", sa.Integer(), nullable=True),
        sa.Column("preemption_id", sa.Integer(), nullable=True),
        sa.Column("job_id", sa.Integer(), nullable=False),
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


def downgrade() -> None:
    """Take back."""
    op.drop_index(op.f("ix_action_state"), table_name="action")
    op.drop_index(op.f("ix_action_preemption_id"), table_name="action")
    op.drop_index("ix_action_job_kind", table_name="action")
    op.drop_index(op.f("ix_action_cycle_id"), table_name="action")
    op.drop_table("action")
    op.drop_table("run_time_prediction")
    op.drop_index("ix_observed_job_kind", table_name="observed_job")
    op.drop_index(op.f("ix_observed_job_at_s"), table_name="observed_job")
    op.drop_table("observed_job")
    op.drop_index(op.f("ix_job_run_job_pk"), table_name="job_run")
    op.drop_index(op.f("ix_job_run_end_s"), table_name="job_run")
    op.drop_table("job_run")
    op.drop_index(op.f("ix_cycle_started_s"), table_name="cycle")
    op.drop_table("cycle")
    op.drop_table("slowdown_model")
    op.drop_table("profile_value")
    op.drop_table("profile_edit")
    op.drop_index(op.f("ix_preemption_phase"), table_name="preemption")
    op.drop_index(op.f("ix_preemption_job_id"), table_name="preemption")
    op.drop_table("preemption")
    op.drop_index(op.f("ix_pool_run_end_s"), table_name="pool_run")
    op.drop_table("pool_run")
    op.drop_index(op.f("ix_node_event_job_id"), table_name="node_event")
    op.drop_table("node_event")
    op.drop_index(op.f("ix_job_node_usage_job_id"), table_name="job_node_usage")
    op.drop_table("job_node_usage")
    op.drop_index(op.f("ix_job_submit_s"), table_name="job")
    op.drop_index(op.f("ix_job_state"), table_name="job")
    op.drop_index(op.f("ix_job_job_id"), table_name="job")
    op.drop_index(op.f("ix_job_end_s"), table_name="job")
    op.drop_table("job")
    op.drop_table("epoch")
    op.drop_table("cpu_proposal")
    op.drop_index(op.f("ix_cpu_measurement_job_id"), table_name="cpu_measurement")
    op.drop_table("cpu_measurement")
    op.drop_index("ix_cpu_fit_user_category", table_name="cpu_fit")
    op.drop_index(op.f("ix_cpu_fit_job_id"), table_name="cpu_fit")
    op.drop_index(op.f("ix_cpu_fit_at_s"), table_name="cpu_fit")
    op.drop_table("cpu_fit")
    op.drop_table("agent_heartbeat")
    op.drop_table("admin_setting")
