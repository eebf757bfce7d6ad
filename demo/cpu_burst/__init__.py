"""The burst: CPU jobs storm a cluster that trains, under stock Slurm and under pools (SODA, Sections III-A and V-C)."""
