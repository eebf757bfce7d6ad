"""OJPP and OJPAP (Li et al. 2023): packing within bounds, and moves where interference grew."""
