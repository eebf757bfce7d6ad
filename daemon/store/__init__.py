"""Durable memory: jobs, runs, usage, cycles, and every change made to Slurm."""
