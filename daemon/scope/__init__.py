"""Jobs in scope: which of Slurm's jobs may be changed, and what is taken back of those that no longer may."""
