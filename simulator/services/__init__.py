"""Inference services in a simulation: their load, their instances on the cluster, and how they answer (paper 004)."""
