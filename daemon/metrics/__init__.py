"""Figures for Prometheus, from what sodad and the agents know already: docs/metrics.md."""
