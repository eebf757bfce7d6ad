"""The demonstration: one job mix, two schedulers, one report."""
