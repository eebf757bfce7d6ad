"""Commands about a site as a whole: how slurm-soda is turned on there, stage by stage."""
