"""Inference services: how many instances each needs, and where."""
