"""Reading Slurm through bindings of its library, beside its commands."""
