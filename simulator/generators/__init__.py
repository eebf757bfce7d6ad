"""Workloads drawn from published distributions, the same for the same seed."""
