"""Readings of a node's jobs: CPU time, memory, processes and GPUs."""
