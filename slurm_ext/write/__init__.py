"""From a plan to changes of Slurm, and from changes to calls."""
