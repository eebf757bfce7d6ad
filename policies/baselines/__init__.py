"""Policies to compare with: first in first out, fair shares, time slices, Slurm's own multifactor order."""
