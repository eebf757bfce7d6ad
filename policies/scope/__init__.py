"""Which jobs a site lets slurm-soda change, and what that leaves of a plan."""
