"""The page: what users see of sodad in a browser, each what Slurm would show this user."""
