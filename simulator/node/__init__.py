"""What happens on nodes while jobs run: CPU cores feed GPUs, neighbours take bandwidth, agents adjust both (SODA)."""
