"""Readers of workloads that others recorded."""
