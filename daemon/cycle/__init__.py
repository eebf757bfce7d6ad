"""One cycle of sodad: read Slurm, decide, act, record; and what wakes it."""
