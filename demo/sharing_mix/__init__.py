"""``sodactl demo --sharing``: one mix of jobs under stock Slurm, under Tiresias, and with jobs that share GPUs."""
