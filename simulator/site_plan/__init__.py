"""How a site may turn slurm-soda on in stages, by what the simulator expects of each on the site's own jobs."""
