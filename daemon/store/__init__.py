"""What sodad keeps in a database: jobs, runs, usage, cycles, and every change made to Slurm."""
