"""Families of workloads with users, their scripts and the time limits that they give, at a load that can be named."""
