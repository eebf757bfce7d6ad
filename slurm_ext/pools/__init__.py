"""Pools in a running Slurm: partitions made, changed and removed, and the record of what is in force."""
