"""Slurm through its own commands: the back end that every site can run."""
