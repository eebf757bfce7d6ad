"""Seats on GPUs: what the engine beneath can do when jobs share, and whether a plan asks for no more."""
