"""Errors of policies. This package imports nothing of slurm-soda, so it has its own base."""

from __future__ import annotations


class PolicyError(ValueError):
    """A policy or one of its parameters is not allowed; one line that names it, the value and what is allowed."""
