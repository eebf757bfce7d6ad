"""How much of their GPUs' time runs used, alone and beside others."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("job_node_usage", sa.Column("sm_uses", sa.JSON(), nullable=True))


def downgrade() -> None:
    """Take back."""
    op.drop_column("job_node_usage", "sm_uses")
