"""Commands that run a real Slurm cluster in containers on this machine."""
