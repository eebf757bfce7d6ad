"""Errors of learning."""

from __future__ import annotations

from slurm_soda.policies.errors import PolicyError


class LearningError(PolicyError):
    """A model cannot be learned, stored or read; one line that names what is wrong and what to do."""
