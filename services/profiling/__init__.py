"""Measures a service on this machine, before it serves: the offline stage of SODA's placement (paper 004, Section V-D)."""
