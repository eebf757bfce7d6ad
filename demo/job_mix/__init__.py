"""The demonstration's job mix: the same jobs under stock Slurm and under slurm-soda, and the page about it."""
