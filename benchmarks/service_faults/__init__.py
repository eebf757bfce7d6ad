"""Hand-overs, kills, bursts and a dead sodad under an open load, on a real Slurm in containers."""
