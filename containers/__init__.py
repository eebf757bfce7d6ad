"""A real Slurm cluster in containers, through the Docker SDK."""
