"""Ending pairs whose slowdown, as it was observed, is more than an owner bears."""
