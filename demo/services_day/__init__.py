"""A day of an inference service amid training jobs: its GPU kept all day as today, and placed by slurm-soda."""
