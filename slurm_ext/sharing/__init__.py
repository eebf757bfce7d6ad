"""Guests on Slurm: the record that a job carries in its Extra field."""
