"""An administrator's first hour: packages into a site that has only Slurm, step by step, and out again."""
