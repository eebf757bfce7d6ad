"""sodad: observe → decide → act → record, beside slurmctld."""
