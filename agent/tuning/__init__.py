"""Finds the best number of cores of a running training (SODA, Section V-B) and sets it."""
