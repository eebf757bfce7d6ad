"""Policies judged on a matrix of generated workloads: ``make evaluate``."""
